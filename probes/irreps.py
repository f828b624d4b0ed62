"""Fourier analysis on any finite group: which irreducible representations a model's weights and
logits hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from mechint import figures
from mechint.config import setting
from mechint.errors import DataError
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import FiniteTask, rng
from probes.answers import chunks
from probes.fourier.spectra import Array, Spectrum, step_down

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
      operand's tokens too, `embedding.right.share`, where it has its own) and of the columns of
      W_out W_U of the last layer, from neurons to logits, in the matrix elements of ρ, not centred,
      as in the published code: the trivial representation has a share. `unembedding.direct.share`
          is that of W_U alone;
    - `hidden.left|right|product.share`: of the centred ``mlp.hook_post`` of the last layer at the
      read position, the share that is a function of x, of y, or of x·y alone, in ρ;
    - `logits.cosine`: cosine of the logits, centred over classes and over inputs, with χ(x·y·z⁻¹)
      over all x, y, z; for a task on the group's elements that is not its product (x − y, x² + y²)
      the task's answer stands for x·y.

    ρ is key when its cosine exceeds `cosine` (0.005 in Chughtai et al.), what the classes in random
    order reach at any ρ, and √factor times the lower quartile, over the representations, of the
    cosine relative to a memorised table's, √(dimensions/(n − 1)): a lookup table holds all alike
    and has no key. In the embedding ρ is key when its share exceeds `factor` times dimensions/(n −
    1) and the permuted null. Cost: two forwards over the data, n²(d_model + permutations); memory:
    a chunk of activations.
    """

    name: ClassVar[str] = "irreps"
    source: ClassVar[str] = "Chughtai et al. 2023, A Toy Model of Universality, Sec. 4–5 and App. B"
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True

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

    def unmet(self, subject: Subject) -> str | None:
        assert isinstance(subject.task, FiniteTask)
        if (
            len(subject.task.outputs) != 1
            or subject.task.grid != (subject.task.outputs[0].n_classes,) * 2
        ):
            return (
                "it is no product of two elements: the answer's classes are not the operands' "
                "values"
            )
        try:
            self._group(subject)
        except DataError as error:
            return str(error)
        return None

    def _group(self, subject: Subject) -> tuple[FiniteGroup, Array, str]:
        """The group, the element that answers every pair (n, n), and where the table is from;
        DataError when there is none.
        """
        given = subject.task.outputs[0].group  # type: ignore[union-attr]
        labels = subject.grid(subject.targets[:, 0]).cpu().numpy()
        own = model_table(subject)
        if self.table == "task" or (
            self.table == "auto" and given is not None and (own == labels).mean() > 0.5
        ):
            if given is None:
                raise DataError("its task has no group; set irreps.table=model")
            return given, labels, "task"
        try:
            return FiniteGroup(own), own, "model"
        except DataError as error:
            if self.table == "auto" and given is not None:
                return (
                    given,
                    labels,
                    "task",
                )  # an untrained model: what it holds is still measured on the task's group
            raise DataError(f"the model's own answers are no group: {error}") from error

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
            settings={"permutations": 499},
            detects=lambda result: bool(result.metrics["logits.key_irreps"]),
        )
        return Calibration((product,), {"permutations": 49})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        group, products, source = self._group(subject)
        logits = self._logits(subject, group, products, seed)
        names = [irrep.name for irrep in representations(group).irreps]
        left, right = operand_tokens(subject)
        weights = subject.model.W_E.detach().double().cpu().numpy()
        embedding = self._shares(group, weights[left], seed)
        metrics: dict[str, Any] = {
            "table.source": source,
            "table.agreement": float((model_table(subject) == products).mean()),
            "logits.key_irreps": _named(logits, names),
            "logits.cosine": dict(zip(names[1:], logits.values.tolist(), strict=True)),
            "logits.largest_cosine": float(logits.values.max(initial=0)),
            "logits.explained": float(sum(logits.values[k - 1] ** 2 for k in logits.keys)),
            "embedding.key_irreps": _named(embedding, names),
            "embedding.share": _shares(group, weights[left]),
        }
        if left != right:
            metrics["embedding.right.share"] = _shares(group, weights[right])
        metrics |= unembedding_shares(subject, group)
        if not unmet_need(Need.MLP, subject):
            metrics |= hidden_shares(subject, group, products)
        nulls = {
            "logits.largest_cosine": logits.test(
                "logits.largest_cosine", "the largest cosine with the classes in random order"
            ),
            "embedding.largest_excess": embedding.test(
                "embedding.largest_excess",
                "the largest share relative to a flat spectrum, with tokens in random order",
            ),
        }
        metrics["embedding.largest_excess"] = nulls["embedding.largest_excess"].observed
        table = _table(group, metrics)
        return self.result(
            metrics=metrics,
            finding=_finding(metrics, nulls, group),
            null=nulls,
            tables={"irreps": table},
            figures=_figures(table, metrics["logits.key_irreps"]),
        )

    def _logits(self, subject: Subject, group: FiniteGroup, products: Array, seed: int) -> Spectrum:
        """Cosines of the logits with the characters of all representations but the trivial one."""
        n, irreps = group.order, representations(group).irreps
        basis = representations(group).fourier_basis
        sums, squares = _sums_by_product(subject, products)
        quotient = group.table[:, group.inverses]  # [a, c] = a c⁻¹
        characters = representations(group).characters[1:]
        norms = np.sqrt(max(squares, 1e-24) * n * n * (characters**2).sum(1))
        values = _character_sums(sums, quotient, characters) / norms
        dimensions = np.array([len(irrep.rows) for irrep in irreps[1:]])
        memorised = np.sqrt(dimensions / max(n - 1, 1))
        flat = (
            float(np.quantile(np.maximum(values / memorised, 0), 0.25, method="lower"))
            if len(values)
            else 0.0
        )

        # levels differ by representation: dividing by them makes one rule of all
        levels = np.maximum(self.cosine, np.sqrt(self.factor) * flat * memorised)

        def null_without(keys: list[int]) -> Array:
            rows = [row for k in keys for row in irreps[k].rows]
            rest = sums - (sums @ basis[rows].T) @ basis[rows]
            generator = rng("irreps null", seed)
            permuted = (rest[:, generator.permutation(n)] for _ in range(self.permutations))
            return np.array(
                [
                    (_character_sums(sample, quotient, characters) / norms).max(initial=0)
                    for sample in permuted
                ]
            )

        found = step_down(
            np.where(values > levels, values, 0.0), self.cosine, self.alpha, null_without
        )
        return Spectrum(values, found.keys, found.threshold, found.null)

    def _shares(self, group: FiniteGroup, x: Array, seed: int) -> Spectrum:
        """Shares of the centred x (n, d) in all representations but the trivial one, relative to a
        flat spectrum's.
        """
        x = x - x.mean(0)
        flat = np.array([len(irrep.rows) for irrep in representations(group).irreps[1:]]) / max(
            group.order - 1, 1
        )
        total = max(float((x**2).sum()), 1e-24)

        def excess(values: Array) -> Array:
            return (
                np.array(
                    [
                        (values[list(irrep.rows)] ** 2).sum()
                        for irrep in representations(group).irreps[1:]
                    ]
                )
                / total
                / flat
            )

        def null_without(keys: list[int]) -> Array:
            rows = [row for k in keys for row in representations(group).irreps[k].rows]
            rest = x - representations(group).fourier_basis[rows].T @ (
                representations(group).fourier_basis[rows] @ x
            )
            generator = rng("irreps share null", seed)
            return np.array(
                [
                    excess(
                        representations(group).fourier_basis @ rest[generator.permutation(len(x))]
                    ).max(initial=0)
                    for _ in range(min(self.permutations, 199))
                ]
            )

        return step_down(
            excess(representations(group).fourier_basis @ x), self.factor, self.alpha, null_without
        )


