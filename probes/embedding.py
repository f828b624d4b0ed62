"""The geometry of the token embedding: ranks, similarity, principal components, cyclic order, and
the positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint import figures
from mechint.config import setting
from mechint.errors import DataError
from mechint.probe import Need, Probe
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import rng
from probes.fourier.spectra import Array, offset_profile

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

RESIDUES = {"parity": 2, "mod_4": 4}


@dataclass(frozen=True)
class Embedding(Probe):
    """How are the value tokens laid out in the embedding: its rank, its order by parity, residue
    and on a circle?

    Over the rows of W_E of the n value tokens (all tokens, at most `tokens`, where the task names
    none):

    - `svd.rank_50`, `svd.rank_90`: least number of singular values of the centred rows that hold
      50% and 90% of the variance (remainders, Sec. 5); null: Gaussian rows of the same lengths,
      fewer is surprising;
    - similarity: Pearson correlation of every two rows, n×n; comparable between models of any
      width, so `average_similarity` averages it over models (joint-training, embedding analysis);
    - `parity.separation`, `mod_4.separation`: of the first `components` principal components of the
      similarity matrix, the largest share of a component's variance that lies between the residue
      classes (η², 0–1); null: tokens in random order;
    - `cyclic.correlation`: the largest correlation of the off-diagonal similarities with a cyclic
      Whittaker–Shannon matrix S[x, y] = Σ_{|k| ≤ (m−1)/2} cos(2πku(x − y)/n)/m, the overlaps of
      m-sample periodic sinc pulses at positions ux·m/n, over widths m = 3, 5, 7, 9 and digit orders
      u (joint-training, Fig. 33); `cyclic.share`: share of the similarities' variance that depends
      on (x − y) mod n alone; null: tokens in random order, with the same search;
    - `position.correlation`: Pearson correlation of the position embeddings of `positions`
      (remainders, Fig. 8): high where the operands commute; null: coordinates in random order,
      two-sided.

    Cost: the singular values of n × d_model, and n² a permutation; no forward. Memory: n² numbers.
    """

    name: ClassVar[str] = "embedding"
    source: ClassVar[str] = (
        "joint-training, embedding PCA and Fig. 33; remainders, Sec. 5 and Fig. 8"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.EMBEDDING,)
    quick: ClassVar[bool] = True

    components: int = setting(4, "principal components in which residues are looked for", low=1)
    positions: tuple[int, int] = setting(
        (0, 1), "the two positions whose embeddings are compared", low=0
    )
    tokens: int = setting(512, "most tokens looked at where the task names no values", low=4)
    permutations: int = setting(999, "samples of the nulls", low=1)
    alpha: float = setting(
        0.002, "level at which the finding calls a number surprising", low=1e-6, high=1
    )

    def unmet(self, subject: Subject) -> str | None:
        n = len(value_tokens(subject, self.tokens))
        return None if n >= 4 else f"it has {n} value tokens; their layout can be told from 4 on"

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.lookup("modular-arithmetic", p=13),
            lambda result, plant: float(
                abs(result.metrics["svd.rank_90"] - 2 * len(plant.truth["frequencies"]))
            ),
            "dimensions missed or made up",
            settings={"permutations": 399},
            detects=lambda result: result.null["cyclic.share"].p_value <= 0.005,
        )
        return Calibration((addition,), {"permutations": 19})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        tokens = value_tokens(subject, self.tokens)
        rows = subject.model.W_E.detach()[tokens].double().cpu().numpy()
        left, singular, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
        metrics: dict[str, Any] = {
            "svd.rank_50": rank(singular, 0.5),
            "svd.rank_90": rank(singular, 0.9),
            "svd.singular_values": singular[:64].tolist(),
        }
        nulls = _rank_nulls(rows, metrics, min(self.permutations, 99), seed)
        similar = similarity(rows)
        found, more = layout(
            similar, components=self.components, permutations=self.permutations, seed=seed
        )
        metrics, nulls = metrics | found, nulls | more
        position = self._positions(subject, seed)
        if position is not None:
            metrics["position.correlation"], nulls["position.correlation"] = (
                position.observed,
                position,
            )
        scores = components_of(similar)
        return self.result(
            metrics=metrics,
            finding=_finding(metrics, nulls, self.alpha, len(tokens)),
            null=nulls,
            tables={"singular values": _singular_table(singular)},
            arrays={
                "similarity": similar,
                "components": scores[:, : max(self.components, 2)],
                "singular_vectors": left[:, :8],
            },
            figures=_figures(similar, scores, singular, left, tokens, metrics),
        )

    def measure_average(self, subjects: Sequence[Subject], seed: int) -> ProbeResult:
        """The layout of the similarity matrix averaged over `subjects`, models of one task's values
        and of any width.

        Raises:
            DataError: no model, or models with different numbers of value tokens.
        """
        similar = average_similarity(subjects)
        metrics, nulls = layout(
            similar, components=self.components, permutations=self.permutations, seed=seed
        )
        finding = (
            f"averaged, {metrics['parity.separation']:.0%} of component "
            f"{metrics['parity.component']} lies between even and odd"
        )
        scores = components_of(similar)[:, : max(self.components, 2)]
        return self.result(
            metrics=metrics,
            finding=finding,
            null=nulls,
            arrays={"similarity": similar, "components": scores},
        )

    def _positions(self, subject: Subject, seed: int) -> Null | None:
        weights = getattr(subject.model, "W_pos", None)
        if weights is None or max(self.positions) >= len(weights):
            return None
        first, second = (
            weights[position].detach().double().cpu().numpy() for position in self.positions
        )
        observed, generator = correlation(first, second), rng("position null", seed)
        null = np.array(
            [correlation(first, generator.permutation(second)) for _ in range(self.permutations)]
        )
        p_value = (1 + int((np.abs(null) >= abs(observed)).sum())) / (1 + len(null))
        return Null(
            "position.correlation",
            observed,
            float(null.mean()),
            float(null.std()),
            p_value,
            "coordinates in random order, two-sided",
            len(null),
        )


# --- the measures ---------------------------------------------------------------------------------
def value_tokens(subject: Subject, limit: int = 512) -> list[int]:
    """Tokens of the values 0 … n-1 in their order: those the task's group acts on, else the first
    `limit` tokens.
    """
    symmetry = subject.task.symmetry if subject.task else None
    return (
        list(symmetry.tokens)
        if symmetry is not None
        else list(range(min(len(subject.model.W_E), limit)))
    )


def rank(singular: Array, share: float) -> int:
    """Least number of singular values whose squares hold `share` of all.

    >>> rank(np.array([3.0, 1.0, 1.0, 1.0]), 0.5), rank(np.array([3.0, 1.0, 1.0, 1.0]), 0.9)
    (1, 3)
    """
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-24)
    return int(np.searchsorted(held, share - 1e-12) + 1)


def correlation(x: Array, y: Array) -> float:
    """Pearson's correlation; 0 where one of them does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = math.sqrt(float((x**2).sum() * (y**2).sum()))
    return float((x * y).sum() / norm) if norm > 1e-24 else 0.0


