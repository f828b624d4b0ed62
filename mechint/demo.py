"""The tour behind ``make demo``: addition mod 59 trained until it generalizes, analyzed, and
reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint import figures
from mechint.figures import Figure
from mechint.groups.spectrum import Harmonics
from mechint.registry import TASKS
from mechint.report import Section
from mechint.run_table import Runs, runs
from mechint.run_table.page import dynamics_figure
from mechint.system.progress import Count

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.subject import Subject

TASK, PARAMETERS = "modular-arithmetic", {"p": 59, "train_fraction": 0.6}
TRAIN = {
    "steps": 1500,
    "lr": 3e-3,
    "weight_decay": 2.0,
    "grokfast": "ema",
    "stop_accuracy": 0.999,
    "evaluate_every": 25,
    "checkpoints": "linear",
    "n_checkpoints": 60,
}
MEASURES = ("restricted_loss.all", "excluded_loss.train", "trigonometric_share", "embedding.gini")
"""Numbers of the probe progress that are drawn over the steps."""


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

    more: dict[str, Any] = {"out": out, "resume": out.exists(), "progress": progress}
    if quick:
        kept = {name: TRAIN[name] for name in ("checkpoints", "n_checkpoints")}
        train(TASK, None, kept, preset="fast", **more)
    else:
        train(TASKS[TASK].from_dict(PARAMETERS), None, TRAIN, **more)


def report_demo(
    out: Path, report: Path, progress: Count = lambda *_: None, *, quick: bool = False
) -> Account:
    """Run the probes of the tour on the run in `out` and write `report`; the account.

    Args:
        progress: called before each probe; quick: as for `train_demo`.
    """
    from mechint.account import account_of
    from mechint.checkpoints import load_checkpoint
    from mechint.probe import quick_probes, run_all
    from mechint.report import page_of, write_page

    subject = load_checkpoint(out).subject()
    names = list(dict.fromkeys([*quick_probes(), "progress"]))
    results, _ = run_all(subject, names, on_probe=progress)
    next_commands = [f"mechint table {out} --over-steps", f"mechint explain {out}"]
    account = account_of(subject, results, next_commands=next_commands)
    command = f"mechint demo{' --quick' if quick else ''} --report {report}"
    commands = {name: f"mechint analyze {out} --probe {name}" for name in results}
    page = page_of(account, command=command, commands=commands)
    if keys := results["progress"].metrics["key_frequencies"]:
        grokking = grokking_section(subject, runs(out).over_steps(), keys, progress)
        page = dataclasses.replace(page, sections=[*page.sections, grokking])
    write_page(page, report)
    return account


def grokking_section(subject: Subject, table: Runs, keys: Sequence[int], told: Count) -> Section:
    """Grokking as it happens: accuracy, loss, restricted and excluded loss on one axis of steps,
    and the frequencies of the embedding behind a slider.

    Args:
        subject: the last checkpoint; table: of all checkpoints of its run; keys: key frequencies.
    """
    table = table.probe("progress", keys=tuple(keys), samples=1, permutations=19)
    rows, columns = table.rows(told), [f"progress.{name}" for name in MEASURES]
    return Section(
        "grokking",
        question="What happens between learning the training set and generalizing?",
        figures={"dynamics": dynamics_figure(rows, columns), "embedding": spectra(subject, keys)},
    )


def spectra(subject: Subject, keys: Sequence[int]) -> Figure:
    """Each frequency's share of the embedding's energy at every checkpoint, behind a slider."""
    assert subject.task is not None and subject.task.symmetry is not None
    symmetry, shown = subject.task.symmetry, dict[float, Figure]()
    for step in subject.series:
        rows = subject.at_step(step).model.W_E.detach()[list(symmetry.tokens)]
        energies = Harmonics(symmetry.group).energies(rows.double().cpu().numpy())
        shown[step] = figures.bars(
            list(range(1, len(energies) + 1)),
            {"share": (energies / energies.sum()).tolist()},
            title="Frequencies of the embedding",
            x_title="frequency (cycles over the group)",
            y_title="share of energy (0–1)",
            caption="Orange: key at the last checkpoint. The slider goes through the run.",
            highlight=list(keys),
        )
    return figures.stepped(shown)
