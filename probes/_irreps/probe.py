"""The probe irreps: which representations of a group a model computes with, and needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint import figures
from mechint.activations import LOGITS
from mechint.config import setting
from mechint.errors import DataError
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from mechint.groups.spectrum import Harmonics
from mechint.probe import Need, Probe, Report
from mechint.results import Effect, Null, ProbeResult
from mechint.subject import Subject
from mechint.task import FiniteTask, rng
from probes import removal, spectra
from probes.operands import by_element, by_example, operand_rows, operand_tokens
from probes.removal import EmbeddingRemoval
from probes.spectra import PERMUTED_CLASSES, KeyRule, Spectrum
from probes.words import in_words, named

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

MOST_ANSWERS = 0.5
"""Share of the answers that have to be the task's for its table to be the model's."""
LARGEST, EXCESS = "logits.largest_cosine", "embedding.largest_excess"


@dataclass(frozen=True)
class Irreps(Probe):
    """In which irreducible representations of the group do embedding, hidden layer and logits live?

    With U_ρ the matrix elements of a real irreducible representation ρ and χ_ρ its character, for
    embedding rows E and logits L(x, y; z):

        share_E(ρ) = ‖U_ρ E‖² / ‖E‖²         cos_L(ρ) = cos(L, χ_ρ(x·y·z⁻¹))

    Source: Chughtai et al. 2023, A Toy Model of Universality, Sec. 4–5 and App. B. Frequencies of
    cyclic groups are the probe fourier's.
    """

    name: ClassVar[str] = "irreps"
    source: ClassVar[str] = "Chughtai et al. 2023, A Toy Model of Universality, Sec. 4–5 and App. B"
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    intervenes: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 80

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
        if group is not None and group.is_cyclic and self.table != "model":
            return "its group is cyclic: see fourier"
        if len(task.outputs) != 1 or task.grid != (task.outputs[0].n_classes,) * 2:
            return "the answer's classes are not the values of two operands"
        if group is not None and self.table != "model":
            return None
        if self.table == "task":
            return "its task has no group; set irreps.table=model"
        try:
            FiniteGroup(answer_table(subject))
        except DataError as error:
            return f"the model's own answers are not a group: {error}"
        return None

    @property
    def significance(self) -> float:
        return self.alpha

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
        held = group_table(subject, self.table)
        harmonics = Harmonics(held.group)
        rule = KeyRule(self.factor, self.cosine, self.alpha, self.permutations)
        products = by_example(subject, torch.from_numpy(held.products).to(subject.device))
        n, own = held.group.order, held.source == "model"
        # of its own table the model was taught nothing, so that there is nothing to memorize
        rest = None if own else spectra.unmemorized(subject, 0)
        logits = spectra.logit_spectrum(subject, harmonics, products, range(n), rule, seed, rest)
        left, right = operand_rows(subject)
        embedding = spectra.share_spectrum(harmonics, left.cpu().numpy(), rule, seed)
        report = Report(self, subject)
        answers = by_example(subject, torch.from_numpy(held.answers).to(subject.device))
        report.correct = answers[:, None] == subject.targets
        report.metric("table.source", held.source)
        report.metric("table.agreement", float((held.answers == held.products).mean()))
        self._add_logits(report, logits, own)
        self._add_embedding(report, harmonics, embedding, left, right)
        self._add_weights(report, held.group)
        self._add_hidden(report, held)
        self._remove(report, harmonics, logits, embedding, products, seed, own)
        self._draw(report, held.group, logits)
        return report.result()

    # --- what is where --------------------------------------------------------------------------
    def _add_logits(self, report: Report, logits: Spectrum, own: bool) -> None:
        """Cosines with the characters, and the finding on key representations."""
        keys, null = names(logits.strongest), logits.test(LARGEST, PERMUTED_CLASSES)
        report.metric("representations", " ".join(keys) or "none")
        report.metric("logits.key_irreps", names(logits.keys))
        report.metric("logits.cosine", named_values(logits, logits.values))
        report.metric("logits.threshold", named_values(logits, logits.thresholds))
        report.metric(LARGEST, logits.observed, null=null)
        report.metric("logits.explained", logits.explained)
        these = f"{in_words(len(keys), 'representation')}: {named(keys)}"
        verdict = report.finding(
            f"The logits use {these}.",
            no="The logits use no representation.",
            unclear="Key representations of the logits are unclear.",
            holds=bool(keys),
            null=LARGEST,
            effect=Effect(
                logits.explained,
                label="share of the logits' variance",
                baseline=null.mean**2,
                baseline_label="permuted classes",
            )
            if keys
            else None,
            details={
                "largest cosine": logits.observed,
                **{str(key): logits.by_label[key] for key in logits.strongest},
            },
            caveat="of the group of its own answers" if own else "",
            at_chance=own,  # by its own table all its answers are right
        )
        if verdict == "yes":
            report.lead(f"Its logits use {these}.")

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
        null = found.test(EXCESS, how)
        report.metric("embedding.key_irreps", names(found.keys))
        report.metric("embedding.share", shares(harmonics.group, left.cpu().numpy()))
        if right is not None:
            report.metric("embedding.right.share", shares(harmonics.group, right.cpu().numpy()))
        report.metric(EXCESS, null.observed, null=null)
        varying = found.by_label
        held = sum(varying[key] for key in found.keys)
        whose = "embedding" if right is None else "first operand's embedding"
        report.finding(
            f"The {whose} varies in {in_words(len(found.keys), 'representation')}: "
            f"{named(names(found.strongest), 6)}.",
            no=f"No representation of the {whose} is key.",
            unclear=f"Key representations of the {whose} are unclear.",
            holds=bool(found.keys),
            null=EXCESS,
            effect=Effect(
                held,
                label="share of the energy",
                baseline=float(
                    sum(
                        flat
                        for key, flat in zip(found.labels, harmonics.flat, strict=True)
                        if key in found.keys
                    )
                ),
                baseline_label="flat spectrum",
            )
            if found.keys
            else None,
            details={str(key): f"{varying[key]:.1%}" for key in found.strongest},
            at_chance=True,
        )

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

    def _add_hidden(self, report: Report, held: GroupTable) -> None:
        """Shares of the last hidden layer's energy, the constant left out, that are functions of x,
        of y and of x·y alone, by representation.
        """
        subject, n = report.subject, held.group.order
        hook = f"blocks.{subject.n_layers - 1}.mlp.hook_post"
        if hook not in subject.model.hook_dict:
            return
        first = torch.arange(n).expand(n, n)
        tables = {"left": first.T, "right": first, "product": torch.from_numpy(held.products)}
        if (np.bincount(held.products.ravel(), minlength=n) != n).any():
            del tables["product"]
        element = {
            name: by_example(subject, one).to(subject.device) for name, one in tables.items()
        }
        sums, squares = dict[str, Tensor](), 0.0
        for part, found in subject.stream([hook], at="answer"):
            values = found[hook]
            for name, index in element.items():
                own = sums.setdefault(name, values.new_zeros(n, values.shape[1]))
                own.index_add_(0, index[part], values)
            squares += float(values.double().square().sum())
        mean = sums["left"].double().sum(0) / n**2
        total = max(squares - float(n**2 * mean.square().sum()), 1e-24)
        for name, summed in sums.items():
            means = (summed.double() / n - mean).cpu().numpy()
            energy = n * float((means**2).sum()) / total
            own = shares(held.group, means)
            report.metric(f"hidden.{name}.share", {k: one * energy for k, one in own.items()})

    # --- what is needed -------------------------------------------------------------------------
    def _remove(
        self,
        report: Report,
        harmonics: Harmonics,
        logits: Spectrum,
        embedding: Spectrum,
        products: Int[Tensor, " row"],
        seed: int,
        own: bool,
    ) -> None:
        """The loss without each representation whose cosine or share stands out, and without the
        key ones together. A weak cosine is no sign that a representation is not needed.
        """
        subject = report.subject
        whole = EmbeddingRemoval.of(subject, *operand_tokens(subject))
        if whole is None:
            return
        drawn = rng("irreps examples", seed).permutation(len(subject.data))[: self.examples]
        rows = torch.from_numpy(np.sort(drawn)).to(subject.device)
        some, targets = subject.with_data(subject.data[rows]), products[rows, None]
        edited = EmbeddingRemoval(some, whole.operands)
        base = removal.mean_loss(some, None, targets)
        key = [k for k in harmonics.labels if k in logits.keys or k in embedding.keys]
        others = [k for k in harmonics.labels if k not in key]
        weak = [k for k in others if logits.by_label[k] > self.cosine]
        alone = sorted(key + weak, key=lambda k: -abs(logits.by_label[k]))[: self.named]

        def rise(labels: Sequence[int | str]) -> float:
            return edited.loss(harmonics.rows(labels), targets) - base if labels else 0.0

        report.metric("loss.own_answers" if own else "loss", base, unit="nats")
        report.metric("embedding.removal", {str(k): rise([k]) for k in alone}, unit="nats")
        report.metric("embedding.removal_unnamed", rise(others), unit="nats")
        columns = range(harmonics.group.order)
        report.metric(
            "unembedding.removal",
            {
                str(k): removal.loss_without_classes(some, harmonics.rows([k]), columns, targets)
                - base
                for k in alone
            },
            unit="nats",
        )
        if not key:
            return
        without = edited.logits(harmonics.rows(key)[None])[0]
        right = some.correct(without, targets).double().mean()
        report.metric("embedding.accuracy_without", float(right))
        report.metric(
            "embedding.removal_named", removal.mean_loss(some, without, targets) - base, unit="nats"
        )
        few = np.sort(rng("irreps removal examples", seed).permutation(len(rows)))
        chosen = torch.from_numpy(few[: self.removal_examples]).to(subject.device)
        found = removal.against_random(
            EmbeddingRemoval(some.with_data(some.data[chosen]), whole.operands),
            harmonics.rows(key),
            harmonics.rows(others),
            self.removal_samples,
            rng("irreps removal null", seed),
            targets[chosen],
        )
        if found is not None:
            how = "as many random directions of the other representations removed"
            name = "embedding.removal_named"
            report.nulls[name] = Null.sampled(name, *found, how)
        gate = {"n": len(rows), "at_chance": own}
        removal.add_finding(report, "representation", names(key), others, self.least_rise, **gate)

    # --- figures --------------------------------------------------------------------------------
    def _draw(self, report: Report, group: FiniteGroup, logits: Spectrum) -> None:
        """All numbers by representation, and two pictures of those that stand out."""
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
        report.hero("logits")
        shown = [i for i in range(len(every)) if max(one[i] for one in columns.values()) >= 0.01]
        report.figure(
            "shares",
            figures.bars(
                [every[i] for i in shown],
                {part: [one[i] for i in shown] for part, one in columns.items()},
                title="Representations of weights and hidden layer",
                x_title="irreducible representation",
                y_title="share of energy (0–1)",
                caption=(
                    "Share of the energy of each part in each representation, those with 1% of "
                    "some part; the hidden layer as a function of x, of y and of x·y."
                ),
            ),
        )


# --- the group ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GroupTable:
    """A group on the operands, and where its table is from, "task" or "model".

    products (n, n): the element that answers each pair; answers (n, n): the class that the model
    answers; pairs in the order of the elements (`operands.element_places`).
    """

    group: FiniteGroup
    source: str
    products: Int[np.ndarray, "n n"]
    answers: Int[np.ndarray, "n n"]


def group_table(subject: Subject, table: str) -> GroupTable:
    """The task's group, or that of the model's own answers.

    table: "task", "model", or "auto": the task's where the model answers most pairs by it or by no
    group's table.

    Raises:
        DataError: the task has no group, and the model's answers are none.
    """
    assert subject.task is not None
    given, answers = subject.task.outputs[0].group, answer_table(subject)
    if given is not None and table != "model":
        labels = by_element(subject, subject.targets[:, 0]).cpu().numpy()
        held = GroupTable(given, "task", labels, answers)
        if table == "task" or float((answers == labels).mean()) > MOST_ANSWERS:
            return held
        try:
            return GroupTable(FiniteGroup(answers), "model", answers, answers)
        except DataError:  # an untrained model: what it has is still measured on the task's group
            return held
    return GroupTable(FiniteGroup(answers), "model", answers, answers)


def answer_table(subject: Subject) -> Int[np.ndarray, "n n"]:
    """The class the model answers to every pair, for a task whose grid is that of two operands."""
    assert subject.task is not None
    n = subject.task.outputs[0].n_classes
    parts = [found[LOGITS][:, :n].argmax(-1) for _, found in subject.stream([LOGITS], at="answer")]
    return by_element(subject, torch.cat(parts)).cpu().numpy()


def shares(group: FiniteGroup, x: Float[np.ndarray, "n d"]) -> dict[str, float]:
    """Share of the energy of x in each representation, the trivial one too."""
    known = representations(group)
    return dict(zip(known.names, np.asarray(known.energy(x)).tolist(), strict=True))


def names(labels: Sequence[int | str]) -> list[str]:
    """The labels as names."""
    return [str(label) for label in labels]


def named_values(spectrum: Spectrum, values: Float[np.ndarray, " h"]) -> dict[str, float]:
    """Name → value."""
    return dict(zip(names(spectrum.labels), values.tolist(), strict=True))
