"""What program each of many models runs: `mechint explain` over the examples, models that others
trained, and seeds of addition with learned and with uniform attention.

    python -m benchmarks.explanations CHECKPOINTS --seeds runs/add31-learned … --out docs

CHECKPOINTS is a folder that holds the published models; those that are not in it are left out. The
page is written as ``what-models-run.md``. With ``--rows FILE`` finished rows are kept there, and
are not measured again until code that decides them changes.

How clock and pizza are put to the test as one family is said on the page, in `FAMILY`; bounds and
null were fixed before the seeds were judged, though after four published models had been seen.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.kept import in_words, made, write_page
from mechint.decide.intervals import wilson
from mechint.errors import MechintError
from mechint.explanation.standing import ORDER
from mechint.system.files import read_json, read_json_lines
from mechint.system.progress import Count, counting
from mechint.training.manifest import manifest

LEARNED, KEPT = 0.95, 0.9
"""Accuracy of a seed that counts, and the share of it that a sum has to keep."""
ATTENTION: dict[float, str] = {0: "uniform", 1: "learned"}
"""Share of softmax attention → the word for it."""
MEASURES = ("alone", "null", "refill", "additive", "symmetricity")
FIRST_STEP = 16
"""The step from which on kept checkpoints are looked at."""

EXAMPLES = Path(__file__).parents[1] / "examples" / "models"


@dataclass(frozen=True)
class Model:
    """A file with the task that it does not name, what it does not state of the model, and the
    answer that is explained, the last one when None.
    """

    file: str
    task: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: Mapping[str, Any] = field(default_factory=dict[str, Any])
    answer: int | None = None

    @property
    def name(self) -> str:
        """The file without its ending, with the answer where one is named."""
        short = self.file.removesuffix("/model.pt").removesuffix("/tl_model.pt")
        short = short.removesuffix(".pt").removesuffix(".pth")
        return short if self.answer is None else f"{short}, answer {self.answer}"


def _group(*names: str) -> list[Model]:
    return [Model(f"rep-theory/{name}/model.pt") for name in names]


def _pizza(*names: str) -> list[Model]:
    return [Model(f"pizza/model_{name}.pt") for name in names]


ADDITION = {"task": "modular-arithmetic", "settings": {"p": 113}}
SUM = {"task": "digit-sum", "settings": {"digits": 4}}
PUBLISHED: tuple[Model, ...] = (
    *_pizza("p99zdpze5l", "18c9ev5v5p", "l8k1hzciux", "q9rsl94xlv", "hpv2jgskwe", "7r4zst7evs"),
    *_group("C113_T_seed1", "C113_T_seed2", "C113_MLP_seed1", "S5_T_seed1", "D61_T_seed1"),
    *_group("A5_T_seed1", "A5_T_seed3"),
    Model("progress-measures/wd_10-1_mod_addition_loss_curve.pth"),
    Model("progress-measures/low_precision_mod_addition.pth", **ADDITION),
    Model("progress-measures/induction_head_infinite.pth"),
    Model("bare-progress-measures/baseline.pt", **ADDITION),
    Model("rib/model_epoch_60000.pt"),
    *(Model("arena/sum_model.pt", **SUM, answer=answer) for answer in (-1, -2, -3, -4)),
    Model(
        "arena/brackets_model_state_dict.pt",
        "balanced-brackets",
        model={"attention_dir": "bidirectional"},
    ),
    *(
        Model(f"one-hot-addition/{name}.pth")
        for name in (
            "p_23_dmlp_512_ReLU_random_scale_0.1_decay_0-9800",
            "p_23_dmlp_512_Quad_single-freq_scale_0.02_decay_0-9800",
            "p_97_dmlp_1024_ReLU_random_scale_0.1_decay_0-4800",
        )
    ),
    Model("siit/palindromes.pt", "palindromes", {"n": 6, "half_length": 2}),
    Model(
        "tracr-pickled/make_hist/tl_model.pt",
        "rasp",
        {"program": "histogram", "n": 10, "length": 9},
    ),
    Model(
        "tracr-pickled/make_reverse/tl_model.pt",
        "rasp",
        {"program": "reverse", "n": 10, "length": 9},
    ),
)
"""Published models of which mechint knows a task with a program."""

NOT_ASKED = """
## What was not asked