def similarity(rows: Array) -> Array:
    """(n, n) Pearson correlations of the rows (n, d) of an embedding."""
    centred = rows - rows.mean(1, keepdims=True)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return unit @ unit.T


def average_similarity(subjects: Iterable[Subject]) -> Array:
    """(n, n) mean similarity matrix of the value tokens over models of any width (joint-training,
    embedding PCA).

    Raises:
        DataError: no model, or models with different numbers of value tokens.
    """
    matrices = [
        similarity(subject.model.W_E.detach()[value_tokens(subject)].double().cpu().numpy())
        for subject in subjects
    ]
    if not matrices or len({matrix.shape for matrix in matrices}) > 1:
        raise DataError(
            f"average similarity: {len(matrices)} models with "
            f"{sorted({len(m) for m in matrices})} value tokens; expected models of one task"
        )
    return np.mean(matrices, axis=0)


def components_of(similar: Array) -> Array:
    """(n, n) principal component scores of a similarity matrix, strongest first: its rows, centred,
    in their principal axes.
    """
    left, singular, _ = np.linalg.svd(similar - similar.mean(0))
    return left * singular


def separation(scores: Array, classes: Array) -> Array:
    """(components,) share of each component's variance that lies between the classes (η², 0–1).

    >>> separation(np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]),
    ...     np.array([0, 1, 0, 1])).tolist()
    [1.0, 0.0]
    """
    members = np.eye(classes.max() + 1)[classes]
    counts = members.sum(0)
    means = members.T @ (scores - scores.mean(0)) / counts[:, None]
    between = (counts[:, None] * means**2).sum(0)
    return between / np.maximum(((scores - scores.mean(0)) ** 2).sum(0), 1e-24)


