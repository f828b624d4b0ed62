"""The tour behind ``make demo``: addition mod 113 trained until it generalizes, analyzed, and
reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint import figures
from mechint.errors import NotApplicableError
from mechint.figures import Figure, Panel
from mechint.files import read_json_lines, write_text
from mechint.progress import Count
from mechint.registry import PROBES, TASKS

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.report import Section
    from mechint.results import ProbeResult
    from mechint.subject import Subject

TASK, PARAMETERS = (
    "modular-arithmetic",
    {"p": 113, "train_fraction": 0.4},
)  # at 0.3 it generalizes too, in nearly twice the steps
TRAIN = {
    "steps": 4000,
    "lr": 2e-3,
    "grokfast": "ema",
    "stop_accuracy": 0.999,
    "checkpoints": "linear",
    "n_checkpoints": 40,
}
STEPS = 40
"""Checkpoints of the figures over steps, at most."""
LEARNED = 0.99
"""Accuracy from which a set counts as learned."""


def settings_of(quick: bool) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Settings of the task, the model and the training; `quick`: those of the preset "fast"."""
    if not quick:
        return dict(PARAMETERS), {}, dict(TRAIN)
    parts: dict[str, dict[str, Any]] = {"task": {}, "model": {}, "train": {}}
    for name, value in TASKS[TASK].presets["fast"].items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    kept = {name: TRAIN[name] for name in ("checkpoints", "n_checkpoints")}
    return parts["task"], parts["model"], parts["train"] | kept


def train_demo(
    out: Path, progress: Callable[[Any], None] | None = None, *, quick: bool = False
) -> None:
    """Train the model of the tour under `out`; a finished run there is not trained again.

    Args:
        quick: a small modulus, in seconds; nothing groks there.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM stopped the training; the next call goes on with it.
    """
    from mechint.training import train

    parameters, model, settings = settings_of(quick)
    task = TASKS[TASK].from_dict(parameters)
    train(task, model, settings, seeds=(0,), out=out, resume=out.exists(), progress=progress)


def report_demo(
    out: Path, report: Path, progress: Count = lambda *_: None, *, quick: bool = False
) -> Account:
    """Run the probes of the tour on the run in `out` and write `report`; the account.

    Args:
        progress: called before each probe; quick: as for `train_demo`.
    """
    from mechint.account import account_of
    from mechint.checkpoints import load_checkpoint
    from mechint.probe import quick_probes
    from mechint.report import PAGE, page_of, write_page

    opened = load_checkpoint(out)
    subject = opened.subject()
    results = {}
    names = list(dict.fromkeys([*quick_probes(), "progress"]))
    for place, name in enumerate(names):
        progress(place, len(names), name)
        with contextlib.suppress(NotApplicableError):
            results[name] = PROBES[name].from_dict({}).run(subject, seed=0)
    next_commands = [f"mechint analyze {out} --over-steps", f"mechint analyze {out} --probe das"]
    account = account_of(subject, results, next_commands=next_commands)
    command = f"mechint demo{' --quick' if quick else ''} --report {report}"
    page = page_of(account, command=command)
    grokking = grokking_section(subject, read_json_lines(out / "metrics.jsonl"), results)
    if grokking is not None:
        page = dataclasses.replace(page, sections=[*page.sections, grokking])
    write_page(page, report)
    write_text(out / PAGE, json.dumps(page.to_dict()))
    return account


def grokking_section(
    subject: Subject,
    evaluations: Sequence[Mapping[str, Any]],
    results: Mapping[str, ProbeResult],
) -> Section | None:
    """Grokking as it happens: accuracy, loss, restricted and excluded loss, and the frequencies of
    the embedding on one axis of steps, with a slider; None where no checkpoints were kept.

    Args:
        subject: the last checkpoint; evaluations: of its run; results: of the probes on it.
    """
    from mechint.report import Section

    keys = results["progress"].metrics["key_frequencies"]
    if len(subject.series) < 2 or not keys:
        return None
    measures, shares = _over_steps(subject, keys)
    rows = list(evaluations)
    first = {name: _first(rows, f"{name}.accuracy", LEARNED) for name in ("train", "test")}
    return Section(
        "grokking",
        question="What happens between learning the training set and generalizing?",
        lead=_lead(rows, measures, first),
        figures={
            "dynamics": _dynamics(rows, measures, shares, first),
            "embedding": _frequencies(shares, results["fourier"]),
        },
    )