Of `hf-zoo`, `mapping/max_of_list_other_names`, `tracr-pickled/make_check_even` and
`tl4/tl4_native` mechint has no task with a program that fits their tokens, or no training.
"""

NOTE = """
**logits left**: the share of the logits' variance that the program does not account for, on inputs
that nothing was fitted on, where it says anything of the logits. **answers left**: the model's
accuracy less the least that any refill, interchange or route of the program keeps. **missing at
first**: what completing found that the first explanation lacked. Seconds are of the processor, one
thread (Intel Xeon).
"""

FAMILY = """
## Clock and pizza as one family

arXiv 2512.25060 holds that models with learned attention ("clocks") and with uniform attention
("pizzas") add alike: neurons read a sum of the same waves of both operands. Here the activation
that the MLP reads at the answer is replaced by its best fit g(x) + g(y), one function of both
operands, fitted on half of the pairs and judged on the others (**sum alone**; null: the second
operand permuted). A stricter claim, that nothing but the sum is used, is judged by the audit's
refill: the sum comes from the program and the rest from another input (**refill**). A seed counts
where its accuracy is 95%, and keeps the sum where 90% of that accuracy is left; the claim is
supported where the 95% interval (Wilson) of the share of such seeds of learned attention lies above
one half, refuted where it lies below. Uniform attention is the positive control: there the sum is
exact. All this was fixed before a seed was judged. **additive**: R² of the sum at that activation.
**symmetricity**: gradient symmetricity of the [probe](probes/clock-pizza.md), median and range;
published clock .33, pizza .99.
"""

COLUMNS = {
    "model": "model",
    "task": "task",
    "standing": "standing",
    "program": "program",
    "family": "family",
    "logits": "logits left",
    "answers": "answers left",
    "missing": "missing at first",
    "s": "s",
}
"""Field of a row → heading."""


def measured(path: Path, model: Model) -> dict[str, Any]:
    """The best explanation of one model as a row; "error" in place of it where there is none."""
    import mechint
    from mechint.account import title_of
    from mechint.explanation import explain

    row: dict[str, Any] = {"model": model.name}
    if (path / "status.json").is_file():
        row["ended"] = json.loads((path / "status.json").read_text())["status"]
    start = time.process_time()
    try:
        given = dict(model.settings)
        subject: Any = mechint.load(path, task=model.task, model=dict(model.model), **given)
        subject = subject if model.answer is None else subject.with_answer(model.answer)
        row |= {"task": title_of(subject), "accuracy": next(iter(subject.accuracy().values()))}
        audits = explain(subject)
    except MechintError as error:
        return {**row, "error": str(error)}
    best = audits[0]
    missing = next((one.missing for one in audits if one.missing), ())
    parts = [part for part in best.explanation.parts if part.reads] or [*best.explanation.parts]
    return {
        **row,
        "standing": best.standing,
        "reason": best.reason,
        "program": best.explanation.name,
        "family": best.explanation.family,
        "blocks": list(parts[-1].blocks) if parts else [],
        "logits": best.unaccounted.get("logits"),
        "answers": best.unaccounted.get("accuracy"),
        "attention": [one.decision.verdict for one in best.tests if one.kind == "attention"],
        "n": best.n,
        "missing": list(missing),
        "s": time.process_time() - start,
    }


def seed_measured(path: Path, model: Model) -> dict[str, Any]:
    """The row of a seed, with what the sum of its operands keeps and when its frequencies came."""
    import mechint

    row = measured(path, model)
    settings = json.loads((path / "config.json").read_text())
    row["p"] = settings["task"]["parameters"]["p"]
    row["rate"] = settings["model"]["attention_rate"]
    subject: Any = mechint.load(path)
    row |= sums(subject)
    (found,) = mechint.analyze(subject, "clock-pizza").results.values()
    row["symmetricity"] = found.metrics["gradient_symmetricity.centered"]
    return row | since(path)


def sums(subject: Any) -> dict[str, float]:
    """Shares of the accuracy that are kept where the MLP reads g(x) + g(y): "alone" and, as "null",
    with the second operand permuted; "refill": with the rest of another input.
    """
    import torch

    from mechint.explanation import Explanation, Part, audit
    from mechint.explanation.measure import Bench
    from mechint.interventions import Replace, Site
    from mechint.task import rng

    program = subject.task.own_program
    x, y = (step for step in program.steps if not step.parents)
    one_hot = torch.eye(x.n_values).double()
    permuted = one_hot[torch.from_numpy(rng("permuted operand", 0).permutation(x.n_values))]
    site, bench = Site("blocks.0.hook_resid_mid", "answer"), Bench.of(subject, program)
    mean, values = bench.activation(site, bench.fitted).mean(0), bench.values(bench.judged)

    def part(second: torch.Tensor) -> Part:
        def both(held: Mapping[str, torch.Tensor]) -> torch.Tensor:
            return one_hot[held[x.name].cpu()] + second[held[y.name].cpu()]

        return Part("g(x) + g(y)", site, (x.name, y.name), both)

    def alone(second: torch.Tensor) -> float:
        held = (mean + bench.fit(part(second)).written(values)).float()
        logits = bench.logits(bench.judged, [Replace(site, held)])
        return bench.share(logits, bench.targets(bench.judged)) / bench.accuracy

    refill = audit(subject, Explanation("sum", program, (part(one_hot),))).value("refill")
    return {
        "alone": alone(one_hot),
        "null": alone(permuted),
        "refill": refill / bench.accuracy,
        "additive": bench.explained(bench.fit(part(one_hot))),
    }


def since(run: Path) -> dict[str, int | None]:
    """The kept steps from which on, without a break, the frequencies that are key at the last one
    are key, and the accuracy is `LEARNED`; None where it is not so at the last one.
    """
    import mechint
    from mechint.explanation.measure import Bench
    from probes.explanations.representations import Setting, key_representations

    seen = list[tuple[int, set[str], bool]]()
    for path in [*sorted((run / "checkpoints").glob("step-*.pt")), run / "ckpt.pt"]:
        subject: Any = mechint.load(path)
        step, setting = subject.provenance["checkpoint"]["step"], Setting.of(subject)
        if step >= FIRST_STEP and setting is not None:
            keys = key_representations(Bench.of(subject, subject.task.own_program), setting)
            learned = next(iter(subject.accuracy().values())) >= LEARNED
            seen.append((step, set(keys), learned))
    last, came = seen[-1][1], dict[str, int | None](keys_since=None, learned_since=None)
    for step, keys, learned in seen:
        for name, holds in (
            ("keys_since", bool(last) and last <= keys),
            ("learned_since", learned),
        ):
            came[name] = (came[name] or step) if holds else None
    return came


def survey(
    models: Sequence[tuple[Path, Model]],
    kept: Path | None,
    progress: Count = lambda *_: None,
    measure: Callable[[Path, Model], dict[str, Any]] = measured,
) -> list[dict[str, Any]]:
    """A row per model; rows that `kept` holds of this commit are not measured again."""
    commit = str(manifest()["commit"] or "unknown")
    rows = read_json_lines(kept) if kept else ()
    known = {row["model"]: row for row in rows if row["commit"] == commit}
    for place, (path, model) in enumerate(models):
        progress(place, len(models), model.name)
        if model.name not in known:
            row = {**measure(path, model), "commit": commit}
            known[model.name] = row
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    return [known[model.name] for _, model in models]


def models_in(folder: Path) -> list[tuple[Path, Model]]:
    """The examples, and the published models that `folder` holds."""
    examples = [(path, Model(f"examples/{path.name}")) for path in sorted(EXAMPLES.glob("*.pt"))]
    published = [(folder / one.file, one) for one in PUBLISHED if (folder / one.file).exists()]
    return examples + published


def seeds_in(folder: Path) -> list[tuple[Path, Model]]:
    """The runs of a sweep that finished, or stopped at their accuracy, in the order of seeds."""
    runs = [
        path.parent
        for path in folder.glob("*/status.json")
        if json.loads(path.read_text())["status"] in ("finished", "stopped")
    ]
    order = sorted(runs, key=lambda run: (len(run.name), run.name))
    return [(run, Model(f"{folder.name}/{run.name}")) for run in order]


def fingerprint(keys: Sequence[int], p: int) -> tuple[int, ...]:
    """Frequencies up to multiplication by a unit modulo p, which renames the residues: the first in
    order of all the sets that it can be renamed to.

    >>> fingerprint([2, 4, 5], 11) == fingerprint([1, 2, 3], 11)
    True
    """
    from math import gcd

    units = [u for u in range(1, p) if gcd(u, p) == 1]
    return min(tuple(sorted(min(u * k % p, -u * k % p) for k in keys)) for u in units)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows as a table in Markdown."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + " --- |" * len(COLUMNS)]
    cells = ([_cell(row, name).replace("|", "\\|") for name in COLUMNS] for row in rows)
    return lines + ["| " + " | ".join(one) + " |" for one in cells]


def _cell(row: Mapping[str, Any], name: str) -> str:
    if "error" in row and name == "standing":
        return f"not asked: {row['error']}"
    if name == "program" and row.get("standing") == "refused":
        return str(row["reason"])
    value = row.get(name)
    if name == "standing" and value in ("incomplete", "wrong", "unclear"):
        return f"{value}: {row['reason']}"
    if name == "model":
        return f"`{value}`"
    if name in ("logits", "answers"):
        return "" if value is None else f"{value:.1%}"
    if name == "missing":
        return ", ".join(value or ())
    return "" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def seeds_section(rows: Sequence[Mapping[str, Any]], told: str) -> list[str]:
    """Which programs the seeds of one plan run, how often and since when, with their classes,
    and whether clock and pizza are one family there.
    """
    found, p = [row for row in rows if "error" not in row], rows[0]["p"]
    lines = ["", f"## {len(found)} seeds of addition mod {p}", "", told, ""]
    lines += ["| attention | standing | frequencies | seeds | accuracy, least | logits left |"]
    lines += ["|" + " --- |" * 6]
    groups: dict[tuple[float, str, int], list[Mapping[str, Any]]] = {}
    for row in found:
        key = (row["rate"], row["standing"], len(row["blocks"]))
        groups.setdefault(key, []).append(row)
    for (rate, standing, count), members in sorted(
        groups.items(), key=lambda one: (one[0][0], ORDER.index(one[0][1]), one[0][2])
    ):
        lefts = [row["logits"] for row in members if row["logits"] is not None]
        middle = f"{median(lefts):.1%}" if lefts else ""
        least = min(row["accuracy"] for row in members)
        cells = (ATTENTION[rate], standing, count or "", len(members), f"{least:.1%}", middle)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    named = [row for row in found if row["family"] == "frequencies" and row["blocks"]]
    classes = Counter(fingerprint([int(key) for key in row["blocks"]], p) for row in named)
    lines += ["", *(_classes(classes, p) if named else ())]
    failed = Counter(row["reason"].split()[0] for row in named if row["standing"] == "incomplete")
    if failed:
        counts = ", ".join(f"{kind} {count}" for kind, count in failed.most_common())
        lines.append(f"The first test that an incomplete one fails: {counts}.")
    for rate, words in ATTENTION.items():
        those = [row for row in named if row["rate"] == rate]
        whole = [row for row in those if row["keys_since"] and row["learned_since"]]
        if not whole:
            continue
        keys, learned = ([row[name] for row in whole] for name in ("keys_since", "learned_since"))
        before = sum(key <= step for key, step in zip(keys, learned, strict=True))
        lines.append(
            f"With {words} attention, of {len(whole)} seeds with a program: the last frequencies "
            f"are key since step {median(keys):.0f} (median; {min(keys)} to {max(keys)}), accuracy "
            f"is {LEARNED:.0%} since step {median(learned):.0f} ({min(learned)} to {max(learned)}),"
            f" in {before} not before the frequencies."
        )
    return [*lines, *family_section([row for row in found if row["accuracy"] >= LEARNED])]


def family_section(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whether clock and pizza are one family, of seeds that learned; see `FAMILY`."""
    lines = ["", "| attention | seeds | sum alone keeps | refill keeps | stands or incomplete |"]
    lines[1] += " sum alone, median (null) | additive, median | symmetricity |"
    lines.append("|" + " --- |" * 8)
    for rate, words in ATTENTION.items():
        if those := [row for row in rows if row["rate"] == rate]:
            n, of = len(those), {name: [row[name] for row in those] for name in MEASURES}
            whole = sum(row["standing"] in ("stands", "incomplete") for row in those)
            held = [sum(value >= KEPT for value in of[name]) for name in ("alone", "refill")]
            cells = [words, str(n), *(_share(hits, n) for hits in (*held, whole))]
            cells.append(f"{median(of['alone']):.3f} ({median(of['null']):.3f})")
            cells.append(f"{median(of['additive']):.3f}")
            angles = of["symmetricity"]
            cells.append(f"{median(angles):.2f} ({min(angles):.2f} to {max(angles):.2f})")
            lines.append("| " + " | ".join(cells) + " |")
    learned = [row for row in rows if row["rate"] == 1]
    lines.append("")
    for name, words in (
        ("alone", "One family, in that the sum of one function of both operands is enough"),
        ("refill", "One family, in that nothing but the sum is used"),
    ):
        hits = sum(row[name] >= KEPT for row in learned)
        low, high = wilson(hits, len(learned))
        verdict = "supported" if low > 0.5 else "refuted" if high < 0.5 else "undecided"
        lines.append(f"{words}: **{verdict}**, {_share(hits, len(learned))} of learned attention.")
    return lines


