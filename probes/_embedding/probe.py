"""The probe embedding: the geometry of the token embedding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.config import setting
from mechint.decide import NEAR, Claim, first_of
from mechint.decide.null import orderings, p_values
from mechint.groups.finite import cyclic
from mechint.groups.layouts import FEWEST, LEAST, beyond_isotropy, find_layouts
from mechint.groups.spectrum import Harmonics
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.probes._clock_pizza.probe import circularity
from mechint.probes.operands import has_own
from mechint.probes.spectra import (
    HALF,
    SAME_ENERGIES,
    Array,
    KeyRule,
    say_order,
    share_spectrum,
)
from mechint.probes.words import in_words, named
from mechint.subject import Subject
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

ROUND = 0.8
"""Least circularity of what is called a circle: one axis a third of the other."""
MIN_NEAR = 0.1
"""Similarity of neighbors below which they follow no order that could be open; where they do, it is
closed if the last and the first tokens are at least half as similar."""
RANK_SAMPLES = 99
"""Gaussian embeddings that the ranks are held against; each takes singular values of its own."""
HELD = 0.9
"""Share of the variance that a rank is of."""
FEWER = 0.75
"""Dimensions of a low rank, as a share of those of Gaussian rows: fewer by less say nothing."""
LAYOUT_LEVEL = 0.05
"""Level of a layout, which needs an effect, too."""
MAX_TOKENS = 256
"""More tokens have matrices that take seconds to permute."""


@dataclass(frozen=True)
class Embedding(Probe):
    """How are the value tokens laid out in the embedding?

    For the centered rows E of the value tokens, with singular values σ and similarities
    C_xy = corr(E_x, E_y):

        rank_90 = least r with Σ_{i≤r} σ_i² ≥ 0.9 Σ σ_i²
        circles: frequencies of the values that hold more of ‖E‖² than permuted tokens give
        layouts: the share of E Eᵀ, beyond isotropy, that is cyclic, ordered, a line, by x mod m …
    """

    name: ClassVar[str] = "embedding"
    topic: ClassVar[str] = "arithmetic and groups"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, embedding PCA; "
        "Mechanistic Interpretability on (Multi-task) Irreducible Integer Identifiers, Sec. 5"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.EMBEDDING,)
    quick: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 20

    tokens: int = setting(512, "most tokens looked at where the task names no values", low=4)
    permutations: int = setting(499, "samples of the nulls", low=1)
    alpha: float = setting(
        0.002, "level at which the finding calls a number surprising", low=1e-6, high=1
    )

    def unmet(self, subject: Subject) -> str | None:
        tokens = value_tokens(subject, self.tokens)
        if len(tokens) < 4:
            return f"it has {len(tokens)} value tokens; their layout shows from 4 on"
        rows = subject.model.W_E.detach()[tokens]
        if not bool((rows != rows[:1]).any()):
            return "the embeddings of its value tokens are all the same"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition)
            | library.lookup("modular-arithmetic", p=11)
            | {"half memorized": library.half_memorized},
            lambda result, plant: float(
                abs(result.metrics["svd.rank_90"] - 2 * len(plant.truth["frequencies"]))
            ),
            "dimensions missed or made up",
            settings={"permutations": 499},
            detects=lambda result: bool(result.metrics["cyclic.frequencies"]),
        )
        return Calibration((addition,), {"permutations": 19})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        tokens = value_tokens(subject, self.tokens)
        rows = subject.model.W_E.detach()[tokens].double().cpu().numpy()
        report = Report(self, subject)
        whose = "first operand's embedding" if has_own(subject, tokens) else "embedding"
        self._add_ranks(report, rows, whose, seed)
        similar = similarity(rows)
        ordered = in_order(subject)
        if ordered:
            closed = self._add_circles(report, rows, tokens, seed)
            self._add_layout(report, rows, closed, seed)
        else:
            report.not_asked("circles", "the tokens stand in no order")
        report.array("similarity", similar)
        self._draw(report, similar, ordered)
        return report.result()

    # --- what is measured -----------------------------------------------------------------------
    def _add_ranks(self, report: Report, rows: Array, whose: str, seed: int) -> None:
        """Dimensions that hold 90% of the variance; null: Gaussian rows of the same
        lengths, counted in fractions of a dimension, so that ranks do not tie; fewer is surprising.
        """
        centered = rows - rows.mean(0)
        singular = np.linalg.svd(centered, compute_uv=False)
        lengths = np.linalg.norm(centered, axis=1, keepdims=True)
        draw, drawn = rng("rank null", seed), []
        for _ in range(min(self.permutations, RANK_SAMPLES)):
            x = draw.standard_normal(rows.shape)
            x = x * lengths / np.linalg.norm(x, axis=1, keepdims=True)
            drawn.append(fractional_rank(np.linalg.svd(x - x.mean(0), compute_uv=False), HELD))
        observed, ranks = fractional_rank(singular, HELD), np.array(drawn)
        null = Null(
            "svd.rank_90",
            observed,
            float(ranks.mean()),
            float(ranks.std()),
            float(p_values(-ranks, -observed)),
            "Gaussian rows of the same lengths; fewer is surprising",
            len(ranks),
        )
        dimensions = math.ceil(observed - 1e-9)
        report.metric("svd.rank_90", dimensions, null=null)
        some = in_words(dimensions, "dimension")
        report.finding(
            Claim(
                f"{some.capitalize()} hold{'s' * (dimensions == 1)} 90% of the variance of "
                f"the {whose} over {len(rows)} tokens.",
                no=f"The rank of the {whose} is not below {FEWER:.0%} of that of Gaussian rows.",
                unclear=f"Whether the {whose} has a low rank is unclear.",
                at_chance=True,
            ),
            Effect.of(null, "dimensions", "counted in fractions", "Gaussian rows"),
            # a rank that is hardly lower is denied whatever its p-value
            least=-math.inf if null.observed <= FEWER * null.mean else math.inf,
            null="svd.rank_90",
            alpha=max(self.alpha, 1 / (1 + RANK_SAMPLES)),
        )

    def _add_circles(self, report: Report, rows: Array, tokens: Sequence[int], seed: int) -> bool:
        """The frequencies over the values at which the rows' energy stands out, by the rule of the
        probe fourier: at each the tokens lie on an ellipse, k times around. Returns whether the
        first token follows the last, as it does around a circle.
        """
        harmonics = Harmonics(cyclic(len(rows)))
        rule = KeyRule(alpha=self.alpha, permutations=self.permutations)
        found, name = share_spectrum(harmonics, rows, rule, seed), "cyclic.largest_share"
        flat = float(harmonics.flat[0])
        shares: dict[Any, float] = {k: found.by_label[k] for k in found.keys}
        roundness = {k: circularity(rows, harmonics.rows([k])) for k in found.keys}
        null = found.test(name, "the largest share with permuted tokens", flat)
        report.metric("cyclic.frequencies", found.keys)
        report.metric("cyclic.frequency_share", shares, unit="share of the energy, 0–1")
        report.metric("cyclic.circularity", roundness, unit="1 a circle, 1/2 a line")
        report.metric(name, float(found.values.max()), null=null)
        ends, near = across_ends(rows)
        report.metric("cyclic.ends", ends, unit="similarity across the ends, of mean length 1")
        report.metric("cyclic.near", near, unit="similarity as near between them")
        closed = near < MIN_NEAR or ends >= near / 2
        round_ones: list[Any] = [k for k in found.strongest if roundness[k] >= ROUND and closed]
        shown = round_ones or found.strongest
        circles, share = in_words(len(round_ones), "circle"), sum(shares[k] for k in shown)
        held, all_round = f"{share:.0%} of the tokens' energy", named(sorted(round_ones), 5)
        verdict = report.finding(
            Claim(
                first_of(
                    (round_ones, f"{held} lies on {circles}, of frequency {all_round}."),
                    (closed, f"{held} is at frequency {named(shown, 3)}, on no circle."),
                    (True, f"{held} varies smoothly in their order, whose ends are far apart."),
                ),
                no="No frequency of the tokens stands out of permuted ones."
                if null.p_value > NEAR
                else "No frequency stands out by twice its share of a flat spectrum.",
                unclear="Whether the tokens lie on circles is unclear.",
                doubt=SAME_ENERGIES * found.is_flat_in_any_order,
                caveat=say_order(tokens),
                at_chance=True,
            ),
            Effect(
                share,
                label="share of the embedding's energy",
                baseline=flat * len(shown),
                baseline_label="flat spectrum",
            )
            if shown
            else Effect.of(null, "", "largest share of the energy", "permuted tokens"),
            # a share below what a key exceeds is denied whatever its p-value
            least=0.0 if shown else flat * rule.factor,
            holds=bool(shown),
            null=name,
        )
        if verdict == "yes" and round_ones:
            report.lead(f"Its tokens lie on {circles}." if share >= HALF else "")
            report.findings.insert(0, report.findings.pop())
            report.figure("circle", circle(rows, harmonics, round_ones[0], tokens, share))
        return closed

    def _add_layout(self, report: Report, rows: Array, closed: bool, seed: int) -> None:
        """The rules that the Gram matrix follows beyond isotropy, and the one that names it; a line
        in noise has most of what a circle has, but does not close.
        """
        residual = beyond_isotropy(rows)
        if not FEWEST <= len(rows) <= MAX_TOKENS or not residual.any():
            report.not_asked("layout", f"{len(rows)} tokens; {FEWEST} to {MAX_TOKENS} are asked")
            return
        found = find_layouts(residual, self.permutations, seed)
        for name, effect in found.effects.items():
            report.metric(
                f"layout.{name}", effect, unit="0 permuted tokens, 1 of this layout alone"
            )
        named, metric = found.name(), "layout.standardized"
        named = "ordered" if named == "cyclic" and not closed else named
        report.metric("layout", named or "none")
        report.metric("layout.strength", found.strength, unit="variance of the spectrum, mean 1")
        how = "the largest share of a layout, standardized, with permuted tokens"
        null = found.test.null(metric, how, orderings(len(rows)))
        report.metric(metric, null.observed, null=null)
        by_name = {layout.name: i for i, layout in enumerate(found.known)}
        shown = by_name[named or max(found.effects, key=lambda one: found.effects[one])]
        report.finding(
            Claim(
                f"{found.shares[shown]:.0%} of the tokens' geometry beyond isotropy is laid out "
                f"{in_layout(named)}.",
                no="No layout that was looked for stands out of permuted tokens."
                if null.p_value > LAYOUT_LEVEL
                else f"No layout that stands out holds {LEAST:.0%} more than with permuted tokens.",
                unclear="Whether the tokens are laid out by a rule is unclear.",
                at_chance=True,
            ),
            Effect(
                float(found.shares[shown]),
                label=f"share of the geometry beyond isotropy ({found.known[shown].name})",
                baseline=float(found.chance[shown]),
                baseline_label="permuted tokens",
            )
            if named
            else Effect.of(null, "", "largest standardized share", "permuted tokens"),
            holds=bool(named),
            null=metric,
            alpha=LAYOUT_LEVEL,
        )
        part = found.known[shown].project(residual)
        limit = float(np.abs(residual).max())
        report.figure(
            "layout",
            figures.beside(
                *(
                    figures.heatmap(
                        matrix,
                        title=title,
                        x_title="value of the token",
                        y_title="value of the token",
                        z_title="similarity (isotropic rows: 0)",
                        caption=caption,
                        diverging=True,
                        limits=(-limit, limit),
                        annotate=False,
                        square=True,
                    )
                    for matrix, title, caption in (
                        (residual, "Similarity beyond isotropy", "Gram matrix, centered."),
                        (part, f"Its part that is {found.known[shown].name}", ""),
                    )
                )
            ),
        )

    def _draw(self, report: Report, similar: Array, ordered: bool) -> None:
        title = "value of the token" if ordered else "token, as the task lists them"
        report.figure(
            "similarity",
            figures.heatmap(
                similar,
                title="Similarity of the tokens",
                x_title=title,
                y_title=title,
                z_title="correlation (−1 … 1)",
                caption="Correlation of every two tokens' rows.",
                diverging=True,
                limits=(-1, 1),
                annotate=False,
                square=True,
            ),
        )
        report.hero("circle" if "circle" in report.figures else "similarity")


# --- tokens ---------------------------------------------------------------------------------------
def value_tokens(subject: Subject, limit: int = 512) -> list[int]:
    """Tokens of the values 0 … n-1 in their order: those the task's group acts on, else those that
    the task spells as numbers, else all tokens; at most the first `limit` of these.
    """
    symmetry = subject.task.symmetry if subject.task else None
    if symmetry is not None:
        return list(symmetry.tokens)
    n = len(subject.model.W_E)
    return list(range(min(_count_numbers(subject) or n, n, limit)))


def in_order(subject: Subject) -> bool:
    """Return whether the value tokens stand in an order that circles are about: that of
    a cyclic group, or of numbers. Elements of other groups are merely listed.

    >>> from mechint.planted import group_product, modular_addition
    >>> in_order(modular_addition(5, (1,)).subject)
    True
    >>> in_order(group_product("S3", ("standard",)).subject)
    False
    """
    symmetry = subject.task.symmetry if subject.task else None
    if symmetry is None:
        return _count_numbers(subject) > 0
    group = symmetry.group
    return group.is_cyclic and bool((np.argsort(group.logarithms) == np.arange(group.order)).all())


def _count_numbers(subject: Subject) -> int:
    """The number of tokens, from the first on, that the task spells as numbers one after another; 0
    where these are no more than two.
    """
    texts = list(subject.task.vocabulary.tokens) if subject.task else []
    counting = itertools.takewhile(
        lambda i: texts[i].removeprefix("-").isdecimal() and int(texts[i]) == int(texts[0]) + i,
        range(len(texts)),
    )
    count = len(list(counting))
    return count if count > 2 else 0


# --- measures -------------------------------------------------------------------------------------
def across_ends(rows: Array) -> tuple[float, float]:
    """Mean inner product of centered rows up to n/20 apart if the first one followed the last: of
    those on both sides of the ends, and of as near ones between them; mean squared length 1. Equal
    on a circle.

    >>> across_ends(np.eye(4)[[0, 1, 2, 3]] + np.eye(4)[[1, 2, 3, 0]])
    (0.0, 0.0)
    """
    n = len(rows)
    centered = rows - rows.mean(0)
    gram = centered @ centered.T * n / max(float((centered**2).sum()), 1e-300)
    apart = np.arange(1, max(1, n // 20) + 1)
    ends = sum(np.trace(gram, n - d) for d in apart)
    near = sum(np.trace(gram, d) * d / (n - d) for d in apart)
    return float(ends / apart.sum()), float(near / apart.sum())


def fractional_rank(singular: Float[np.ndarray, " component"], share: float) -> float:
    """Least number of singular values whose squares hold `share` of all, between two whole numbers
    where the last is needed in part, so that nulls do not tie; all of them where they are zero.

    >>> fractional_rank(np.array([3.0, 1.0, 1.0, 1.0]), 0.5)
    0.6666666666666666
    """
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-300)
    whole = min(int(np.searchsorted(held, share - 1e-12)), len(held) - 1)
    before = float(held[whole - 1]) if whole else 0.0
    step = float(held[whole]) - before
    return whole + ((share - before) / step if step > 0 else 1.0)


def similarity(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """(n, n) Pearson correlations of the rows (n, d) of an embedding; comparable between models of
    any width.
    """
    centered = rows - rows.mean(1, keepdims=True)
    unit = centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), 1e-300)
    return unit @ unit.T


def in_layout(name: str) -> str:
    """A layout's name in a sentence, after "laid out".

    >>> in_layout("grid 2×5"), in_layout("mod 5")
    ('on a grid of the value mod 2 and mod 5', 'by the value mod 5')
    """
    if name.startswith("grid "):
        return "on a grid of the value mod {} and mod {}".format(*name[5:].split("×"))
    if name.startswith("mod "):
        return f"by the value {name}"
    return {"cyclic": "on circles", "line": "along a line"}.get(name, "by the distance of values")


# --- the figure -----------------------------------------------------------------------------------
def circle(
    rows: Array, harmonics: Harmonics, k: int, tokens: Sequence[int], share: float
) -> figures.Figure:
    """The rows projected on the two directions that vary at frequency k; share: of the energy that
    all circles hold.
    """
    n = len(rows)
    axes = harmonics.rows([k]) @ (rows - rows.mean(0))  # (2, d_model)
    at = (rows - rows.mean(0)) @ np.linalg.qr(axes.T)[0]
    return figures.scatter(
        at[:, 0],
        at[:, 1],
        title=f"Tokens on the circle of frequency {k}",
        x_title=f"first direction of frequency {k} (units of the embedding)",
        y_title=f"second direction of frequency {k} (units of the embedding)",
        color=(k * np.arange(n)) % n,
        color_title=f"{k} · value (mod {n})",
        cyclic=True,
        equal=True,
        text=[str(i) for i in range(len(tokens))],
        labels=n <= 40,
        caption=f"In order of {k} times the value, the tokens go round a circle. All circles hold "
        f"{share:.3g} of the energy.",
    )
