"""The probe of weights: copying heads and composition of heads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import orderings
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.probes._weights import circuits, composition
from mechint.probes._weights.circuits import HeadCircuits, eigenvalue_share, own_share
from mechint.probes._weights.composition import KINDS, HeadComposition
from mechint.subject import Subject
from mechint.task import IGNORE, FiniteTask, rng

if TYPE_CHECKING:
    from mechint.planted.assembly import Planted
    from mechint.planted.calibration import Calibration

TURNED = "what is read turned at random within what all heads share; the largest z of all pairs"


MOST_DRAWN = 128
"""Tokens that are drawn."""


@dataclass(frozen=True)
class Weights(Probe):
    r"""Which heads copy tokens, and which read what another head wrote?

    OV = W_E W_V W_O W_U and QK = W_E W_Q W_K' W_E', norms folded in. Copying: the eigenvalue share
    sum(lambda) / sum(|lambda|) of OV between tokens that can be answers and their classes; null:
    classes renamed. Composition: |A B| / (|A| |B|) of what a head reads with what an earlier head
    writes; null: heads turned within the subspace all heads share.
    """

    name: ClassVar[str] = "weights"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits"
    needs: ClassVar[tuple[Need, ...]] = (Need.EMBEDDING, Need.RESIDUAL, Need.HEAD_WEIGHTS)
    lead_rank: ClassVar[int] = 15

    draws: int = setting(199, "samples of the nulls of copying and composition", low=1)
    tokens: int = setting(512, "tokens whose own logit is looked up", low=1)
    most: int = setting(1024, "largest width of the residual stream", low=1)

    def unmet(self, subject: Subject) -> str | None:
        width = subject.model_description.d_model or 0
        if width > self.most:
            return f"its residual stream is {width} wide; weights.most allows {self.most}"
        if not {"blocks.0.attn.hook_q", "blocks.0.attn.hook_z"} <= subject.hooks:
            return "the model has no hooks at its heads' queries and outputs"
        heads = HeadCircuits.of(subject)
        if circuits.embedding(subject).shape[-1] != heads.o.shape[-1]:
            return "its token embedding is not as wide as its residual stream"
        if len(subject.data) and not circuits.describes(subject, heads):
            return "its queries and outputs are not its first norm, W_Q and W_O alone"
        one_layer = heads.n_loops == 1 and heads.places[-1][0] == 0
        if one_layer and circuits.same_tokens(subject) is None:
            return "it has one layer of heads, and no class that is a token"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        plants = {"induction head": library.induction, "pointer doubling": library.pointer_doubling}
        trials = tuple(
            Trial(
                f"{name} ({kind}-composition)",
                plants[name],
                library.untrained(plants[name])
                | library.in_one_subspace(plants[name])
                | library.another(other, plants[other]),
                lambda result, plant, kind=kind: float(
                    result.metrics[f"composition.{kind}.pair"] not in _planted_pairs(plant)
                ),
                "whether the pair is another",
                detects=lambda result, kind=kind: (
                    result.null[f"composition.{kind}"].p_value <= 0.01
                ),
            )
            for kind, (name, other) in zip("KQ", itertools.permutations(plants), strict=True)
        )
        return Calibration(trials, {"draws": 99})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        report, heads = Report(self, subject), HeadCircuits.of(subject)
        report.metric("heads", len(heads.places))
        sizes = {"draws": self.draws, "tokens": self.tokens}
        if table := add_copying(report, heads, **sizes, seed=seed):
            report.table("heads", {"head": heads.names, **table}, "one row per head")
            report.by_head(zip(heads.names, table["copying"], strict=True), "copying score")
        composed = composition.compose(heads, self.draws, seed)
        if composed is not None:
            self._composition(report, heads, composed)
            if np.nanmin(composed.p_values("K")) <= self.significance:
                add_matching(report, heads, composed, **sizes, seed=seed)
        if not report.findings:
            report.unclear(
                "Whether heads copy tokens is unclear.", "no two of its tokens can be answers"
            )
        draw_circuits(report, heads, composed)
        return report.result()

    def _composition(self, report: Report, heads: HeadCircuits, composed: HeadComposition) -> None:
        names, pairs = heads.names, []
        rows: dict[str, list] = {name: [] for name in ("kind", "writer", "reader", "score")}
        rows |= {"z": [], "p corrected": []}
        for kind in KINDS:
            p_values = composed.p_values(kind)
            for a, b in np.argwhere(~np.isnan(p_values)):
                found = composed.score[kind][a, b], composed.z[kind][a, b], p_values[a, b]
                row = (kind, names[a], names[b], *map(float, found))
                for name, value in zip(rows, row, strict=True):
                    rows[name].append(value)
                if p_values[a, b] <= self.significance:
                    pairs.append(f"{kind} {names[a]}→{names[b]}")
            self._pair(report, kind, heads, composed)
        report.metric("composition.pairs", pairs)
        report.table("composition", rows, "one row per pair of heads and kind of composition")

    def _pair(
        self, report: Report, kind: str, heads: HeadCircuits, composed: HeadComposition
    ) -> None:
        a, b = composed.best(kind)
        score, z = float(composed.score[kind][a, b]), float(composed.z[kind][a, b])
        first, second = heads.names[a], heads.names[b]
        part = {"Q": "queries", "K": "keys", "V": "values"}[kind]
        report.metric(f"composition.{kind}.score", score)
        report.metric(f"composition.{kind}.pair", f"{first}→{second}")
        report.metric(
            f"composition.{kind}", z, null=composed.null, how=TURNED, unit="standard deviations"
        )
        report.finding(
            Claim(
                f"The {part} of {second} overlap with what {first} writes.",
                no=f"No {kind}-composition was found; {first} to {second} comes nearest.",
                unclear=f"Whether there is {kind}-composition is unclear.",
                doubt="heads that write or read nothing, or fill the shared subspace evenly, score "
                "the same however they are turned"
                if z == 0
                else "heads overlap beyond random directions, in what all heads share: weights do "
                "not tell which reads which"
                if composed.hidden(kind, self.significance)
                else "",
                caveat="overlap of weights; no path was cut",
                at_chance=True,
            ),
            Effect(z, "standard deviations", "above turned heads"),
            null=f"composition.{kind}",
        )


def _planted_pairs(plant: Planted) -> set[str]:
    """Heads of adjacent layers, each of which reads what the one before wrote."""
    names = ["L{}H{}".format(*place) for place in plant.truth["heads"].values()]
    return {f"{a}→{b}" for a, b in itertools.pairwise(names)}


# --- table and figures ----------------------------------------------------------------------------
def draw_circuits(report: Report, heads: HeadCircuits, composed: HeadComposition | None) -> None:
    """The full OV circuit of the head that copies most, the QK circuits of a head, and z of all
    pairs.
    """
    subject = report.subject
    head = heads.names.index(report.metrics.get("copying.head", heads.names[0]))
    unembed = circuits.unembedding(subject)
    if unembed is not None:
        embed = circuits.embedding(subject)[:MOST_DRAWN]
        full = embed @ heads.v[head] @ heads.o[head] @ unembed[:, :MOST_DRAWN]
        report.figure("ov", _circuit(full, f"OV circuit of {heads.names[head]}", "class"))
    asking = composed.best("K")[1] if composed is not None else head
    tokens = circuits.embedding(subject)[:MOST_DRAWN]
    full = tokens @ heads.q[asking] @ heads.k[asking].T @ tokens.T
    report.figure("qk", _circuit(full, f"QK circuit of {heads.names[asking]}", "key's token"))
    if composed is not None:
        report.figure("composition", _composition(heads, composed))


def _circuit(full: Tensor, title: str, columns: str) -> figures.Figure:
    return figures.heatmap(
        full,
        title=title,
        x_title=columns,
        y_title="token",
        z_title="entry (score or logit, up to the norms' scale)",
        diverging=True,
        caption="A bright diagonal is a head that copies, or matches, what it reads.",
    )


def _composition(heads: HeadCircuits, composed: HeadComposition) -> figures.Figure:
    paired = np.isfinite(composed.z["K"])  # (writer, reader)
    writers, readers = np.flatnonzero(paired.any(1)), np.flatnonzero(paired.any(0))
    z = np.concatenate([composed.z[kind][np.ix_(writers, readers)] for kind in KINDS], 1)
    return figures.heatmap(
        z,
        title="What heads read overlaps with what others write",
        x=[f"{heads.names[index]} {kind}" for kind in KINDS for index in readers],
        y=[heads.names[index] for index in writers],
        x_title="reader and how it reads",
        y_title="writer",
        z_title="composition score (standard deviations from turned heads)",
        diverging=True,
        caption="Bright cells are pairs that overlap beyond the subspace that all heads share.",
    )


# --- tokens that heads copy or match --------------------------------------------------------------
RENAMED = "classes renamed at random, the largest share of all heads"
QUERIES = "the tokens of the queries renamed at random"
MOST = 0.5
"""A circuit that copies or matches does so for more of the tokens: an eigenvalue share of 1 says
nothing of entries off the diagonal that are larger (a triangular matrix has it)."""


def centered(rows: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
    """Rows minus their mean."""
    return rows - rows.mean(0)


def add_copying(
    report: Report, heads: HeadCircuits, *, draws: int, tokens: int, seed: int
) -> dict[str, list]:
    """Report the head that copies most, among tokens that can be answers; columns of the table of
    heads.

    draws: samples of the null; tokens: at most, whose own class is looked up.
    """
    subject = report.subject
    classes, unembed = circuits.same_tokens(subject), circuits.unembedding(subject)
    if classes is None or unembed is None or len(classes[0]) < 2:
        return {}
    ids, columns = _answerable(subject, *classes)
    if len(ids) < 2:
        return {}
    left = centered(circuits.embedding(subject)[ids]) @ heads.v  # (head, token, d_head)
    right = heads.o @ centered(unembed[:, columns].T).T  # (head, d_head, class)
    shares, own = eigenvalue_share(left, right), np.array(own_share(left, right, tokens))
    draw, null = rng("weights classes", seed), []
    for _ in range(draws):
        order = torch.from_numpy(draw.permutation(len(ids)))
        null.append(float(eigenvalue_share(left[:, order], right).max()))
    ranked = shares.numpy().copy()
    if bool((own > MOST).any()):
        ranked[own <= MOST] = -np.inf
    top = int(ranked.argmax())
    name, share = heads.names[top], float(shares[top])
    report.metric("copying.head", name)
    one = Null.sampled("copying", share, null, RENAMED, orderings(len(ids)))
    report.metric("copying", share, null=one, unit="−1 … 1")
    report.metric("copying.own", float(own[top]), unit="share of tokens, 0–1")
    above = int(((shares.numpy() > max(null)) & (own > MOST)).sum())
    report.metric("copying.heads", above)
    effect, least = Effect.of(one, "", "eigenvalue share", "renamed classes"), 0.0
    if own[top] <= MOST:  # not copying, whatever the share of its eigenvalues
        label = f"share of tokens that {name} raises most themselves"
        effect, least = Effect(float(own[top]), label=label), MOST
    report.finding(
        Claim(
            f"The OV circuit of {name} copies tokens"
            + (f", one of at least {above} that do." if above > 1 else "."),
            no="No OV circuit that copies tokens was found.",
            unclear="Whether an OV circuit copies tokens is unclear.",
            lead=True,
            at_chance=True,
        ),
        effect,
        least=least,
        null="copying",
    )
    return {"copying": shares.tolist(), "own class largest": own.tolist()}


def add_matching(
    report: Report,
    heads: HeadCircuits,
    composed: HeadComposition,
    *,
    draws: int,
    tokens: int,
    seed: int,
) -> None:
    """Report whether the queries of the pair with the largest K-composition match their own token.

    draws: samples of the null; tokens: at most, whose own score is looked up.
    """
    a, b = composed.best("K")
    embed = centered(circuits.embedding(report.subject))
    left = embed @ heads.q[b]  # (token, d_head)
    right = (embed @ heads.v[a] @ heads.o[a] @ heads.k[b]).T
    share, pair = float(eigenvalue_share(left, right)), f"{heads.names[b]} through {heads.names[a]}"
    (own,) = own_share(left[None], right[None], tokens)
    draw = rng("weights tokens", seed)
    null = [
        float(eigenvalue_share(left[torch.from_numpy(draw.permutation(len(left)))], right))
        for _ in range(draws)
    ]
    one = Null.sampled("matching", share, null, QUERIES, orderings(len(left)))
    report.metric("matching", share, null=one, unit="−1 … 1")
    report.metric("matching.own", own, unit="share of tokens, 0–1")
    report.finding(
        Claim(
            f"The QK circuit of {pair} matches tokens with themselves.",
            no=f"The QK circuit of {pair} does not match tokens with themselves.",
            unclear=f"Whether the QK circuit of {pair} matches tokens with themselves is unclear.",
            at_chance=True,
        ),
        Effect.of(one, "", "eigenvalue share", "renamed tokens"),
        holds=own > MOST,
        null="matching",
    )


def _answerable(
    subject: Subject, ids: list[int], columns: list[int]
) -> tuple[list[int], list[int]]:
    """The tokens, with their classes' columns, that are the answer of some example; all of them
    for a language model, whose prompts are a sample.

    Tokens that never are an answer, such as brackets and operators, cannot be copied to one.
    """
    task = subject.known_task
    sampled = task is None or (isinstance(task, FiniteTask) and task.is_sample)
    if sampled or not len(subject.answers):
        return ids, columns
    asked: set[int] = set()
    for part, targets in zip(task.output_slices.values(), subject.targets.T, strict=True):
        asked |= {part.start + label for label in targets[targets != IGNORE].unique().tolist()}
    kept = [pair for pair in zip(ids, columns, strict=True) if pair[1] in asked]
    return [token for token, _ in kept], [column for _, column in kept]
