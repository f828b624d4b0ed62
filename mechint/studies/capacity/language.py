"""The study of capacity in language models: a comparison task, injected at set frequencies and
gaps, in models of several widths.

The background is the synthetic language of `tasks.corpus.language`; the injected task compares two
of a few words by a hidden order. An instance is rare, so a model must keep what it learned between
showings while the language pulls at it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mechint import figures
from mechint.errors import TrainingError
from mechint.probe import run as run_probe
from mechint.results import Figure, Table
from mechint.studies.core.study import (
    Analysis,
    Finding,
    Planned,
    Runs,
    Stated,
    mean_and_spread,
    plan,
    task_of,
)
from mechint.training import Run

LEARNED = 0.9
"""Accuracy on held-out instances from which a model counts as having learned the task; chance is
about 0.5.
"""

COMPONENTS = 3
"""Principal components of the tokens' mean residuals from which their order is read."""

NEURONS = 16
"""Task neurons: those of largest gradient times activation, of the layer where they matter most."""

CLAIMS = {
    claim.letter: claim
    for claim in (
        Stated(
            "g",
            "Larger language models learn rarer tasks.",
            "Sec. 4: at equal frequency the larger model learns the injected task",
            "At the lower frequency the widest model's accuracy on held-out instances, mean "
            "over gaps, exceeds the narrowest's by at least 0.1, and at "
            "neither frequency does it fall by more than 0.05 from one width to the next.",
            (
                "0.1 is five times the spread of an accuracy over 512 prompts; 0.05 allows for "
                "the spread over seeds."
            ),
        ),
        Stated(
            "h",
            "Larger models have more of the task's features in their representation.",
            (
                "Sec. 4: the hidden order is read by linear regression from the top principal "
                "components"
            ),
            "At the lower frequency the R² with which the first operand's rank is read from "
            "the top three principal components after layer 1 (each token left "
            "out in turn, mean over gaps) is higher in the widest model than in the narrowest "
            "by at least 0.1.",
            "A representation without order has an R² of at most 0 when tokens are left out.",
        ),
        Stated(
            "i",
            "In larger models the background's gradient interferes less with the task's.",
            (
                "Sec. 4: high cosine at injections, near zero between them; in the smallest model "
                "background gradients collide with the task"
            ),
            "The cosine of the background tokens' gradient with the task's reference "
            "gradient, over the task neurons' parameters, is nearer zero in the "
            "widest model than in the narrowest, on average and in most of the conditions "
            "(frequency, gap); that of the task tokens is positive on average.",
            "A sign test over the few conditions has little power, so the mean is asked for too.",
        ),
        Stated(
            "j",
            "Distributed alignment search finds the one-dimensional order.",
            "a 1-D subspace after layer 1; interchange succeeds on 96 %",
            "In the models that learned the task (held-out accuracy 0.9 or more), the mean "
            "interchange accuracy of a 1-D subspace after layer 1, for the "
            "operand that does better, is at least 0.8, and every one beats all random subspaces.",
            (
                "0.8 lies far above what random subspaces give (about the accuracy with nothing "
                "swapped, 0.5); the paper's models are far larger."
            ),
        ),
        Stated(
            "k",
            (
                "At equal language-modelling loss, sizes lie on one curve while the task is "
                "frequent and part, smaller ones first, when it is rare."
            ),
            "Sec. 4, loss analysis",
            "At the steps where each run first reaches the narrowest model's last loss, "
            "accuracies of neighbouring widths differ by at most 0.1 at the higher "
            "frequency; at the lower frequency the narrowest lies at least 0.1 below the widest.",
            "Needs models whose losses overlap, and enough training that they do.",
            sizes=("full",),
        ),
        Stated(
            "l",
            "For rare tasks larger models need less compute, 6 × parameters × tokens.",
            "Sec. 4: compute-optimal size grows as the task gets rarer",
            (
                "At the lower frequency the compute at which a held-out accuracy of 0.9 is first "
                "reached falls from the narrowest to the widest model that does."
            ),
            "Small models at laptop size differ too little in compute.",
            sizes=("full",),
        ),
    )
}