def _share(hits: int, n: int) -> str:
    low, high = wilson(hits, n)
    return f"{hits} of {n} ({low:.0%} to {high:.0%})"


def _classes(classes: Counter[tuple[int, ...]], p: int) -> list[str]:
    """How many fingerprints there are, and those that were found more than once."""
    order = sorted(classes.items(), key=lambda one: (-one[1], len(one[0]), one[0]))
    often = [f"{', '.join(map(str, keys))} ({count} seeds)" for keys, count in order if count > 1]
    return [
        f"Up to renaming the residues (multiplication by a unit mod {p}), {classes.total()} sets",
        f"of frequencies fall into {len(classes)} classes; found more than once: "
        f"{'; '.join(often) or 'none'}.",
    ]


def page(
    rows: Sequence[Mapping[str, Any]],
    seeds: Sequence[tuple[Trained, Sequence[Mapping[str, Any]]]],
) -> str:
    """The page in Markdown; seeds: of each sweep, how it was trained, and its rows."""
    counts = Counter(row.get("standing", "not asked") for row in rows)
    summary = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    lines = [
        f"# What {len(rows) + sum(len(some) for _, some in seeds)} models run",
        "",
        "The best [explanation](explanations.md) that `mechint explain` proposes for each model,",
        "by `python -m benchmarks.explanations CHECKPOINTS --seeds SWEEP … --out docs`.",
        f"Of {len(rows)} models: {summary}.",
        "",
        *table(rows),
        NOTE.rstrip(),
        NOT_ASKED.rstrip(),
    ]
    if seeds:
        lines.append(FAMILY.rstrip())
    for plan in dict.fromkeys(sweep.plan for sweep, _ in seeds):
        those = [(sweep, some) for sweep, some in seeds if sweep.plan == plan]
        told = "\n".join(f"- {sweep.command}" for sweep, _ in those)
        lines += seeds_section([row for _, some in those for row in some], told)
    origin = made("python -m benchmarks.explanations CHECKPOINTS --out docs")
    return "\n".join([*lines, "", in_words(origin)]) + "\n"