def layout(
    similar: Array, *, components: int = 4, permutations: int = 999, seed: int = 0
) -> tuple[dict[str, Any], dict[str, Null]]:
    """Metrics and nulls of a similarity matrix (n, n): separation by parity and residue mod 4, and
    the cyclic comparison.
    """
    n = len(similar)
    scores = components_of(similar)[:, :components]
    generator = rng("layout null", seed)
    orders = [generator.permutation(n) for _ in range(permutations)]
    metrics: dict[str, Any] = {}
    nulls: dict[str, Null] = {}
    for name, modulus in RESIDUES.items():
        classes = np.arange(n) % min(modulus, n)
        shares = separation(scores, classes)
        metrics |= {
            f"{name}.separation": float(shares.max()),
            f"{name}.component": int(shares.argmax()) + 1,
        }
        null = [float(separation(scores, classes[order]).max()) for order in orders]
        nulls[f"{name}.separation"] = Null.sampled(
            f"{name}.separation",
            float(shares.max()),
            null,
            "the largest separation with tokens in random order",
        )
    waves, names = _sinc_profiles(n)
    off = ~np.eye(n, dtype=bool)
    centred = np.where(off, similar - similar[off].mean(), 0.0)
    variance = max(float((centred**2).sum()), 1e-24)
    matches, share = _cyclic(centred, waves, variance)
    best = int(matches.argmax())
    metrics |= {
        "cyclic.correlation": float(matches[best]),
        "cyclic.width": names[best][0],
        "cyclic.order": names[best][1],
        "cyclic.share": share,
    }
    samples = [_cyclic(centred[np.ix_(order, order)], waves, variance) for order in orders]
    how = "tokens in random order, with the same search"
    nulls["cyclic.correlation"] = Null.sampled(
        "cyclic.correlation",
        float(matches[best]),
        [float(found.max()) for found, _ in samples],
        how,
    )
    nulls["cyclic.share"] = Null.sampled(
        "cyclic.share", share, [found for _, found in samples], "tokens in random order"
    )
    return metrics, nulls


