"""The probe irreps: which representations of a group a model computes with, and needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from mechint.groups.spectrum import Harmonics
from mechint.probe import Need, Probe, Report
from mechint.probe.results import ProbeResult
from mechint.probes import removal, spectra
from mechint.probes._spectrum_findings import add_embedding_finding, add_logits_finding
from mechint.probes.operands import by_element, operand_rows, operand_tokens
from mechint.probes.removal import EmbeddingRemoval, Removals
from mechint.probes.spectra import KeyRule, Spectrum
from mechint.probes.words import named
from mechint.subject import Subject
from mechint.task import FiniteTask, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Irreps(Probe):
    """In which irreducible representations of the group do embedding, hidden layer and logits live?

    With U_ρ the matrix elements of a real irreducible representation ρ and χ_ρ its character, for
    embedding rows E and logits L(x, y; z):

        share_E(ρ) = ‖U_ρ E‖² / ‖E‖²         cos_L(ρ) = cos(L, χ_ρ(x·y·z⁻¹))

    Frequencies of cyclic groups are the probe fourier's.
    """

    name: ClassVar[str] = "irreps"
    topic: ClassVar[str] = "arithmetic and groups"
    source: ClassVar[str] = "Chughtai et al. 2023, A Toy Model of Universality, Sec. 4–5 and App. B"
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    intervenes: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 80

    cosine: float = setting(
        0.005, "least cosine of the logits with a key representation's character", low=0, high=1
    )
    factor: float = setting(2.0, "times its share of a flat spectrum that a key exceeds", low=1)
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
        1e-3, "rise of the loss, in nats, above which a removal matters", low=0
    )

    def unmet(self, subject: Subject) -> str | None:
        task = subject.task
        assert isinstance(task, FiniteTask)
        group = task.outputs[0].group
        if group is None:
            return "its task has no group"
        if group.is_cyclic:
            return "its group is cyclic: see fourier"
        if len(task.outputs) != 1 or task.grid != (task.outputs[0].n_classes,) * 2:
            return "the answer's classes are not the values of two operands"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        product = Trial(
            "group product",
            library.product,
            library.untrained(library.product)
            | library.lookup("groups", group="S4")
            | library.shuffled("groups", group="S4"),
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
        assert subject.task is not None and subject.task.outputs[0].group is not None
        group = subject.task.outputs[0].group
        harmonics = Harmonics(group)
        rule = KeyRule(self.factor, self.cosine, self.alpha, self.permutations)
        rest, products = spectra.unmemorized(subject, 0), subject.targets[:, 0]
        columns = range(group.order)
        logits = spectra.logit_spectrum(subject, harmonics, products, columns, rule, seed, rest)
        left, right = operand_rows(subject)
        embedding = spectra.share_spectrum(harmonics, left.cpu().numpy(), rule, seed)
        report = Report(self, subject)
        self._add_logits(report, logits)
        self._add_embedding(report, harmonics, embedding, left, right)
        self._add_weights(report, group)
        self._add_hidden(report, group)
        self._remove(report, harmonics, logits, embedding, seed)
        self._draw(report, group, logits)
        return report.result()

    # --- what is where --------------------------------------------------------------------------
    def _add_logits(self, report: Report, logits: Spectrum) -> None:
        """Cosines with the characters, and the finding on key representations."""
        report.metric("representations", " ".join(map(str, logits.strongest)) or "none")
        report.metric("logits.key_irreps", logits.keys)
        report.metric("logits.cosine", logits.by_label)
        thresholds = dict(zip(logits.labels, logits.thresholds.tolist(), strict=True))
        report.metric("logits.threshold", thresholds)
        report.metric("logits.explained", logits.explained)
        add_logits_finding(report, logits, "representation", logits.strongest)

    def _add_embedding(
        self,
        report: Report,
        harmonics: Harmonics,
        found: Spectrum,
        left: Float[Tensor, "element d"],
        right: Float[Tensor, "element d"] | None,
    ) -> None:
        """Shares of the operands' embeddings in each representation, not centered, as in the
        published code; the finding is on what varies.
        """
        how = "the largest share relative to a flat spectrum, with permuted tokens"
        report.metric("embedding.key_irreps", found.keys)
        report.metric("embedding.share", shares(harmonics.group, left.cpu().numpy()))
        if right is not None:
            report.metric("embedding.right.share", shares(harmonics.group, right.cpu().numpy()))
        null = found.test("embedding.largest_excess", how)
        report.metric(null.metric, null.observed, null=null)
        whose = "embedding" if right is None else "first operand's embedding"
        add_embedding_finding(report, found, harmonics, "representation", whose, null.metric)

    def _add_weights(self, report: Report, group: FiniteGroup) -> None:
        """Shares of the map from neurons to logits, and of W_U; without an MLP both are W_U's."""
        model = report.subject.model
        if getattr(model, "W_U", None) is None:
            return
        direct = model.W_U.detach().double()[:, : group.order]
        weights = reversed(list(model.named_parameters()))
        written = next((value for name, value in weights if name.endswith("mlp.W_out")), None)
        whole = direct if written is None else written.detach().double() @ direct
        report.metric("unembedding.share", shares(group, whole.cpu().numpy().T))
        report.metric("unembedding.direct.share", shares(group, direct.cpu().numpy().T))

    def _add_hidden(self, report: Report, group: FiniteGroup) -> None:
        """Shares of the last hidden layer's energy, the constant left out, that are functions of x,
        of y and of x·y alone, by representation.
        """
        subject, n = report.subject, group.order
        hook = f"blocks.{subject.n_layers - 1}.mlp.hook_post"
        if hook not in subject.model.hook_dict:
            return
        values = by_element(subject, subject.activation(hook, at="answer")).double()
        values = values - values.mean((0, 1))  # (x, y, neuron)
        total = max(float(values.square().sum()), 1e-24)
        means = {"left": values.mean(1), "right": values.mean(0)}
        product = by_element(subject, subject.targets[:, 0]).flatten()
        if bool((torch.bincount(product, minlength=n) == n).all()):
            by_product = torch.zeros_like(means["left"])
            means["product"] = by_product.index_add_(0, product, values.flatten(0, 1)) / n
        for name, mean in means.items():
            energy = n * float(mean.square().sum()) / total
            own = shares(group, mean.cpu().numpy())
            report.metric(f"hidden.{name}.share", {k: share * energy for k, share in own.items()})

    # --- what is needed -------------------------------------------------------------------------
    def _remove(
        self, report: Report, harmonics: Harmonics, logits: Spectrum, embedding: Spectrum, seed: int
    ) -> None:
        """The loss without each representation whose cosine or share stands out, and without the
        key ones together. A weak cosine is no sign that a representation is not needed.
        """
        subject = report.subject
        some = removal.sample_examples(subject, self.examples, rng("irreps examples", seed))
        edited = EmbeddingRemoval.of(some, *operand_tokens(subject))
        if edited is None:
            return
        key = [k for k in harmonics.labels if k in logits.keys or k in embedding.keys]
        others = [k for k in harmonics.labels if k not in key]
        weak = [k for k in others if logits.by_label[k] > self.cosine]
        alone = sorted(key + weak, key=lambda k: -abs(logits.by_label[k]))[: self.named]
        removals = Removals(report, edited, harmonics, self.removal_samples, seed)
        key = removals.add(key, others, alone, self.removal_examples, self.least_rise)
        if key:
            n = len(some.data)
            removal.add_finding(report, "representation", key, others, self.least_rise, n=n)

    # --- figures --------------------------------------------------------------------------------
    def _draw(self, report: Report, group: FiniteGroup, logits: Spectrum) -> None:
        """All numbers by representation, and the cosines as a picture."""
        irreps, metrics = representations(group).irreps, report.metrics
        every = [irrep.name for irrep in irreps]
        columns = {
            key.removesuffix(".share"): [values[name] for name in every]
            for key, values in metrics.items()
            if key.endswith(".share")
        }
        removed = metrics.get("embedding.removal", {})
        report.table(
            "irreps",
            {
                "irrep": every,
                "degree": [irrep.degree for irrep in irreps],
                "kind": [irrep.kind for irrep in irreps],
                "logits cosine": [metrics["logits.cosine"].get(name) for name in every],
                **columns,
                "rise without it": [removed.get(name) for name in every],
                "key": [name in metrics["logits.key_irreps"] for name in every],
            },
            "one row per irreducible representation; shares of energy 0–1, cosines −1 … 1",
            {"degree": "complex dimension", "rise without it": "nats"},
        )
        keys = metrics["logits.key_irreps"]
        report.figure(
            "logits",
            figures.bars(
                every[1:],
                {"cosine": logits.values},
                title="Logits against the characters",
                x_title="irreducible representation",
                y_title="cosine with χ(x·y·z⁻¹) (−1 … 1)",
                highlight=keys,
                levels={"permuted classes, largest": float(logits.null.max())},
                caption=(
                    f"Key representations: {named(keys)}."
                    if keys
                    else "No representation stands out of the others and of permuted classes."
                ),
            ),
        )


def shares(group: FiniteGroup, x: Float[np.ndarray, "n d"]) -> dict[str, float]:
    """Share of the energy of x in each representation, the trivial one too."""
    known = representations(group)
    return dict(zip(known.names, np.asarray(known.energy(x)).tolist(), strict=True))
