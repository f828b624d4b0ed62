"""The table of which probe serves which kind of model, from real runs: writes
``docs/generated/models.md``.

python -m tests.conformance.models_table
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tasks
from mechint import planted
from mechint.errors import MechintError, NotApplicableError
from mechint.registry import PROBES
from mechint.subject import Subject
from mechint.system.progress import Count, counting
from tests.conformance.test_models import P, made

PAGE = Path(__file__).parents[2] / "docs" / "generated" / "models.md"

COLUMNS = {
    "HookedTransformer": "transformer",
    "attention only": "attention-only, bidirectional",
    "pair network": "pair network",
    "linear bottleneck": "linear bottleneck",
    "two-layer student": "two layers",
    "GPT-2 (bridge)": "gpt2",
    "Llama (bridge)": "llama",
    "GPT-NeoX (bridge)": "gpt_neox",
    "OLMo (bridge)": "olmo",
    "TransformerLens 4": "native bridge",
    "wrapped module": "wrapped module",
}
"""Heading → the kind of model in the conformance suite."""

ANY_PAIR = {"only_correct": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "das": ANY_PAIR,
    "patching": ANY_PAIR,
    "norms": {"null_models": 19, "null_examples": 8},
}
"""Settings that let a probe run on random weights, which answer nothing right, and in a moment."""


def subject_of(kind: str) -> Subject:
    """A model of `kind` on a task that it can be given."""
    if kind == "linear bottleneck":
        return planted.bottleneck(width=3, n=6, n_tasks=2, rank=2).subject
    if kind == "two layers":
        return Subject(made(kind), tasks.make("single-index", d=6, n_directions=2), n_examples=32)
    return Subject(made(kind), tasks.make("modular-arithmetic", p=P))


def outcome(probe: str, subject: Subject) -> str | None:
    """None where the probe runs to its end, else why it does not."""
    cls = PROBES[probe]
    settings = {**cls.calibration().test_settings, **SETTINGS.get(probe, {})}
    try:
        cls.from_dict(settings).run(subject)
    except NotApplicableError as error:
        return str(error).partition(f"{subject.describe()}: ")[2]
    return None


def page(progress: Count = lambda *_: None) -> str:
    """The text of ``docs/generated/models.md``."""
    rows: dict[str, list[str]] = {name: [] for name in PROBES.names()}
    reasons: dict[str, list[str]] = {name: [] for name in rows}
    for place, (heading, kind) in enumerate(COLUMNS.items()):
        progress(place, len(COLUMNS), heading)
        subject = subject_of(kind)
        for name in rows:
            try:
                reason = outcome(name, subject)
            except MechintError as error:
                raise AssertionError(f"{name} on {heading}: {error}") from error
            rows[name].append("yes" if reason is None else "–")
            if reason is not None:
                reasons[name].append(f"{heading}: {reason}")
    served = sum(cells[0] == "yes" for cells in rows.values())
    everywhere = sum({*cells} == {"yes"} for cells in rows.values())
    lines = [
        "# Which probe serves which model",
        "",
        f"{served} of {len(rows)} probes serve a HookedTransformer that adds, {everywhere} serve "
        "every kind of model.",
        "",
        "Made by `python -m tests.conformance.models_table`, which runs every probe on every kind "
        "of model; the",
        "task is addition modulo 7, for the two students a regression of theirs. "
        "Where a probe does not serve a model,",
        "its reason stands below, as `mechint analyze` prints it. Any other `nn.Module` joins "
        "through `mechint.wrap`.",
        "Directories of GPT-2, Llama, Mistral, Qwen and SmolLM open as a HookedTransformer and are "
        "served as the first",
        "column says; through the bridge with `--set model.bridge=true`, as all other language "
        "models are.",
        "",
        f"| probe | {' | '.join(COLUMNS)} |",
        f"| --- {'| --- ' * len(COLUMNS)}|",
        *(f"| `{name}` | {' | '.join(cells)} |" for name, cells in rows.items()),
        "",
        "## Where a probe does not serve a model",
        "",
    ]
    for name, found in reasons.items():
        grouped: dict[str, list[str]] = {}
        for text in found:
            heading, _, reason = text.partition(": ")
            grouped.setdefault(reason, []).append(heading)
        lines += [
            f"- `{name}`: {reason} ({', '.join(headings)})" for reason, headings in grouped.items()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with counting("running every probe") as update:
        PAGE.write_text(page(update), encoding="utf-8")
