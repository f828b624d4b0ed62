"""Models that others trained, their published figures beside ours.

    python -m mechint.calibration.published CHECKPOINTS --out docs

CHECKPOINTS is a folder that holds the models; each row names its file. The table is written as
``published.json`` and ``published.md``. A row agrees where our value lies within its tolerance of
the published one, or is the same set.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mechint.files import write_text
from mechint.registry import PROBES

Value = float | tuple[Any, ...]
TASK_OF = {"baseline.pt": ("modular-arithmetic", {"p": 113})}
"""Files that do not name their task, and what they were trained on."""


@dataclass(frozen=True)
class Figure:
    """One published figure.

    file: within the folder; quantity: in words; theirs: a number, or a sorted tuple of names;
    tolerance: absolute, for numbers, half a unit of the last digit that was published, or what the
    two definitions allow; measure: our value from the opened checkpoint; note: where definitions
    differ.
    """

    file: str
    quantity: str
    theirs: Value
    measure: Callable[[Path], Value]
    tolerance: float = 0.0
    note: str = ""

    def agrees(self, ours: Value) -> bool:
        """Whether `ours` is the published figure to within the tolerance."""
        if isinstance(self.theirs, tuple) or isinstance(ours, tuple):
            return self.theirs == ours
        return abs(self.theirs - ours) <= self.tolerance


@cache
def _opened(path: Path) -> Any:
    from mechint.checkpoints import load_checkpoint

    task, parameters = TASK_OF.get(path.name, (None, {}))
    return load_checkpoint(path, task=task, parameters=parameters)


@cache
def _metrics(path: Path, probe: str) -> Mapping[str, Any]:
    return PROBES[probe]().run(_opened(path).subject()).metrics


def number(probe: str, metric: str, *keys: str) -> Callable[[Path], float]:
    """A metric of a probe, or an entry of one that is a mapping."""

    def read(path: Path) -> float:
        value = _metrics(path, probe)[metric]
        for key in keys:
            value = {str(name): item for name, item in value.items()}[key]
        return float(value)

    return read


def names(probe: str, metric: str) -> Callable[[Path], tuple[Any, ...]]:
    """A metric that is a list, sorted."""
    return lambda path: tuple(sorted(_metrics(path, probe)[metric]))


def loss(split: str) -> Callable[[Path], float]:
    """The mean loss on a split of the published training (nats), in float64."""

    def read(path: Path) -> float:
        subject = _opened(path).subject()
        assert subject.split is not None
        part = subject.with_data(subject.data[subject.split[split].to(subject.device)])
        return next(iter(part.loss().values()))

    return read


def _shares(file: str, shares: Mapping[int, float]) -> list[Figure]:
    return [
        Figure(
            file,
            f"share of the embedding at frequency {key}",
            share,
            number("fourier", "embedding.share", str(key)),
            0.006,
        )
        for key, share in shares.items()
    ]


def _keys(file: str, *keys: int) -> Figure:
    measure = names("fourier", "logits.key_frequencies")
    return Figure(file, "key frequencies of the logits", keys, measure)


GROUPS, PIZZA, PROGRESS = "rep-theory", "pizza", "progress-measures"
LOSS_CURVE = f"{PROGRESS}/wd_10-1_mod_addition_loss_curve.pth"
SYMMETRY = number("clock-pizza", "gradient_symmetricity")
IRRELEVANCE = number("clock-pizza", "distance_irrelevance")
WRONG = number("clock-pizza", "distance_irrelevance_wrong")

MLP_KEYS = (1, 4, 8, 11, 13, 16, 17, 22, 25, 32, 34, 44, 50)

FIGURES: tuple[Figure, ...] = (
    _keys(f"{GROUPS}/C113_T_seed1/model.pt", 16, 30, 56),
    *_shares(f"{GROUPS}/C113_T_seed1/model.pt", {16: 0.348, 30: 0.314, 56: 0.239}),
    _keys(f"{GROUPS}/C113_T_seed2/model.pt", 43, 49, 52, 53),
    _keys(f"{GROUPS}/C113_MLP_seed1/model.pt", *MLP_KEYS),
    Figure(
        f"{GROUPS}/S5_T_seed1/model.pt",
        "key representations",
        ("sign", "standard⊗sign"),
        names("irreps", "logits.key_irreps"),
    ),
    *_shares(f"{PIZZA}/model_q9rsl94xlv.pt", {12: 0.28, 4: 0.27, 21: 0.25, 19: 0.19}),
    Figure(
        f"{PIZZA}/model_q9rsl94xlv.pt",
        "gradient symmetricity",
        0.598,
        SYMMETRY,
        0.057,
        "theirs is a mean over 100 random triples; the tolerance is two of its standard errors",
    ),
    Figure(f"{PIZZA}/model_18c9ev5v5p.pt", "gradient symmetricity", 0.997, SYMMETRY, 0.01),
    Figure(
        f"{PIZZA}/model_18c9ev5v5p.pt",
        "distance irrelevance",
        0.181,
        WRONG,
        0.005,
        "on the largest wrong logit, as in the project's tables",
    ),
    _keys(f"{PIZZA}/model_p99zdpze5l.pt", 3, 15, 17),
    Figure(f"{PIZZA}/model_p99zdpze5l.pt", "gradient symmetricity", 0.9937, SYMMETRY, 0.01),
    Figure(f"{PIZZA}/model_p99zdpze5l.pt", "distance irrelevance", 0.1717, IRRELEVANCE, 0.005),
    Figure(f"{PIZZA}/model_l8k1hzciux.pt", "gradient symmetricity", 0.334, SYMMETRY, 0.02),
    Figure(f"{PIZZA}/model_l8k1hzciux.pt", "distance irrelevance", 0.848, IRRELEVANCE, 0.005),
    _keys(f"{PIZZA}/model_hpv2jgskwe.pt"),
    *_shares(LOSS_CURVE, {23: 0.24, 6: 0.17, 37: 0.15, 41: 0.14, 39: 0.13}),
    Figure(LOSS_CURVE, "train loss (nats)", 9.202e-9, loss("train"), 5e-12),
    Figure(LOSS_CURVE, "test loss (nats)", 4.988e-7, loss("test"), 5e-11),
    _keys("bare-progress-measures/baseline.pt", 14, 35, 41, 42, 52),
    _keys("rib/model_epoch_60000.pt", 1, 8, 15, 18, 56),
)
"""What is compared; every model of the folder of which a figure is published."""

COLUMNS = ("file", "quantity", "theirs", "ours", "tolerance", "agrees", "note")


def compare(folder: Path, figures: Sequence[Figure] = FIGURES) -> list[dict[str, Any]]:
    """One row per figure whose file is in `folder`: theirs, ours, whether they agree."""
    rows = []
    for figure in figures:
        path = folder / figure.file
        if not path.is_file():
            continue
        ours = figure.measure(path)
        rows.append(
            {
                "file": figure.file,
                "quantity": figure.quantity,
                "theirs": figure.theirs,
                "ours": ours,
                "tolerance": figure.tolerance,
                "agrees": figure.agrees(ours),
                "note": figure.note,
            }
        )
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a page."""
    agreed = sum(bool(row["agrees"]) for row in rows)
    lines = [
        "# Published models",
        "",
        "What the authors of models published, and what mechint's probes measure on their files,",
        "by `python -m mechint.calibration.published CHECKPOINTS --out docs`. Numbers agree within",
        f"the tolerance, sets where they are equal: {agreed} of {len(rows)}.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + " --- |" * len(COLUMNS),
    ]
    rows_text = ("| " + " | ".join(_cell(row[name]) for name in COLUMNS) + " |" for row in rows)
    return "\n".join([*lines, *rows_text]) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 where all figures agree, 1 where one does not."""
    parser = argparse.ArgumentParser(prog="python -m mechint.calibration.published")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    chosen = parser.parse_args(arguments)
    rows = compare(chosen.folder)
    write_text(chosen.out / "published.json", json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    write_text(chosen.out / "published.md", markdown(rows))
    return int(not rows or not all(row["agrees"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
