"""Runs of the capacity study: mixtures of linear regressions, where the theory of
`tasks.regression` says everything in advance, and small language models with an injected
comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mechint.studies.capacity import language, regressions
from mechint.studies.capacity.claims import CLAIMS
from mechint.studies.capacity.figures import draw
from mechint.studies.study import FRESH, PlannedRun, Sentence, Study, arm
from mechint.training import Run

SEED = 3000
WIDTHS = (1, 2, 3, 4, 6, 8, 11, 14, 18, 22, 27, 32, 38, 44, 50, 56)
COMPLEX = {"alpha": 0.3, "beta": 1.5, "beta_rarest": 0.4}
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "Adam, clipped": {},
    "Adam, batch size fixed": {"clip": None},
    "SGD, not clipped": {"optimizer": "sgd", "lr": 0.1, "schedule": "constant", "clip": None},
    "SGD, batch size fixed": {"optimizer": "sgd", "lr": 0.1, "schedule": "constant", "clip": None},
}
"""Settings on which the effect of gaps may depend; "batch size fixed" averages an enlarged batch
over the usual size, so that nothing shrinks its step.
"""

SMOKE: Mapping[str, Any] = {
    **{"task": {"n": 8, "n_tasks": 3, "rank": 2}, "widths": (1, 4), "seeds": 1, "steps": 20},
    **{"staircase": 3, "gaps": (1, 2), "gap_widths": (2, 4), "gap_steps": 10, "clip_width": 4},
    **{"data_widths": (2, 4), "data_steps": 2, "batch_size": 16, "complex": COMPLEX},
}
LAPTOP: Mapping[str, Any] = {
    **{"task": {"n": 64, "n_tasks": 8, "rank": 8}, "widths": WIDTHS, "seeds": 8, "steps": 2500},
    **{"staircase": 16, "gaps": (1, 4, 8, 16, 32), "gap_widths": (40, 60), "gap_steps": 6000},
    **{"clip_width": 56, "data_widths": (8, 16, 22, 40), "data_steps": 800, "batch_size": 128},
    "complex": COMPLEX,
}
AGAIN = 24
"""Seeds of the staircase and of the runs followed along training at size fresh."""

LANGUAGE: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        **{"widths": (8, 16), "frequencies": (0.3, 0.1), "gaps": (1, 2), "steps": 8, "seeds": 1},
        **{"tokens": 8, "n_ctx": 8, "words": 64, "batch_size": 16},
    },
    "laptop": {
        **{"widths": (8, 16, 32), "frequencies": (0.12, 0.03), "gaps": (1, 8), "steps": 4000},
        **{"seeds": 8, "tokens": 32, "n_ctx": 8, "words": 96, "batch_size": 64},
    },
    "fresh": {
        **{"widths": (8, 32), "frequencies": (0.12, 0.03), "gaps": (1,), "steps": 4000},
        **{"seeds": 12, "tokens": 32, "n_ctx": 8, "words": 96, "batch_size": 64},
    },
    "overnight": {
        **{"widths": (8, 16, 32, 64), "frequencies": (0.12, 0.06, 0.03, 0.015)},
        **{"gaps": (1, 8, 32), "steps": 8000, "seeds": 8},
        **{"tokens": 32, "n_ctx": 8, "words": 96, "batch_size": 64},
    },
}


class Cell(NamedTuple):
    """Runs that differ in width and seed alone. folder: the arm's name when empty."""

    name: str
    widths: Sequence[int]
    seeds: Sequence[int]
    task: Mapping[str, Any]
    train: Mapping[str, Any]
    folder: str = ""
    labels: Mapping[str, Any] | None = None


def plan(size: str) -> list[PlannedRun]:
    """The regressions of `size`, then its language models; a night trains no regression again."""
    if size == "fresh":
        return [*regression_runs(LAPTOP, AGAIN), *language_runs(LANGUAGE[size], FRESH)]
    regression = {"smoke": SMOKE, "laptop": LAPTOP, "overnight": None}[size]
    return [*(regression_runs(regression) if regression else ()), *language_runs(LANGUAGE[size])]