def _over_steps(
    subject: Subject, keys: Sequence[int]
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Progress measures with these key frequencies, and each frequency's share of the embedding's
    energy, at up to `STEPS` checkpoints.
    """
    from mechint.groups.spectrum import Harmonics

    assert subject.task is not None and subject.task.symmetry is not None
    symmetry = subject.task.symmetry
    probe = PROBES["progress"].from_dict({"keys": keys, "samples": 1, "permutations": 19})
    measures, shares = dict[str, list[Any]](), dict[str, list[Any]]()
    steps = np.array(sorted(subject.series))
    for step in steps[
        np.unique(np.linspace(0, len(steps) - 1, STEPS).round().astype(int))
    ].tolist():
        now = subject.at_step(step)
        numbers = probe.run(now, seed=0).metrics
        row = {name: value for name, value in numbers.items() if isinstance(value, float)}
        for name, value in {"step": step, **row}.items():
            measures.setdefault(name, []).append(value)
        rows = now.model.W_E.detach()[list(symmetry.tokens)].double().cpu().numpy()
        energies = Harmonics(symmetry.group).energies(rows)
        own = dict(enumerate((energies / energies.sum()).tolist(), 1))
        for name, value in {"step": step, **own}.items():
            shares.setdefault(str(name), []).append(value)
    return measures, shares


def _first(rows: Sequence[Mapping[str, Any]], column: str, level: float) -> int | None:
    """The step of the first evaluation at which `column` is `level` or more; None without one."""
    return next((row["step"] for row in rows if row[column] >= level), None)


def _lead(
    rows: Sequence[Mapping[str, Any]],
    measures: Mapping[str, Sequence[Any]],
    first: Mapping[str, int | None],
) -> str:
    """A sentence on when the two sets are learned and the key frequencies are there."""
    texts = [
        f"the {words} set is learned ({LEARNED:.0%}) by step {first[name]:,}"
        for name, words in (("train", "training"), ("test", "test"))
        if first[name] is not None
    ]
    if len(texts) < 2:
        return _sentence("; ".join([*texts, "the test set is not learned"]))
    final = measures["trigonometric_share"][-1]
    explained = [
        {"step": step, "share": share}
        for step, share in zip(measures["step"], measures["trigonometric_share"], strict=True)
    ]
    half = _first(explained, "share", final / 2)
    if half is None or not final > 0:
        return _sentence(", ".join(texts))
    before = [row["test.accuracy"] for row in rows if row["step"] <= half]
    return (
        f"{_sentence(', '.join(texts))} By step {half:,}, at a test accuracy of {before[-1]:.0%}, "
        "the key frequencies explain half of what they explain at the end "
        f"({final:.0%} of the logits' variance)."
    )


def _sentence(text: str) -> str:
    """The clauses as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def _dynamics(
    rows: Sequence[Mapping[str, Any]],
    measures: Mapping[str, Sequence[Any]],
    shares: Mapping[str, Sequence[Any]],
    first: Mapping[str, int | None],
) -> Figure:
    at = [row["step"] for row in rows]
    steps = measures["step"]

    def both(quantity: str) -> dict[str, Any]:
        return {name: (at, [row[f"{name}.{quantity}"] for row in rows]) for name in first}

    image = [values for name, values in shares.items() if name != "step"]
    losses = {
        "restricted loss": (steps, measures["restricted_loss.all"]),
        "excluded loss": (steps, measures["excluded_loss.train"]),
    }
    forming = {
        "key frequencies": (steps, measures["trigonometric_share"]),
        "Gini of the embedding": (steps, measures["embedding.gini"]),
    }
    panels = [
        Panel("accuracy (0–1)", both("accuracy"), y_range=(-0.03, 1.03)),
        Panel("loss (nats)", both("loss"), log=True),
        Panel(
            "restricted (all) and excluded (training) loss, nats",
            losses,
            log=True,
        ),
        Panel(
            "energy of the embedding's frequencies (share)",
            image=(shares["step"], list(range(1, len(image) + 1)), image),
        ),
        Panel("share of the logits' variance; Gini of the spectrum (0–1)", forming),
    ]
    names = {"train": "training set learned", "test": "test set learned"}
    made = figures.stacked(
        panels,
        x_title="step (optimizer steps)",
        title="Accuracy, losses and frequencies over training",
        caption="Restricted loss: of the key frequencies alone; excluded loss: of the logits "
        "without them. Where a model comes to compute with these frequencies, the former falls "
        "before the test loss does, and the latter rises. Bright rows: frequencies that the "
        "embedding keeps. Key frequencies are those of the last checkpoint; their curve is the "
        "share of the logits' variance that they explain.",
        marks={names[name]: step for name, step in first.items() if step is not None},
    )
    return figures.with_cursor(made, list(steps))


def _frequencies(shares: Mapping[str, Sequence[Any]], fourier: ProbeResult) -> Figure:
    """The spectrum of the embedding at each checkpoint, behind the slider."""
    frequencies = [int(name) for name in shares if name != "step"]
    keys = fourier.metrics.get("embedding.key_frequencies") or []
    return figures.stepped(
        {
            step: figures.bars(
                frequencies,
                {"share": [shares[str(k)][place] for k in frequencies]},
                title="Frequencies of the embedding",
                x_title="frequency (cycles over the group)",
                y_title="share of energy (0–1)",
                caption="Orange: key at the last checkpoint. The slider goes through the run.",
                highlight=keys,
            )
            for place, step in enumerate(shares["step"])
        }
    )