@dataclass(frozen=True)
class Trained:
    """How a sweep over seeds was trained: its command, and the settings of it that sweeps share
    whose attention alone differs.
    """

    command: str
    plan: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> Trained:
        """What the plan of a sweep says."""
        plan = read_json(folder / "sweep.json")
        settings = plan[0]["settings"]
        own = [one for one in settings if "." not in one.partition("=")[0]]
        seeds = sorted(run["seed"] for group in plan for run in group["runs"])
        words = ["mechint sweep modular-arithmetic"]
        words += ["--preset fast"] if len(own) < len(settings) else []
        words += [*(f"--set {one}" for one in own), f"--over seed={seeds[0]}:{seeds[-1] + 1}"]
        shared = tuple(one for one in settings if not one.startswith("attention_rate="))
        return cls(f"`{' '.join(words)}`", shared)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explanations")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--seeds", type=Path, nargs="*", default=[], help="sweeps of addition over seeds"
    )
    parser.add_argument("--rows", type=Path, help="JSON lines of finished rows")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    chosen = parser.parse_args(arguments)
    with counting("explaining") as update:
        rows = survey(models_in(chosen.folder), chosen.rows, update)
        seeds = [
            (Trained.of(sweep), survey(seeds_in(sweep), chosen.rows, update, seed_measured))
            for sweep in chosen.seeds
        ]
    write_page(chosen.out / "what-models-run.md", page(rows, seeds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
