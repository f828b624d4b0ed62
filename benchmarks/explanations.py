"""What program each of many models runs: `mechint explain` over the examples, models that others
trained, and seeds of one sweep.

    python -m benchmarks.explanations CHECKPOINTS --seeds runs/sweep-modular-arithmetic --out docs

CHECKPOINTS is a folder that holds the published models; those that are not in it are left out. The
page is written as ``what-models-run.md``. With ``--rows FILE`` finished rows are kept there, and
are not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from mechint.errors import MechintError
from mechint.files import read_json_lines, write_text
from mechint.progress import Count, counting

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
first**: what completing found that the first explanation lacked. Seconds are of the processor (AMD
EPYC, one thread).
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
    from mechint.explain import explain

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
        "attention": [one.status for one in best.tests if one.kind == "attention"],
        "n": best.n,
        "missing": list(missing),
        "s": time.process_time() - start,
    }


def survey(
    models: Sequence[tuple[Path, Model]], kept: Path | None, progress: Count = lambda *_: None
) -> list[dict[str, Any]]:
    """A row per model; rows that `kept` holds are not measured again."""
    known = {row["model"]: row for row in (read_json_lines(kept) if kept else ())}
    for place, (path, model) in enumerate(models):
        progress(place, len(models), model.name)
        if model.name not in known:
            known[model.name] = row = measured(path, model)
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
    return [
        (run, Model(run.name)) for run in sorted(runs, key=lambda run: (len(run.name), run.name))
    ]


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
    return lines + ["| " + " | ".join(_cell(row, name) for name in COLUMNS) + " |" for row in rows]


def _cell(row: Mapping[str, Any], name: str) -> str:
    if "error" in row and name == "standing":
        return f"not asked: {row['error']}"
    if name == "program" and row.get("standing") == "refused":
        return str(row["reason"])
    value = row.get(name)
    if name == "standing" and value in ("incomplete", "wrong"):
        return f"{value}: {row['reason']}"
    if name == "model":
        return f"`{value}`"
    if name in ("logits", "answers"):
        return "" if value is None else f"{value:.1%}"
    if name == "missing":
        return ", ".join(value or ())
    return "" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def seeds_section(rows: Sequence[Mapping[str, Any]], p: int, told: str) -> list[str]:
    """Which programs the seeds of one sweep run, how often, with their classes."""
    found = [row for row in rows if "error" not in row]
    lines = ["", f"## {len(found)} seeds of addition mod {p}", "", told, ""]
    lines += ["| standing | frequencies | seeds | accuracy, least | logits left, median |"]
    lines += ["|" + " --- |" * 5]
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["standing"], len(row["blocks"])), []).append(row)
    order = ("stands", "superfluous", "incomplete", "wrong", "abstains", "refused")
    for (standing, count), members in sorted(
        groups.items(), key=lambda one: (order.index(one[0][0]), one[0][1])
    ):
        lefts = [row["logits"] for row in members if row["logits"] is not None]
        middle = f"{median(lefts):.1%}" if lefts else ""
        least = min(row["accuracy"] for row in members)
        lines.append(f"| {standing} | {count or ''} | {len(members)} | {least:.1%} | {middle} |")
    named = [row for row in found if row["family"] == "frequencies" and row["blocks"]]
    classes = Counter(fingerprint([int(key) for key in row["blocks"]], p) for row in named)
    lines += ["", *_classes(classes, p)]
    failed = Counter(row["reason"].split()[0] for row in named if row["standing"] == "incomplete")
    if failed:
        counts = ", ".join(f"{kind} {count}" for kind, count in failed.most_common())
        lines.append(f"The first test that an incomplete one fails: {counts}.")
    for ended, words in (("stopped", "stopped at its accuracy"), ("finished", "ran to its end")):
        those = [row["standing"] for row in found if row["ended"] == ended]
        lines.append(f"Of {len(those)} whose training {words}, {those.count('stands')} stand.")
    used = sum("used" in row["attention"] for row in named)
    lines.append(
        f"Attention depends on the input in {used} of {len(named)}: patterns of other inputs do not"
    )
    lines.append("keep the answers there, as those of a pizza would.")
    return lines


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
    rows: Sequence[Mapping[str, Any]], seeds: Sequence[Mapping[str, Any]], p: int, told: str
) -> str:
    """The page in Markdown."""
    counts = Counter(row.get("standing", "not asked") for row in rows)
    summary = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    lines = [
        f"# What {len(rows) + len(seeds)} models run",
        "",
        "The best [explanation](explanations.md) that `mechint explain` proposes for each model,",
        "by `python -m benchmarks.explanations CHECKPOINTS --seeds SWEEP --out docs`.",
        f"Of {len(rows)} models: {summary}.",
        "",
        *table(rows),
        NOTE.rstrip(),
        NOT_ASKED.rstrip(),
    ]
    lines += seeds_section(seeds, p, told) if seeds else []
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explanations")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=Path, help="a sweep of modular-arithmetic over seeds")
    parser.add_argument("--rows", type=Path, help="JSON lines of finished rows")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    chosen = parser.parse_args(arguments)
    asked, seeds = models_in(chosen.folder), seeds_in(chosen.seeds) if chosen.seeds else []
    with counting("explaining") as update:
        rows = survey([*asked, *seeds], chosen.rows, update)
    p, told = 0, ""
    if seeds:
        plan = json.loads((seeds[0][0] / "config.json").read_text())
        p = plan["task"]["parameters"]["p"]
        command = (
            f"mechint sweep modular-arithmetic --preset fast --set p={p} --over seed=0:{len(seeds)}"
        )
        told = f"By `{command}`."
    text = page(rows[: len(asked)], rows[len(asked) :], p, told)
    write_text(chosen.out / "what-models-run.md", text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