# --- the measures ---------------------------------------------------------------------------------
def model_table(subject: Subject) -> Array:
    """(n, n) the class the model answers to every pair, for a task whose grid is that of two
    operands.
    """
    answers = torch.cat(
        [values[:, : subject.task.outputs[0].n_classes].argmax(-1) for values, _ in chunks(subject)]
    )  # type: ignore[union-attr]
    return subject.grid(answers).cpu().numpy()


def operand_tokens(subject: Subject) -> tuple[list[int], list[int]]:
    """Tokens of the first and of the second operand, in the order of the grid."""
    tokens = subject.data.tokens.reshape(*subject.task.grid, -1)  # type: ignore[union-attr]
    return tokens[:, 0, 0].tolist(), tokens[0, :, 1].tolist()


def _shares(group: FiniteGroup, x: Array) -> dict[str, float]:
    return {
        irrep.name: float(share)
        for irrep, share in zip(
            representations(group).irreps, representations(group).energy(x), strict=True
        )
    }


def _character_sums(sums: Array, quotient: Array, characters: Array) -> Array:
    """(n_irreps,) Σ_{a,c} M[a, c] χ(a c⁻¹)."""
    return characters @ np.bincount(quotient.ravel(), weights=sums.ravel(), minlength=len(sums))


def _sums_by_product(subject: Subject, products: Array) -> tuple[Array, float]:
    """(n, n) logits, centred over classes and inputs, summed by the pair's product; and their sum
    of squares.
    """
    n, start, squares = len(products), 0, 0.0
    index = torch.from_numpy(products.flatten()).to(subject.device)
    sums = torch.zeros(n, n, dtype=torch.float64, device=subject.device)
    for values, _ in chunks(subject):
        values = values[:, :n].double()
        values = values - values.mean(1, keepdim=True)
        sums.index_add_(0, index[start : start + len(values)], values)
        squares += float(values.square().sum())
        start += len(values)
    mean = sums.sum(0) / n**2
    counts = torch.bincount(index, minlength=n)[:, None]
    return (sums - counts * mean).cpu().numpy(), squares - float(n**2 * mean.square().sum())


