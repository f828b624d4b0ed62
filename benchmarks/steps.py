"""Training steps: ours against TransformerLens's, and sixteen models at once against one by one.

Ours is `Ensemble.advance`: data, forward, loss, backward, optimizer. The peer's is the same model
in HookedTransformer with PyTorch's AdamW, data ready made; of remainders it takes one cross-entropy
over all classes where ours takes one a prime.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.peers.process import NONE
from benchmarks.timing import BenchSettings, Row, missing, paired, timer, versus
from benchmarks.workloads import ADDITION, IN_BF16, STEPS, Workload, listops

WARM_UP, MODELS = 12, 16
"""Steps before the timing, and models of the ensemble."""


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The rows of training steps."""
    for workload in STEPS:
        yield against_peer(bench, workload)
    if torch.cpu._is_avx512_bf16_supported():
        yield against_peer(bench, IN_BF16)
        yield against_float32(bench)
    else:
        yield missing(f"step, {IN_BF16.name}", None, IN_BF16.target, "no AVX512_BF16 here")
    yield against_one_by_one(bench)


def against_peer(bench: BenchSettings, workload: Workload) -> Row:
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
    return versus(name, measured, workload.target, against="TransformerLens 3.9 HookedTransformer")


def against_float32(bench: BenchSettings) -> Row:
    """A step of the same model in bfloat16 and in float32, both ours."""
    sides = [workload.ensemble() for workload in (IN_BF16, ADDITION)]
    for ensemble in sides:
        for _ in range(WARM_UP):
            ensemble.advance()
    turn = 1 if bench.quick else ADDITION.turn
    measured = paired(*(timer(one.advance, turn) for one in sides), bench.repeats(5))
    return versus("step, addition-113 in bf16", measured, 1.5, against="ours in float32")


def against_one_by_one(bench: BenchSettings) -> Row:
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