@dataclass(frozen=True)
class Budget:
    """What a size trains. tokens: compared words; texts of n_ctx tokens over a vocabulary of
    `words`.

    laptop: 32 words, and steps enough for the widest model to learn the task at the higher
    frequency. With 10 words and half the steps, tried first, no model did (held-out accuracies from
    0.61 to 0.73): there are too few pairs to generalise from.
    """

    widths: tuple[int, ...]
    frequencies: tuple[float, ...]
    gaps: tuple[int, ...]
    steps: int
    seeds: int
    tokens: int
    n_ctx: int
    words: int
    batch_size: int
    n_layers: int = 2
    lr: float = 5e-3


BUDGETS = {
    "smoke": Budget((8, 16), (0.3, 0.1), (1,), 8, 1, 8, 8, 64, 16),
    "laptop": Budget((8, 16, 32), (0.12, 0.03), (1, 8), 4000, 2, 32, 8, 96, 64),
    "full": Budget((64, 256, 768), (0.03, 0.003), (1, 32), 20000, 3, 100, 64, 2048, 256, 8, 1e-3),
}


def runs(size: str) -> list[Planned]:
    """A run a width, frequency, gap and seed."""
    budget = BUDGETS[size]
    task = {"n_ctx": budget.n_ctx, "vocab_size": budget.words, "inject": "comparison"}
    inner = {"n": budget.tokens, "equals": False, "train_fraction": 0.8}
    train = {
        "steps": budget.steps,
        "batch_size": budget.batch_size,
        "lr": budget.lr,
        "evaluate_every": max(1, budget.steps // 20),
        "eval_examples": 512,
    }
    planned = []
    for frequency in budget.frequencies:
        for gap in budget.gaps:
            for width in budget.widths:
                model = {
                    "d_model": width,
                    "n_layers": budget.n_layers,
                    "n_heads": max(2, width // 64),
                }
                labels = {"arm": "language", "frequency": frequency, "gap": gap, "width": width}
                settings = {**task, "inject_parameters": inner, "frequency": frequency, "gap": gap}
                name = f"language-f{frequency:g}-gap{gap}-width{width}"
                planned += [
                    plan(name, "corpus", settings, model, train, seed=seed, **labels)
                    for seed in range(budget.seeds)
                ]
    return planned


def judge(book: Analysis, trained: Runs) -> None:
    """Measure claims g to l."""
    measured = _Measured(trained)
    book.judge(CLAIMS["g"], lambda: _rarer(measured))
    book.judge(CLAIMS["h"], lambda: _features(measured))
    book.judge(CLAIMS["i"], lambda: _interference(measured))
    book.judge(CLAIMS["j"], lambda: _order(measured))
    book.judge(CLAIMS["k"], lambda: _equal_loss(measured))
    book.judge(CLAIMS["l"], lambda: _compute(measured))
    book.tabulate("Language models", lambda: _table(measured))


def draw(book: Analysis, trained: Runs) -> None:
    """Add the figures of the language models."""
    book.draw("Injected task", lambda: _accuracy_figure(trained))
    book.draw("Gradient interference", lambda: _cosine_figure(_Measured(trained)))


# --- what a run shows -----------------------------------------------------------------------------
def accuracy(run: Run) -> float:
    """Accuracy on held-out instances of the injected task, at the end."""
    return float(run.final["test.greedy.accuracy.task"])


def order_r2(run: Run) -> float:
    """R² of the hidden rank of the tokens, read from COMPONENTS principal components of their
    residuals after layer 1.

    Each token stands alone at the first position, where nothing else is attended to. Ridge-free
    least squares, each token predicted from the others; at most 1, and below 0 where guessing the
    mean would do better.
    """
    subject = run.subject()
    task = task_of(run)
    words = task.injection.token_words[: task._injected.n]
    _, cache = subject.model.run_with_cache(
        words[:, None].to(subject.device), names_filter="blocks.0.hook_resid_post"
    )
    x = cache["blocks.0.hook_resid_post"][:, 0].detach().double().cpu()
    x = x - x.mean(0)
    u, s, _ = torch.linalg.svd(x, full_matrices=False)
    components = torch.cat([u[:, :COMPONENTS] * s[:COMPONENTS], torch.ones(len(x), 1).double()], 1)
    return left_out_r2(components.numpy(), task._injected.ranks.double().numpy())


def left_out_r2(x: np.ndarray, y: np.ndarray) -> float:
    """R² of least squares of y (n,) on x (n, k) with every example predicted from the others
    (hat-matrix shortcut).

    >>> x = np.stack([np.arange(6.0), np.ones(6)], 1)
    >>> round(left_out_r2(x, 2 * np.arange(6.0) + 1), 6)
    1.0
    """
    hat = x @ np.linalg.pinv(x)
    errors = (y - hat @ y) / (1 - np.diag(hat)).clip(1e-9)
    return float(1 - (errors**2).sum() / ((y - y.mean()) ** 2).sum())


class _Measured:
    """Runs of the language models with what the probes say of each, measured once."""

    def __init__(self, trained: Runs) -> None:
        self.runs = trained
        self._kept: dict[tuple[str, str], Any] = {}

    def of(self, measure: Callable[[Run], Any], name: str) -> Any:
        key = (measure.__name__, name)
        if key not in self._kept:
            self._kept[key] = measure(self.runs[name])
        return self._kept[key]

    def values(self, measure: Callable[[Run], float], **labels: Any) -> list[float]:
        return [self.of(measure, name) for name in self.runs.names(arm="language", **labels)]

    def axis(self, label: str) -> list[Any]:
        return self.runs.values_of(label, arm="language")


def background_cosine(run: Run) -> float:
    """Mean cosine of the background's gradient with the task's reference, over the task neurons."""
    return cosines(run)["background"]


def task_cosine(run: Run) -> float:
    """Mean cosine of the task tokens' gradient with the task's reference, over the task neurons."""
    return cosines(run)["task"]


def cosines(run: Run) -> Mapping[str, float]:
    """Both, over as many training batches as hold one showing of the task."""
    batches = max(4, task_of(run).gap)
    found = run_probe(
        "interference",
        run.subject(),
        neurons=NEURONS,
        batches=batches,
        batch_size=run.spec.train.batch_size,
        null_samples=19,
    )
    return {part: float(found.metrics[f"cosine.{part}"]) for part in ("task", "background")}


def interchange(run: Run) -> tuple[float, float]:
    """(IIA, largest of the random subspaces' nulls' p-value) of a 1-D subspace after layer 1, for
    the operand that does better.
    """
    subject, best = run.subject(), (-math.inf, 1.0)
    for variable in ("rank of a", "rank of b"):
        settings = {
            "variable": variable,
            "layers": (1,),
            "steps": 200,
            "pairs": 512,
            "held_out": 256,
            "null_samples": 99,
        }
        found = run_probe("das", subject, **settings)
        best = max(best, (float(found.metrics["iia"]), float(found.null["iia"].p_value)))
    return best


# --- the claims -----------------------------------------------------------------------------------
def _by_width(
    measured: _Measured, measure: Callable[[Run], float], frequency: float
) -> list[float]:
    return [
        float(np.mean(measured.values(measure, frequency=frequency, width=width)))
        for width in measured.axis("width")
    ]


def _curve(measured: _Measured, means: list[float], digits: int = 2) -> str:
    return ", ".join(
        f"{mean:.{digits}f} at width {width}"
        for width, mean in zip(measured.axis("width"), means, strict=True)
    )


def _rarer(measured: _Measured) -> Finding:
    means = {
        frequency: _by_width(measured, accuracy, frequency)
        for frequency in measured.axis("frequency")
    }
    rare = means[min(means)]
    rising = all(b >= a - 0.05 for each in means.values() for a, b in itertools.pairwise(each))
    words = "; ".join(
        f"frequency {frequency:g}: {_curve(measured, each)}" for frequency, each in means.items()
    )
    return Finding(
        rising and rare[-1] - rare[0] >= 0.1,
        f"Held-out accuracy at {words}.",
        {"accuracies": means, "widths": measured.axis("width")},
    )


def _features(measured: _Measured) -> Finding:
    means = {
        frequency: _by_width(measured, order_r2, frequency)
        for frequency in measured.axis("frequency")
    }
    rare = means[min(means)]
    words = "; ".join(
        f"frequency {frequency:g}: {_curve(measured, each)}" for frequency, each in means.items()
    )
    return Finding(rare[-1] - rare[0] >= 0.1, f"R² of the order at {words}.", {"r2": means})


def _conditions(measured: _Measured) -> list[dict[str, Any]]:
    return [
        {"frequency": frequency, "gap": gap}
        for frequency in measured.axis("frequency")
        for gap in measured.axis("gap")
    ]


def _interference(measured: _Measured) -> Finding:
    widths = measured.axis("width")
    sizes = {
        width: [
            abs(float(np.mean(measured.values(background_cosine, width=width, **c))))
            for c in _conditions(measured)
        ]
        for width in widths
    }
    task = [value for width in widths for value in measured.values(task_cosine, width=width)]
    wins = sum(
        wide < narrow for wide, narrow in zip(sizes[widths[-1]], sizes[widths[0]], strict=True)
    )
    holds = (
        np.mean(sizes[widths[-1]]) < np.mean(sizes[widths[0]])
        and 2 * wins > len(_conditions(measured))
        and np.mean(task) > 0
    )
    words = _curve(measured, [float(np.mean(sizes[width])) for width in widths], 3)
    smaller = f"smaller in the widest in {wins} of {len(_conditions(measured))} conditions"
    ours = f"Size of the background's cosine: {words}; {smaller}; task tokens {np.mean(task):+.2f}."
    return Finding(bool(holds), ours, {"background": sizes, "task": task})


def _order(measured: _Measured) -> Finding:
    learned = [
        name
        for name in measured.runs.names(arm="language")
        if measured.of(accuracy, name) >= LEARNED
    ]
    if not learned:
        raise TrainingError(f"no model reached an accuracy of {LEARNED} on held-out instances")
    found = [measured.of(interchange, name) for name in learned]
    values = [value for value, _ in found]
    holds = float(np.mean(values)) >= 0.8 and all(p_value <= 0.01 for _, p_value in found)
    return Finding(
        holds,
        f"Interchange accuracy {mean_and_spread(values)} in the models that learned the task.",
        {"iia": dict(zip(learned, values, strict=True))},
    )


def _equal_loss(measured: _Measured) -> Finding:
    widths, at = measured.axis("width"), {}
    for frequency in measured.axis("frequency"):
        level = max(
            run.final["test.loss"] for run in measured.runs.select(arm="language", width=widths[0])
        )
        rows = {
            width: measured.runs.select(arm="language", frequency=frequency, width=width)
            for width in widths
        }
        at[frequency] = [
            float(
                np.mean(
                    [
                        next((row for row in run.metrics if row["test.loss"] <= level), run.final)[
                            "test.greedy.accuracy.task"
                        ]
                        for run in group
                    ]
                )
            )
            for group in rows.values()
        ]
    frequent, rare = at[max(at)], at[min(at)]
    together = all(abs(a - b) <= 0.1 for a, b in itertools.pairwise(frequent))
    words = "; ".join(
        f"frequency {frequency:g}: {_curve(measured, each)}" for frequency, each in at.items()
    )
    return Finding(
        together and rare[-1] - rare[0] >= 0.1,
        f"Accuracy at equal loss, {words}.",
        {"accuracies": at},
    )


def _compute(measured: _Measured) -> Finding:
    frequency, spent = min(measured.axis("frequency")), {}
    for width in measured.axis("width"):
        costs = []
        for run in measured.runs.select(arm="language", frequency=frequency, width=width):
            step = next(
                (row["step"] for row in run.metrics if row["test.greedy.accuracy.task"] >= LEARNED),
                math.inf,
            )
            parameters = sum(value.numel() for value in run.subject().model.parameters())
            costs.append(
                6 * parameters * step * (run.spec.train.batch_size or 1) * task_of(run).n_ctx
            )
        spent[width] = float(np.median(costs))
    reached = [cost for cost in spent.values() if math.isfinite(cost)]
    words = ", ".join(
        f"{cost:.2g} FLOP at width {width}" if math.isfinite(cost) else f"never at width {width}"
        for width, cost in spent.items()
    )
    return Finding(
        len(reached) > 1 and reached == sorted(reached, reverse=True),
        f"Compute until {LEARNED:.0%} on the rare task: {words}.",
        {"flop": spent},
    )


# --- the table and the figures --------------------------------------------------------------------
def _table(measured: _Measured) -> Table:
    columns = {
        "accuracy": accuracy,
        "R² of the order": order_r2,
        "cosine, background": background_cosine,
        "cosine, task": task_cosine,
    }
    rows: dict[str, list[Any]] = {
        "frequency": [],
        "gap": [],
        "width": [],
        **{name: [] for name in columns},
        "loss": [],
    }
    for condition in _conditions(measured):
        for width in measured.axis("width"):
            rows["frequency"].append(condition["frequency"])
            rows["gap"].append(condition["gap"])
            rows["width"].append(width)
            for name, measure in columns.items():
                rows[name].append(
                    mean_and_spread(measured.values(measure, width=width, **condition))
                )
            rows["loss"].append(
                mean_and_spread(
                    [
                        run.final["test.loss"]
                        for run in measured.runs.select(arm="language", width=width, **condition)
                    ],
                    3,
                )
            )
    caption = (
        "Every condition: held-out accuracy on the injected task, its order in the "
        "representation, gradients against the task's reference, loss."
    )
    return Table(rows, caption, {"loss": "nats a token"})


def _accuracy_figure(trained: Runs) -> Figure:
    x, y = {}, {}
    for frequency in trained.values_of("frequency", arm="language"):
        gap = max(trained.values_of("gap", arm="language"))
        for width in trained.values_of("width", arm="language"):
            group = trained.select(arm="language", frequency=frequency, gap=gap, width=width)
            name = f"width {width}, frequency {frequency:g}"
            x[name] = [row["step"] for row in group[0].metrics]
            y[name] = np.mean(
                [[row["test.greedy.accuracy.task"] for row in run.metrics] for run in group], axis=0
            )
    caption = (
        "Accuracy on held-out instances of the injected comparison over training, at the larger "
        "gap: wider models learn the rarer task."
    )
    style: dict[str, Any] = {
        "x_title": "step",
        "y_title": "held-out accuracy (0–1)",
        "levels": {"chance": 0.5},
    }
    return figures.lines(x, y, title="Injected task", caption=caption, **style)


def _cosine_figure(measured: _Measured) -> Figure:
    widths = measured.axis("width")
    parts: dict[str, Callable[[Run], float]] = {
        "task tokens": task_cosine,
        "background tokens": background_cosine,
    }
    series = {
        part: [float(np.mean(measured.values(measure, width=width))) for width in widths]
        for part, measure in parts.items()
    }
    caption = (
        "Cosine of the batch gradient's parts with the task's reference gradient, over the task "
        "neurons: above zero teaches the task, below unlearns it."
    )
    titles: dict[str, Any] = {"x_title": "width", "y_title": "cosine (-1 to 1)"}
    return figures.bars(
        [str(width) for width in widths],
        series,
        title="Gradient interference",
        caption=caption,
        **titles,
    )
