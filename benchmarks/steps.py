"""Training steps: ours against TransformerLens's, sixteen models at once against one by one, and
against the hardware.

Ours is `Ensemble.advance`: data, forward, loss, backward, optimizer. The peer's is the same model
in HookedTransformer with PyTorch's AdamW, data ready made; of remainders it takes one cross-entropy
over all classes where ours takes one a prime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.arithmetic import flops
from benchmarks.peers.process import NONE
from benchmarks.profile import where
from benchmarks.timing import Bench, Row, missing, paired, timer, versus
from benchmarks.workloads import ADDITION, STEPS, Workload, listops
from mechint.models.products import has_onednn, product
from mechint.training.learners import TokenLearner

WARM_UP, MODELS, SQUARE = 12, 16, 2048
"""Steps before the timing (the allocator has then seen what a step needs), models of the ensemble,
and the side of the matrices.
"""


def rows(bench: Bench) -> Iterator[Row]:
    """The rows of training steps."""
    for workload in STEPS:
        yield against_peer(bench, workload)
    yield against_one_by_one(bench)
    yield from against_hardware(bench)


def against_peer(bench: Bench, workload: Workload) -> Row:
    """One step of ours and of the peer; each turn is `workload.turn` steps long."""
    name, ensemble = f"step, {workload.name}", workload.ensemble()
    turn = 1 if bench.quick else workload.turn
    for _ in range(WARM_UP):
        ensemble.advance()
    ours = timer(ensemble.advance, turn)
    repeats = bench.repeats(5)
    peer = bench.peer
    if peer is None:
        return missing(name, paired(ours, lambda: 1.0, repeats)[0], workload.target, NONE)
    peer.ask(build=workload.name, shape=workload.peer_shape())
    measured = paired(
        ours, lambda: peer.ask(run=workload.name, steps=turn)["seconds"] / turn, repeats
    )
    peer.ask(drop=workload.name)
    row = versus(name, measured, workload.target, against="TransformerLens 3.9 HookedTransformer")
    return row if row["met"] else {**row, "note": where(ensemble.advance)}


def against_one_by_one(bench: Bench) -> Row:
    """A step of sixteen models of 24×2, seeds and data of their own, as one ensemble and one after
    another.
    """
    workload = listops(24, 2, 1.5)
    together, alone = (
        workload.ensemble(range(MODELS)),
        [workload.ensemble([seed]) for seed in range(MODELS)],
    )
    for ensemble in (together, *alone):
        ensemble.advance()
    turn = 1 if bench.quick else workload.turn
    measured = paired(
        timer(together.advance, turn),
        lambda: sum(timer(one.advance, turn)() for one in alone),
        bench.repeats(3),
    )
    return versus(
        f"step, {MODELS} models of {workload.name} as an ensemble",
        measured,
        workload.target,
        against="one by one",
    )


def multiplications() -> dict[str, Callable[[], float]]:
    """Seconds of the product of two large float32 matrices, by each library that PyTorch has."""
    a, b = torch.randn(2, SQUARE, SQUARE, generator=torch.Generator().manual_seed(0))
    timed = {"torch.mm": timer(lambda: torch.mm(a, b), 2)}
    if has_onednn():
        timed["oneDNN"] = timer(lambda: product(a, b), 2)
    for multiply in timed.values():
        multiply()
    return timed


def against_hardware(bench: Bench) -> Iterator[Row]:
    """The addition step's matrix products as a share of what this machine multiplies in float32: by
    `torch.mm`, against which the target was set, and by oneDNN, which serves the step where it is
    faster.
    """
    ensemble = ADDITION.ensemble()
    assert isinstance(ensemble.learner, TokenLearner)
    layout = ensemble.learner.prepare([next(stream) for stream in ensemble.streams]).layout
    useful = flops(ensemble.learner.configs[0], layout)
    for _ in range(WARM_UP):
        ensemble.advance()
    for library, multiply in multiplications().items():
        step, best, share = paired(
            timer(ensemble.advance, ADDITION.turn),
            lambda multiply=multiply: multiply() * useful / (2 * SQUARE**3),
            bench.repeats(7),
        )
        rates = {"gflops": useful / step / 1e9, "machine_gflops": useful / best / 1e9}
        note = (
            f"{useful / 1e9:.2f} GFLOP a step at {rates['gflops']:.0f} GFLOP/s; a product of two "
            f"{SQUARE}² matrices by {library} runs at {rates['machine_gflops']:.0f}"
        )
        row = versus(
            f"useful arithmetic of the addition-113 step, by {library}'s rate",
            (step, best, share),
            0.6,
            against=f"{library}'s rate",
            note=note,
            **rates,
        )
        yield row if row["met"] else {**row, "note": f"{note}; {where(ensemble.advance)}"}
