"""Fourier analysis on any finite group: which irreducible representations a model's weights and
logits hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import FiniteTask, rng
from probes import removal
from probes._fourier.cosines import also_unseen
from probes._fourier.spectra import Array, Spectrum
from probes._irreps import reporting
from probes._irreps.grouped import Grouped, group_answers, why_no_group
from probes._irreps.reporting import IrrepRises
from probes._irreps.spectrum import IrrepRule, IrrepSpectra
from probes.operands import by_example, operand_rows, operand_tokens

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Irreps(Probe):
    """In which irreducible representations of the group do embedding, hidden layer, unembedding and
    logits live?

    The group comes from its multiplication table: the task's, or the model's own answers (arg-max
    over the grid) where they are an exact group table; then no order of the elements is needed.
    With ρ a real irreducible representation, χ its character and n the order of the group:

    - `embedding.share`, `unembedding.share`: share of the energy of the rows of W_E (of the second
      operand too, `embedding.right.share`, where it has an embedding of its own) and of the columns
      of W_out W_U of the last layer, from neurons to logits, in the matrix elements of ρ, not
      centered, as in the published code: the trivial representation has a share.
      `unembedding.direct.share` is that of W_U alone;
    - `hidden.left|right|product.share`: of the centered ``mlp.hook_post`` of the last layer at the
      answer's position, the share that is a function of x, of y, or of x·y alone, in ρ;
    - `logits.cosine`: cosine of the logits, centered over classes and over inputs, with χ(x·y·z⁻¹)
      over all x, y, z; for a task on the group's elements that is not its product (x − y, x² + y²)
      the task's answer stands for x·y;
    - `embedding.removal`: rise of the loss in nats when ρ is projected out of the embedding, for
      every ρ that is key in embedding or logits, or whose cosine exceeds `cosine` where that leaves
      more than half of all directions unnamed (at most `named` of them), on at most `examples`
      random pairs; `embedding.removal_unnamed`: of all others together; `embedding.removal_named`:
      of all those together, which is held against as many random directions among the others, for
      the null on at most `removal_examples` pairs. A weak cosine is not a sign that a
      representation is not needed.
      `unembedding.removal`: the same out of the columns of W_U.

    ρ is key when its cosine exceeds `cosine` (0.005 in Chughtai et al.), what the classes in
    random order, with or without the answers, reach at any ρ, and what the largest of cosines of
    noise would reach whose lower quartile is theirs, each relative to a memorized table's,
    √(rows/(n − 1)) (as in `fourier`): a lookup table has all alike and no key. `logits.threshold`
    is the largest of the three for each ρ. With the task's table a key has to be key on pairs not
    trained on, too, as in `fourier`. In the embedding ρ is key when its share exceeds `factor`
    times rows/(n − 1) and the permuted null.

    Cost: one forward over the data (two where the model's own table serves), one over the examples
    per removal, n² per permutation; memory: a chunk of activations and (n, n) sums.
    """

    name: ClassVar[str] = "irreps"
    source: ClassVar[str] = "Chughtai et al. 2023, A Toy Model of Universality, Sec. 4–5 and App. B"
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    intervenes: ClassVar[bool] = True

    table: str = setting(
        "auto",
        (
            "multiplication table: the task's, the model's own answers, or the model's where the "
            "task's does not fit"
        ),
        choices=("auto", "task", "model"),
    )
    cosine: float = setting(
        0.005, "least cosine of the logits with a key representation's character", low=0, high=1
    )
    factor: float = setting(2.0, "times the level of a flat spectrum", low=1)
    alpha: float = setting(0.002, "family-wise level against the permuted null", low=1e-6, high=1)
    permutations: int = setting(499, "permutations of the elements in the null", low=1)
    named: int = setting(16, "most representations that are removed one at a time", low=0)
    examples: int = setting(16384, "pairs on which the loss of a removal is taken", low=1)
    removal_samples: int = setting(
        99, "random directions removed in the null of the removals, tested at p ≤ 0.01", low=1
    )
    removal_examples: int = setting(
        512, "pairs on which removals are held against random ones", low=1
    )
    least_rise: float = setting(
        1e-3,
        "rise of the loss, in nats, above which the finding says that a removal matters",
        low=0,
    )

    def unmet(self, subject: Subject) -> str | None:
        assert isinstance(subject.task, FiniteTask)
        outputs = subject.task.outputs
        if len(outputs) != 1 or subject.task.grid != (outputs[0].n_classes,) * 2:
            return (
                "it is not a product of two elements: the answer's classes are not the operands' "
                "values"
            )
        return why_no_group(subject, self.table)

    @property
    def significance(self) -> float:
        return self.alpha

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library, trained
        from mechint.planted.calibration import Calibration, Trial

        product = Trial(
            "group product",
            library.product,
            library.untrained(library.product)
            | library.lookup("groups", group="S4")
            | library.shuffled("groups", group="S4")
            | {"sums mod 13 by heart": trained.sums_mod_13_by_heart},
            library.misses(
                lambda result: result.metrics["logits.key_irreps"],
                lambda plant: plant.truth["irreps"],
            ),
            "representations missed or made up",
            settings={"permutations": 499, "removal_samples": 9},
            detects=lambda result: bool(result.metrics["logits.key_irreps"]),
        )
        return Calibration((product,), {"permutations": 49})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        found = group_answers(subject, self.table)
        rule = IrrepRule(self.cosine, self.factor, self.alpha, self.permutations)
        spectra = IrrepSpectra(found.group, rule)
        logits = self._logits(found, spectra, seed)
        left, right = operand_rows(subject)
        embedding = spectra.shares(left.cpu().numpy(), seed)
        report = Report(self, subject)
        answered = by_example(subject, torch.from_numpy(found.answers).to(subject.device))
        report.correct = answered[:, None] == subject.targets
        reporting.add_logits(report, found, spectra, logits)
        reporting.add_embedding(report, spectra, embedding, left, right)
        reporting.add_unembedding(report, subject, found.group)
        reporting.add_hidden(report, found)
        rises = self._removals(subject, found, spectra, logits, embedding, seed)
        if rises is not None:
            reporting.add_removals(report, rises, self.least_rise)
        reporting.add_table_and_figures(report, found.group)
        return report.result()

    def _logits(self, found: Grouped, spectra: IrrepSpectra, seed: int) -> Spectrum:
        """The logits' spectrum, whose keys are key on pairs that the model cannot have by heart,
        too.
        """
        over_all = spectra.logits(found.sums, found.squares, seed)
        if found.unseen is None:
            return over_all
        where, sums = found.unseen
        unseen = spectra.logits(sums.centered, sums.squares, seed)
        return also_unseen(over_all, replace(unseen, where=where))

    def _removals(
        self,
        subject: Subject,
        found: Grouped,
        spectra: IrrepSpectra,
        logits: Spectrum,
        embedding: Spectrum,
        seed: int,
    ) -> IrrepRises | None:
        """What the loss rises by without each named representation in embedding or unembedding."""
        some = subject.with_data(subject.data[self._sample(subject, seed)])
        edited = removal.EmbeddingRemoval.of(some, *operand_tokens(subject))
        if edited is None:
            return None
        targets = self._targets(subject, found, seed)
        weak = set((np.flatnonzero(logits.values > self.cosine) + 1).tolist())
        sure = {*logits.keys, *embedding.keys}
        if 2 * len(spectra.rows(sorted(sure | weak))) >= found.group.order - 1:
            weak = set()  # as many directions have to be left to compare with
        keys = sorted(sure | weak, key=lambda k: -abs(logits.values[k - 1]))[: self.named]
        others = [k for k in range(1, len(logits.values) + 1) if k not in keys]
        base = removal.mean_loss(some, some.logits(), targets)
        columns = range(found.group.order)

        def without(some_keys: list[int]) -> float:
            return edited.loss(spectra.rows(some_keys), targets) - base if some_keys else 0.0

        def without_classes(k: int) -> float:
            directions = spectra.rows([k])
            return removal.loss_without_classes(some, directions, columns, targets) - base

        names = spectra.names
        return IrrepRises(
            loss=base,
            examples=len(some.data),
            embedding={names[k - 1]: without([k]) for k in keys},
            named=without(keys),
            unnamed=without(others),
            unembedding={names[k - 1]: without_classes(k) for k in keys},
            named_test=self._test(edited, spectra, keys, others, targets, seed),
        )

    def _test(
        self,
        edited: removal.EmbeddingRemoval,
        spectra: IrrepSpectra,
        keys: list[int],
        others: list[int],
        targets: torch.Tensor,
        seed: int,
    ) -> tuple[float, Array] | None:
        """The rise without all named representations together, and (sample,) without as many
        random directions of the others, on `removal_examples` of the sampled pairs; None where the
        others have no more directions than the named.
        """
        if not keys or not others:
            return None
        count = len(targets)
        drawn = rng("irreps removal examples", seed).permutation(count)[: self.removal_examples]
        few = torch.from_numpy(np.sort(drawn)).to(targets.device)
        some, targets = edited.subject.with_data(edited.subject.data[few]), targets[few]
        edited = removal.EmbeddingRemoval(some, edited.operands)
        base = removal.mean_loss(some, some.logits(), targets)
        directions, draw = spectra.rows(keys), rng("irreps removal null", seed)
        rest = spectra.rows(others)
        if len(directions) >= len(rest):
            return None
        null = removal.null_rises(
            edited, rest, len(directions), self.removal_samples, draw, targets
        )
        return edited.loss(directions, targets) - base, null - base

    def _sample(self, subject: Subject, seed: int) -> torch.Tensor:
        n = len(subject.data)
        drawn = rng("irreps examples", seed).permutation(n)[: self.examples]
        return torch.from_numpy(np.sort(drawn)).to(subject.device)

    def _targets(self, subject: Subject, found: Grouped, seed: int) -> torch.Tensor:
        """(example, 1) the answers by the table that was found, of the sampled pairs."""
        products = by_example(subject, torch.from_numpy(found.products).to(subject.device))
        return products[self._sample(subject, seed), None]