def regression_runs(budget: Mapping[str, Any], again: int = 0) -> list[PlannedRun]:
    """The population gradient at every width, gaps, data, and optimizers; of `again` fresh seeds
    the staircase and the runs followed along training alone.

    All widths of an arm have the same columns, and so train as one ensemble. Widths of one seed see
    the same data; the population gradient draws none.
    """
    most, widths, gaps = budget["staircase"], budget["widths"], budget["gaps"]
    steps, few = budget["gap_steps"], min(4, budget["seeds"])
    usual = {**budget["task"], "alpha": 1.0, "beta": 0.7}
    single = {**budget["task"], "n_tasks": most, "rank": 1, "n": max(most, budget["task"]["n"])}
    exact = {"steps": budget["steps"], "batch_size": None}
    exact["evaluate_every"] = max(1, budget["steps"] // 50)
    kept = {**exact, "checkpoints": "log", "n_checkpoints": 12}
    first, seeds = (SEED, budget["seeds"]) if not again else (FRESH, again)
    own = range(first, first + seeds)
    followed = Cell("training", widths, own if again else range(4000, 4000 + few), usual, kept)
    stairs = Cell("staircase", range(1, most + 1), own, {**single, "alpha": 1.0}, exact)

    def batches(steps: int, looks: int, **settings: Any) -> dict[str, Any]:
        given = {"batch_size": budget["batch_size"], "steps": steps}
        return {**given, "evaluate_every": max(1, steps // looks), **settings}

    cells = [
        Cell("phase", widths, own, usual, exact),
        followed,
        stairs,
        Cell("complexity", widths, own, {**budget["task"], **budget["complex"]}, exact),
    ]
    for alpha in (0.5, 1.5):
        drawn = range(SEED, SEED + few)
        cells.append(Cell(f"alpha{alpha:g}", widths, drawn, {**usual, "alpha": alpha}, exact))
    for factor in (1, 10):
        train = batches(factor * budget["data_steps"], 20)
        labels = {"factor": factor}
        cells.append(
            Cell("data", budget["data_widths"], own, usual, train, f"data{factor}", labels)
        )
    for name, more in (("retention", {}), ("weighted", {"normalization": "fixed"})):
        # no batch is enlarged at gap 1: the two arms are one
        for gap in [gap for gap in gaps if not more or gap > 1]:
            task, train = {**usual, "gap": gap, **more}, batches(steps, 150)
            folder, labels = f"{name}-gap{gap}", {"gap": gap}
            cells.append(Cell(name, budget["gap_widths"], own, task, train, folder, labels))
    for name, settings in OPTIMIZERS.items():
        for gap in (min(gaps), max(gaps)):
            more = {"normalization": "fixed"} if "fixed" in name else {}
            task, train = {**usual, "gap": gap, **more}, batches(steps, 10, **settings)
            folder = f"{name.lower().replace(', ', '-').replace(' ', '-')}-gap{gap}"
            labels = {"optimizer": name, "gap": gap}
            cells.append(
                Cell("optimizer", [budget["clip_width"]], own, task, train, folder, labels)
            )
    return [
        run
        for cell in ([stairs, followed] if again else cells)
        for width in cell.widths
        for seed in cell.seeds
        for run in arm(
            *(cell.name, "regression-mixture", [seed], cell.task),
            {"width": width, "columns": max(cell.widths)},
            {**cell.train, "data_seed": seed if cell.train["batch_size"] else SEED},
            folder=f"{cell.folder or cell.name}{f'-width{width}' if len(cell.widths) > 1 else ''}",
            width=width,
            **(cell.labels or {}),
        )
    ]


def language_runs(budget: Mapping[str, Any], first: int = SEED) -> list[PlannedRun]:
    """One run per width, frequency, gap and seed; each seed has a hidden order, a language and a
    split of its own. A gap at which a frequency asks for more than every text is left out.
    """
    inner = {"n": budget["tokens"], "equals": False, "train_fraction": 0.8}
    task = {"n_ctx": budget["n_ctx"], "vocab_size": budget["words"], "inject": "comparison"}
    train = {
        **{"steps": budget["steps"], "batch_size": budget["batch_size"]},
        **{"lr": 5e-3, "evaluate_every": max(1, budget["steps"] // 20)},
        **{"eval_examples": 512, "checkpoints": "linear", "n_checkpoints": 5},
    }
    cells = [
        {"frequency": frequency, "gap": gap, "width": width}
        for frequency in budget["frequencies"]
        for gap in budget["gaps"]
        if frequency * gap <= 1
        for width in budget["widths"]
    ]
    return [
        one
        for seed in range(first, first + budget["seeds"])
        for cell in cells
        for one in arm(
            *("language", "corpus", [seed]),
            {
                **{**task, "frequency": cell["frequency"], "gap": cell["gap"]},
                "inject_parameters": {**inner, "bijection_seed": seed},
            },
            {"d_model": cell["width"], "n_layers": 2, "n_heads": 2},
            train,
            own=("inject_seed", "language_seed"),
            folder="language-f{frequency:g}-gap{gap}-width{width}".format(**cell),
            stage=1,
            **cell,
        )
    ]


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a run, of a language model or of regressions."""
    kind = language if labels["arm"] == "language" else regressions
    return kind.measure(run, labels)


STUDY = Study(
    name="capacity",
    title="Why larger models learn more",
    paper="Why Larger Models Learn More: Effects of Capacity, Interference, and Rare-Task "
    "Retention",
    summary=(
        "A model of limited width keeps the features of largest utility: frequency times how much "
        "they explain. What frequent tasks leave unexplained pulls the width away from rare ones, "
        "so rare tasks are learned, and retained between showings, only by wider models. More "
        "data does not change this; language models with an injected task show the same."
    ),
    here="n = 64, T = 8; 2-layer models 8 to 32 wide on a synthetic language",
    there="regressions; 8- to 16-layer models, 4M to 4B parameters, on Dolma",
    claims=CLAIMS,
    sentences=(
        Sentence(
            "features are learned in the order of their utility",
            ("a1", "a2", "a3", "b1", "b2", "f1", "f2"),
            regime="regressions, n = 64, T = 8",
        ),
        Sentence(
            "a rare task waits until the frequent ones' residual is small",
            ("c",),
            regime="regressions, n = 64, T = 8",
        ),
        Sentence(
            "gaps cost a narrow model more",
            ("d1", "d2"),
            regime="regressions, n = 64, T = 8",
        ),
        Sentence(
            "gaps cost features even without clipping", ("d3",), regime="regressions, n = 64, T = 8"
        ),
        Sentence(
            "ten times the data teaches nothing above capacity",
            ("e1", "e2"),
            regime="regressions, n = 64, T = 8",
        ),
        Sentence(
            "larger language models learn rarer tasks, with more of their order",
            ("g", "h", "i", "j1", "j2", "k1", "k2"),
            regime="2-layer models 8 to 32 wide, a synthetic language",
        ),
    ),
    costs={"laptop": 0.9, "fresh": 0.5, "overnight": 4},
    plan=plan,
    measure=measure,
    draw=draw,
)
