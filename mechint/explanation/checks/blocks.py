"""Tests of blocks, such as one frequency: the change it is predicted to make, and its need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from mechint.decide import Evidence, Null
from mechint.explanation.checks.parts import Exchange, exchange_rest, exchanging
from mechint.explanation.explanation import Explanation
from mechint.explanation.measure import Bench, Columns, Fit, partial, squares
from mechint.explanation.records import PARTIAL, Test, judge_block, judge_r2


def blocks(
    bench: Bench, explanation: Explanation, reads: Fit, fits: Sequence[Fit]
) -> Iterator[Test]:
    """Each block alone, of the part that reads the logits and of the inputs.

    A block at the answer that the inputs have, too, is exchanged there, and the change of the
    logits held to what the program predicts; every block at the answer, and every one that the
    inputs alone have, is asked whether it is needed.
    """
    entering = [one for one in fits if not one.part.reads and one.part.blocks]
    names = list(reads.part.blocks)
    end = BlockGroup(bench, explanation, (reads,), exchange_rest(bench))
    for name in names if len(names) > 1 else ():
        if first := [one for one in entering if name in one.part.blocks]:
            found = partial(bench, reads, first, name)
            yield judge_r2("partial", name, (str(reads.part),), found, bound=PARTIAL)
        yield end.need(name)
    added = [name for name in dict.fromkeys(n for one in entering for n in one.part.blocks)]
    if len(added) > 1 and (alone := [name for name in added if name not in names]):
        held = [
            name for name in explanation.inputs if any(name in f.part.variables for f in entering)
        ]
        start = BlockGroup(bench, explanation, tuple(entering), exchanging(bench, held))
        for name in alone:
            yield start.need(name)


@dataclass(frozen=True, eq=False)
class BlockGroup:
    """Parts whose blocks of one name are exchanged together, and how answers are lost without."""

    bench: Bench
    explanation: Explanation
    fits: tuple[Fit, ...]
    exchange: Exchange
    spares: dict[tuple[int, ...], list[Float[np.ndarray, " input"]]] = field(
        default_factory=dict[tuple[int, ...], list[Float[np.ndarray, " input"]]]
    )
    """Width of a block in each part → the effects of its spare ones."""

    def need(self, name: str) -> Test:
        """The need of one block."""
        size = self.effect(self.fits, [one.part.blocks.get(name) for one in self.fits])
        cuts = [one.part.blocks.get(name, slice(0, 0)) for one in self.fits]
        widths = tuple(cut.stop - cut.start for cut in cuts)
        if widths not in self.spares:
            self.spares[widths] = list(self.spare(name))
        beside = None
        if spare := self.spares[widths]:
            largest = max(spare, key=lambda one: float(one.sum()))
            sizes = [float(one.mean()) for one in spare]
            null = Null.sampled("effect", float(size.mean()), sizes, "spare blocks")
            beside = Evidence.ratio(size, largest), null
        whole, without = (self.right([one.without(cut) for one in self.fits]) for cut in ("", name))
        lost = Evidence.ratio(whole - without)
        claims = tuple(str(one.part) for one in self.fits)
        return judge_block(name, claims, lost, beside)

    def effect(
        self, fits: Sequence[Fit], columns: Sequence[Columns | None]
    ) -> Float[np.ndarray, " input"]:
        """(input,) squared change of the logits when these columns are exchanged."""
        own, other = self.bench.exchanged
        pairs = zip(fits, columns, strict=True)
        edits = [self.bench.edit(fit, own, other, cut) for fit, cut in pairs if cut is not None]
        return squares(self.bench.change(edits))

    def spare(self, name: str) -> Iterator[Float[np.ndarray, " input"]]:
        """The effects of blocks that the explanation does not have, of the same dimension."""
        if self.explanation.spare_blocks is None:
            return
        each = [self.explanation.spare_blocks(one.part, name) for one in self.fits]
        for features in zip(*each, strict=True):
            pairs = zip(self.fits, features, strict=True)
            made = [self.bench.fit_features(fit.part, phi) for fit, phi in pairs]
            yield self.effect(made, [slice(None)] * len(made))

    def right(self, columns: Sequence[Columns]) -> Float[np.ndarray, " input"]:
        """(input,) 1 where the answer comes with these columns exchanged, else 0."""
        old, new = self.exchange.old, self.exchange.new
        pairs = zip(self.fits, columns, strict=True)
        edits = [self.bench.edit(fit, old, new, cut) for fit, cut in pairs]
        return self.exchange.right(self.bench, edits).double().numpy()