def unembedding_shares(subject: Subject, group: FiniteGroup) -> dict[str, dict[str, float]]:
    """Shares of the map from neurons to logits, and of W_U itself; without feed-forward layers both
    are W_U's.
    """
    if getattr(subject.model, "W_U", None) is None:
        return {}
    direct = subject.model.W_U.detach().double()[:, : group.order]
    written = next(
        (
            value
            for name, value in reversed(list(subject.model.named_parameters()))
            if name.endswith("mlp.W_out")
        ),
        None,
    )
    whole = direct if written is None else written.detach().double() @ direct
    return {
        "unembedding.share": _shares(group, whole.cpu().numpy().T),
        "unembedding.direct.share": _shares(group, direct.cpu().numpy().T),
    }


def hidden_shares(
    subject: Subject, group: FiniteGroup, products: Array
) -> dict[str, dict[str, float]]:
    """Shares of the last hidden layer's energy, the constant left out, that are functions of x, y
    and x·y alone, by irrep.

    x·y is left out where not all elements answer equally many pairs.
    """
    n, start, squares, hook = group.order, 0, 0.0, f"blocks.{subject.n_layers - 1}.mlp.hook_post"
    elements = torch.arange(n, device=subject.device)
    parts = {"left": elements.repeat_interleave(n), "right": elements.repeat(n)}
    if (np.bincount(products.ravel(), minlength=n) == n).all():
        parts["product"] = torch.from_numpy(products.flatten()).to(subject.device)
    sums: dict[str, torch.Tensor] = {}
    for values, _ in chunks(subject, hook):
        values = values.double()
        for part, index in parts.items():
            sums.setdefault(part, values.new_zeros(n, values.shape[1])).index_add_(
                0, index[start : start + len(values)], values
            )
        squares += float(values.square().sum())
        start += len(values)
    mean = sums["left"].sum(0) / n**2
    total = max(squares - float(n**2 * mean.square().sum()), 1e-24)
    found = {}
    for part, summed in sums.items():
        means = (summed / n - mean).cpu().numpy()
        energy = n * (means**2).sum()
        found[f"hidden.{part}.share"] = {
            name: float(share * energy / total) for name, share in _shares(group, means).items()
        }
    return found


# --- words and pictures ---------------------------------------------------------------------------
def _named(spectrum: Spectrum, names: list[str]) -> list[str]:
    return [names[k] for k in spectrum.keys]


def _table(group: FiniteGroup, metrics: Mapping[str, Any]) -> Table:
    names = [irrep.name for irrep in representations(group).irreps]
    columns: dict[str, list[Any]] = {
        "irrep": names,
        "degree": [irrep.degree for irrep in representations(group).irreps],
        "kind": [irrep.kind for irrep in representations(group).irreps],
    }
    columns["logits cosine"] = [metrics["logits.cosine"].get(name) for name in names]
    columns |= {
        key.removesuffix(".share"): [values[name] for name in names]
        for key, values in metrics.items()
        if key.endswith(".share")
    }
    columns["key"] = [name in metrics["logits.key_irreps"] for name in names]
    return Table(
        columns,
        "one row an irreducible representation; shares of energy 0–1, cosines −1 … 1",
        {"degree": "complex dimension"},
    )


def _figures(table: Table, keys: list[str]) -> dict[str, Figure]:
    columns = table.columns
    shares = {
        name: columns[name]
        for name in columns
        if name.split(".")[0] in ("embedding", "unembedding", "hidden")
    }
    listed = ", ".join(keys) or "none"
    return {
        "logits": figures.bars(
            columns["irrep"][1:],
            {"cosine": columns["logits cosine"][1:]},
            title="Logits against the characters",
            x_title="irreducible representation",
            y_title="cosine with χ(x·y·z⁻¹) (−1 … 1)",
            highlight=keys,
            caption=f"The representations the answer is computed in stand out; key: {listed}.",
        ),
        "shares": figures.bars(
            columns["irrep"],
            shares,
            title="Where the weights and the hidden layer live",
            x_title="irreducible representation",
            y_title="share of energy (0–1)",
            caption=(
                "Share of the energy of each part in each representation; the hidden layer as a "
                "function of x, of y and of x·y."
            ),
        ),
    }


def _finding(metrics: Mapping[str, Any], nulls: Mapping[str, Null], group: FiniteGroup) -> str:
    source = "its own answers" if metrics["table.source"] == "model" else "the task's table"
    null = nulls["logits.largest_cosine"]
    keys = metrics["logits.key_irreps"]
    if not keys:
        return (
            f"On the group of order {group.order} ({source}) the logits have no key representation "
            f"(largest cosine {null.observed:.3f}, {null.mean:.3f} with classes in random order)."
        )
    cosines = ", ".join(
        f"{name} ({metrics['logits.cosine'][name]:.2f})"
        for name in sorted(keys, key=lambda name: -metrics["logits.cosine"][name])
    )
    held = sum(metrics["embedding.share"][name] for name in keys)
    return (
        f"On the group of order {group.order} ({source}) the logits use the representations "
        f"{cosines}, cosine with the character in brackets, "
        f"p = {null.p_value:.2g}; they hold {held:.1%} of the embedding and explain "
        f"{metrics['logits.explained']:.1%} of the logits' variance."
    )
