"""Models trained and probed per minute: ours as one ensemble in one process, and as the sweep that
a user starts, against the same loop over HookedTransformer, one model after another.

Both train addition modulo `P` on the same pairs, full batch, and then measure every model: ours by
the probes `fourier` and `progress`, with all their nulls; the peer by what those come down to
without nulls (the spectra of embedding and logits, and the loss without and of five frequencies
alone), which is less work. The sweep is the command, from its start to its table: processes,
imports, checkpoints and files are in its time, and none of that in the peer's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.commands import python
from benchmarks.peers.process import NONE
from benchmarks.timing import BenchSettings, Row, Seconds, missing, seconds, versus
from mechint.config import ModelConfig
from mechint.registry import PROBES, TASKS
from mechint.training import spec, train

P, MODELS, STEPS, TARGET = 29, 16, 800, 3.5
"""`STEPS` are those after which the preset `fast` stops, its test accuracy reached."""
SWEPT = 64
"""Models of the sweep: two ensembles a core."""
TRAIN = {"optimizer": "adamw", "lr": 1e-3, "checkpoints": None, "grokfast": None}
MODEL = {"d_model": 64}
PROBED = ("fourier", "progress")
FRACTION = 0.7


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The rows of one process and of a sweep."""
    models, swept, steps = (2, 2, 5) if bench.quick else (MODELS, SWEPT, STEPS)
    what = f"addition-{P}, {steps} steps and {' and '.join(PROBED)}"
    yield _row(
        f"{what}, {models} models",
        bench,
        steps,
        lambda: seconds(lambda: trained_and_probed(models, steps)) / models,
    )
    command = sweep_command(swept, steps, bench.threads, bench.folder / "swept")
    yield _row(
        f"mechint sweep, {what}, {swept} models", bench, steps, lambda: python(*command) / swept
    )


def _row(name: str, bench: BenchSettings, steps: int, ours: Seconds) -> Row:
    """Models a minute, from our seconds a model and the peer's."""
    if bench.peer is None:
        return missing(name, 60 / ours(), TARGET, NONE) | {"unit": "models/min"}
    peer = bench.peer
    request = {"session": {"shape": peer_shape(), "p": P, "fraction": FRACTION}}
    request |= {"models": 1, "steps": steps}

    def one() -> float:
        return peer.ask(**request)["seconds"]

    # one model before ours and one after: a machine's speed changes within minutes
    before, mine, after = one(), ours(), one()
    theirs = (before + after) / 2
    rates = (60 / mine, 60 / theirs, theirs / mine)
    return versus(name, rates, TARGET, unit="models/min", against="TransformerLens 3.9, one by one")


def sweep_command(models: int, steps: int, workers: int, out: Path) -> list[str]:
    """Arguments of Python to sweep over so many seeds into `out` and probe every run."""
    settings = {"p": P, "train_fraction": FRACTION, **MODEL, **TRAIN, "steps": steps}
    texts = [f"{name}={'none' if value is None else value}" for name, value in settings.items()]
    return [
        *("-m", "mechint", "sweep", "modular-arithmetic"),
        *(argument for text in texts for argument in ("--set", text)),
        *("--over", f"seed=0:{models}", "--probe", ",".join(PROBED)),
        *("--workers", str(workers), "--out", str(out)),
    ]


def trained_and_probed(models: int, steps: int) -> list[dict[str, object]]:
    """The metrics of every probe on every model."""
    task = TASKS["modular-arithmetic"].from_dict({"p": P, "train_fraction": FRACTION})
    runs = train(task, MODEL, {**TRAIN, "steps": steps}, seeds=range(models))
    return [
        dict(PROBES[name]().run(run.subject(), seed=0).metrics) for run in runs for name in PROBED
    ]


def peer_shape() -> dict[str, object]:
    """The model as HookedTransformerConfig takes it."""
    task = TASKS["modular-arithmetic"].from_dict({"p": P, "train_fraction": FRACTION})
    config = spec(task, MODEL, TRAIN).model
    assert isinstance(config, ModelConfig)
    names = ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab", "d_vocab_out")
    more = ("n_ctx", "act_fn", "normalization_type")
    return {name: getattr(config, name) for name in (*names, *more)}