def whittaker_shannon(n: int, width: int, order: int = 1) -> Array:
    """(n, n) cyclic Whittaker–Shannon similarity: overlaps of `width`-sample periodic sinc pulses
    at positions order·x·width/n.

    >>> whittaker_shannon(10, 3).round(3)[0, :3].tolist()
    [1.0, 0.873, 0.539]
    """
    k = np.arange(-(width // 2), width // 2 + 1)
    offsets = np.subtract.outer(np.arange(n), np.arange(n))
    return np.cos(2 * np.pi * order / n * offsets[..., None] * k).mean(-1)


def _sinc_profiles(n: int) -> tuple[Array, list[tuple[int, int]]]:
    """(patterns, n - 1) unit profiles over the offsets 1 … n-1, and the (width, order) of each."""
    names = [
        (width, order)
        for width in (3, 5, 7, 9)
        if width < n
        for order in range(1, n // 2 + 1)
        if math.gcd(order, n) == 1
    ]
    profiles = np.array(
        [whittaker_shannon(n, width)[0, np.arange(1, n) * order % n] for width, order in names]
    )
    profiles = profiles - profiles.mean(1, keepdims=True)
    return profiles / np.maximum(np.linalg.norm(profiles, axis=1, keepdims=True), 1e-12), names


def _cyclic(centred: Array, waves: Array, variance: float) -> tuple[Array, float]:
    """Correlation of the off-diagonal entries with every pattern, and the share of their variance
    that is circulant.
    """
    n = len(centred)
    profile = offset_profile(centred)[1:] / n
    return waves @ profile * math.sqrt(n / variance), float(n * (profile**2).sum() / variance)


def _rank_nulls(
    rows: Array, metrics: Mapping[str, Any], samples: int, seed: int
) -> dict[str, Null]:
    """Ranks of Gaussian rows of the same lengths; a low rank is surprising."""
    generator, lengths = (
        rng("rank null", seed),
        np.linalg.norm(rows - rows.mean(0), axis=1, keepdims=True),
    )
    ranks: dict[str, list[int]] = {"svd.rank_50": [], "svd.rank_90": []}
    for _ in range(samples):
        drawn = generator.standard_normal(rows.shape)
        drawn *= lengths / np.linalg.norm(drawn, axis=1, keepdims=True)
        singular = np.linalg.svd(drawn - drawn.mean(0), compute_uv=False)
        ranks["svd.rank_50"].append(rank(singular, 0.5))
        ranks["svd.rank_90"].append(rank(singular, 0.9))
    how = "Gaussian rows of the same lengths; fewer is surprising"
    found = {}
    for name, null in ranks.items():
        p_value = (1 + sum(value <= metrics[name] for value in null)) / (1 + samples)
        found[name] = Null(
            name,
            float(metrics[name]),
            float(np.mean(null)),
            float(np.std(null)),
            p_value,
            how,
            samples,
        )
    return found


# --- words and pictures ---------------------------------------------------------------------------
def _singular_table(singular: Array) -> Table:
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-24)
    columns = {
        "rank": list(range(1, len(singular) + 1)),
        "singular value": singular.tolist(),
        "variance held": held.tolist(),
    }
    return Table(
        columns,
        "one row a singular value of the centred embedding",
        {"variance held": "0–1, cumulative"},
    )


def _figures(
    similar: Array,
    scores: Array,
    singular: Array,
    left: Array,
    tokens: list[int],
    metrics: Mapping[str, Any],
) -> dict[str, Figure]:
    text = [str(token) for token in tokens]
    ranks = list(range(1, len(singular) + 1))
    shown: dict[str, Figure] = {
        "singular_values": figures.lines(
            ranks,
            {"singular value": singular},
            title="Singular values of the embedding",
            x_title="rank",
            y_title="singular value (units of the embedding)",
            caption=(
                f"{metrics['svd.rank_50']} values hold half of the variance, "
                f"{metrics['svd.rank_90']} hold 90% of it."
            ),
            markers=len(ranks) <= 40,
        ),
        "singular_vectors": figures.lines(
            list(range(len(tokens))),
            {f"vector {i + 1}": left[:, i] for i in range(min(4, left.shape[1]))},
            title="Left singular vectors of the embedding",
            x_title="value of the token",
            y_title="coordinate (−1 … 1)",
            caption="Waves over the values are a periodic code; steps or lines an order.",
        ),
        "similarity": figures.heatmap(
            similar,
            title="Similarity of the tokens",
            x_title="value of the token",
            y_title="value of the token",
            z_title="correlation (−1 … 1)",
            caption=(
                "Diagonal bands mean that similarity depends on the difference of two values; a "
                "checkerboard is parity."
            ),
            diverging=True,
            limits=(-1, 1),
            annotate=False,
            square=True,
        ),
    }
    for name, modulus in RESIDUES.items():
        component = metrics[f"{name}.component"] - 1
        other = 0 if component else 1
        shown[name] = figures.scatter(
            scores[:, component],
            scores[:, other],
            title=f"Principal components by residue mod {modulus}",
            x_title=f"component {component + 1} of the similarity matrix (score)",
            y_title=f"component {other + 1} of the similarity matrix (score)",
            groups=[f"{i % modulus} mod {modulus}" for i in range(len(tokens))],
            text=text,
            labels=len(tokens) <= 40,
            caption=(
                f"{metrics[f'{name}.separation']:.0%} of component {component + 1}'s variance "
                "lies between the classes."
            ),
        )
    return shown


def _finding(metrics: Mapping[str, Any], nulls: Mapping[str, Null], alpha: float, n: int) -> str:
    def surprising(name: str) -> bool:
        return nulls[name].p_value <= alpha

    parts = [
        (
            f"Half of the variance of {n} token embeddings lies in {metrics['svd.rank_50']} "
            f"dimensions, 90% in {metrics['svd.rank_90']}."
        )
    ]
    split = []
    for name in RESIDUES:
        if surprising(f"{name}.separation"):
            share, component, p_value = (
                metrics[f"{name}.separation"],
                metrics[f"{name}.component"],
                nulls[f"{name}.separation"].p_value,
            )
            split.append(
                f"{name.replace('_', ' ')} ({share:.0%} of component {component}, p = "
                f"{p_value:.2g})"
            )
    parts.append(
        f"The similarities separate {' and '.join(split)}."
        if split
        else "The similarities separate neither parity nor residues mod 4."
    )
    if surprising("cyclic.correlation"):
        parts.append(
            f"They lie on a circle: correlation {metrics['cyclic.correlation']:.2f} with a "
            f"cyclic Whittaker–Shannon matrix of width {metrics['cyclic.width']} "
            f"in steps of {metrics['cyclic.order']} (p = "
            f"{nulls['cyclic.correlation'].p_value:.2g})."
        )
    if "position.correlation" in metrics:
        parts.append(
            f"The two positions' embeddings correlate {metrics['position.correlation']:+.2f} "
            f"(p = {nulls['position.correlation'].p_value:.2g})."
        )
    return " ".join(parts)
