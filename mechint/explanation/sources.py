"""Sources of an answer, and tests of a program on inputs that are composed of them.

    sources = Sources(subject, rows)
    sources.logits({"L0H1": other})          # L0H1's output from other inputs, all else its own

The stream at the answer is a sum of finitely many terms, its own embedding and what each head
writes there, of which MLPs at the answer and the unembedding are a function. So an input can be
composed of the sources of different inputs, completely: nothing else reaches the answer. The tests
are functions of `Sources` that give a `Measured`; they know neither bounds nor words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.errors import NotApplicableError, UnknownNameError
from mechint.explanation.rules import Weights
from mechint.interventions import Replace, Site, logits_under
from mechint.interventions.resuming import detached_weights, resumes
from mechint.models.foreign.wrapped import WrappedModule
from mechint.models.forward import Forward
from mechint.models.layers import linear
from mechint.subject import Subject
from mechint.subject.activations import LOGITS
from mechint.task import rng

EMBEDDING = "embedding"
"""The source that every answer has."""
Values = Mapping[str, Tensor]
"""Variable → (example, …) its values."""


def needed_hooks(subject: Subject) -> list[str]:
    """The hooks by which the sources of a model are taken."""
    names = ("hook_z", "hook_v", "hook_pattern")
    each = [f"blocks.{layer}.attn.{name}" for layer in range(subject.n_layers) for name in names]
    return ["blocks.0.hook_resid_pre", *each]


def missing_hooks(subject: Subject) -> str:
    """The first of these that a model lacks, and what to do, in words; "" where it has all."""
    missing = [name for name in needed_hooks(subject) if name not in subject.hooks]
    if not any(".attn." in name for name in subject.hooks):
        return "has no head with hooks, which composing inputs of sources needs"
    said = "has no hook {}, which composing inputs of sources needs; wrap the model with it"
    return said.format(missing[0]) if missing else ""


SAME_PATTERN = 1e-6
"""Attention up to which a head of a pooled model is left as it is."""
FEW_READ, CHANGED = 64, 1e-5
"""Inputs on which a readout is looked at, and change of the largest logit that shows it reads."""


def places_read(subject: Subject) -> Sequence[int]:
    """The positions that the readout of a wrapped module reads, of one that answers once per
    example and so at every position alike: where another input's output of the last heads changes
    the logits. None of it where that is at each answer; () of other models.
    """
    hook, few = f"blocks.{subject.n_layers - 1}.attn.hook_z", subject.data[:FEW_READ]
    if not isinstance(subject.model, WrappedModule) or hook not in subject.hooks:
        return ()
    own, z = subject.logits(few, at=None), subject.activation(hook, None, few)
    if own.dim() != 3 or not bool((own == own[:, :1]).all()):
        return ()
    changed = list[Tensor]()
    for place in range(z.shape[1]):
        other = Replace(Site(hook, place), z[:, place].roll(1, 0))
        off = (logits_under(subject, [other], data=few) - own[:, 0]).abs().amax(1)
        changed.append(off > CHANGED * own.abs().max())
    reads, at = torch.stack(changed, 1), subject.answer_positions[: len(few)]
    if not bool(reads.scatter(1, at[:, None], False).any()):
        return ()
    return reads.any(0).nonzero().flatten().tolist()


def place_of(head: str) -> tuple[int, int]:
    """Layer and index of a head.

    >>> place_of("L1H12")
    (1, 12)
    """
    layer, index = head[1:].split("H")
    return int(layer), int(index)


class Sources:
    """The content that reaches the answer of some inputs, source by source.

    A source is ``embedding``, the stream before the first block at the answer, or ``LxHy``, what
    head y of layer x writes there. Composed logits are those of a model in which the named sources
    come from elsewhere and every other one is held, those of later heads too; MLPs at the answer
    and the final norm are computed from the new sum. Biases belong to the embedding. The
    composition in which each source is its own gives the model's logits.

    Of a wrapped module whose readout pools positions a source is what a head writes at all of them,
    its attention is the mean over them, and the embeddings are one more head of the first layer.

    Args:
        subject: a model with ``hook_resid_pre`` of its first block and ``hook_z``, ``hook_v`` and
            ``hook_pattern`` of every block: a native one, or a bridge or wrapped module with these.
        rows: examples of the subject's data; all when None. Index 0 is the first of them.
        pooled: True where the readout pools positions; None looks at what it reads.

    Cost: one forward of the inputs; a composition, one pass of the answers' rows through the MLPs
    (a native model), else one hooked forward.

    Raises:
        NotApplicableError: the model lacks one of the hooks.

    >>> from mechint.planted import modular_addition
    >>> sources = Sources(modular_addition(5, (1,)).subject)
    >>> sources.names[:2]
    ('embedding', 'L0H0')
    >>> other = torch.arange(25).roll(1)
    >>> taken = {name: other for name in sources.names}
    >>> bool((sources.answers(sources.logits(taken)) == sources.own[other]).all())
    True
    """

    def __init__(
        self,
        subject: Subject,
        rows: Int[Tensor, " example"] | None = None,
        pooled: bool | None = None,
    ) -> None:
        if missing := missing_hooks(subject):
            raise NotApplicableError(f"{subject.describe()}: {missing}")
        layers = range(subject.n_layers)
        self.subject = subject
        self.pooled = len(places_read(subject)) > 1 if pooled is None else pooled
        self.rows = torch.arange(len(subject.data)) if rows is None else rows.cpu()
        self._kept = dict[str, Tensor]()
        self._needed = [*needed_hooks(subject), LOGITS]
        self.n_heads = self._z(0).shape[-2]
        self.heads = tuple(f"L{layer}H{head}" for layer in layers for head in range(self.n_heads))
        self.heads += (f"L0H{self.n_heads}",) if self.pooled else ()
        self.names = self.heads if self.pooled else (EMBEDDING, *self.heads)

    def __len__(self) -> int:
        return len(self.rows)

    def among(self, kept: Tensor | slice) -> Sources:
        """The sources of some of the inputs: flags of these, or a slice."""
        return Sources(self.subject, self.rows[kept], self.pooled)

    def repeated(self, n: int) -> Sources:
        """The inputs several times, at least n in all, so that each is paired with several."""
        times = -(-n // len(self))
        return self if times == 1 else Sources(self.subject, self.rows.repeat(times), self.pooled)

    @cached_property
    def tokens(self) -> Int[Tensor, "example pos"]:
        """The inputs."""
        return self.subject.data.tokens[self.rows.to(self.subject.device)].cpu()

    @cached_property
    def at(self) -> Int[Tensor, " example"]:
        """Position of each answer."""
        return self.subject.answer_positions.cpu()[self.rows]

    @cached_property
    def visible(self) -> Bool[Tensor, "example pos"]:
        """Keys that the answer may attend to: those up to it, or all of a model that looks ahead,
        without padding.
        """
        places = torch.arange(self.tokens.shape[1])
        if self.subject.model_description.attention_dir == "causal":
            return places <= self.at[:, None]
        lengths = self.subject.data.lengths
        if lengths is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return places < lengths.cpu()[self.rows][:, None]

    @staticmethod
    def answers(logits: Float[Tensor, "example d_vocab_out"]) -> Int[Tensor, " example"]:
        """The answers that logits give."""
        return logits.argmax(1)

    @cached_property
    def own(self) -> Int[Tensor, " example"]:
        """The model's own answers."""
        return self.answers(self.own_logits)

    @cached_property
    def own_logits(self) -> Float[Tensor, "example d_vocab_out"]:
        """The model's own logits."""
        return self._held(LOGITS, answer=True)

    # --- activations ------------------------------------------------------------------------------
    def pattern(self, head: str) -> Float[Tensor, "example pos"]:
        """Attention of a head from the answer to each key."""
        layer, index = self._place(head)
        if index == self.n_heads:  # the embeddings, which a pool takes alike
            return self.visible / self.visible.sum(1, keepdim=True)
        held = self._held(f"blocks.{layer}.attn.hook_pattern", answer=True)[:, index]
        return held.mean(1) if self.pooled else held

    def attending(
        self, head: str, pattern: Float[Tensor, "example pos"]
    ) -> Float[Tensor, "example *pos d_head"]:
        """The output of a head if it attended so; its own attention where a row is NaN."""
        own, values = self.pattern(head), self._values(head)
        if self.pooled:
            left = pattern.isnan().any(1) | ((pattern - own).abs().amax(1) < SAME_PATTERN)
            made = torch.einsum("nt,ntd->nd", pattern.nan_to_num(0.0), values)
            return torch.where(left[:, None, None], self._own(head), made[:, None])
        left = pattern.isnan().any(1, keepdim=True)
        return torch.einsum("nt,ntd->nd", torch.where(left, own, pattern), values)

    def restricted(
        self, head: str, keys: Bool[Tensor, "example pos"]
    ) -> Float[Tensor, "example pos"]:
        """Attention of a head to some keys alone, by weights of its own that are made to sum to
        what all do; NaN where it has none for them.
        """
        own = self.pattern(head)
        kept = own * keys
        share = kept.sum(1, keepdim=True)
        factor = own.sum(1, keepdim=True) / share.clamp(min=1e-12)
        return torch.where(share > 1e-6, kept * factor, torch.nan)

    def mixed(
        self,
        head: str,
        rows: Int[Tensor, "example pos"],
        weights: Weights = None,
    ) -> Float[Tensor, "example *pos d_head"]:
        """The output of a head by its own attention with each key's value from the input that
        `rows` gives for it. Of a head of layer 0 the keys are then tokens of different inputs, and
        a key has the attention of its new token where weights are given: log-weights of tokens, or
        "own", the attention that it had in its input, beside that of the answer's own position.
        """
        places, pattern = torch.arange(rows.shape[1]), self.pattern(head)
        if self.pooled:
            layer, index = self._place(head)
            values = self._values(head)[rows, places]
            if index == self.n_heads:
                return values
            own = self._held(f"blocks.{layer}.attn.hook_pattern", answer=True)[:, index]
            return torch.einsum("nqt,ntd->nqd", own, values)
        if weights is not None:
            log = pattern.clamp(min=1e-12).log()
            own = log - log.gather(1, self.at[:, None])
            gain = own if isinstance(weights, str) else weights[self.tokens]
            moved = pattern * (gain[rows, places] - gain).exp()
            pattern = moved * pattern.sum(1, keepdim=True) / moved.sum(1, keepdim=True)
        return torch.einsum("nt,ntd->nd", pattern, self._values(head)[rows, places])

    def _values(self, head: str) -> Float[Tensor, "example pos d_head"]:
        layer, index = self._place(head)
        if index == self.n_heads:
            return self._embedding
        held = self._held(f"blocks.{layer}.attn.hook_v")
        return held[:, :, index * held.shape[2] // self.n_heads]  # some share keys and values

    def _held(self, hook: str, answer: bool = False) -> Tensor:
        """The activation of the inputs, at the answer or everywhere; one forward for all of a
        place.
        """
        if hook not in self._kept:
            names = [name for name in self._needed if name.endswith("hook_v") != answer]
            found = self.subject.activations(names, "answer" if answer else None)
            if answer and self.pooled:
                found |= self.subject.activations([name for name in names if name != LOGITS])
            for name, value in found.items():
                self._kept[name] = value[self.rows.to(value.device)].cpu()
        return self._kept[hook]

    def _place(self, head: str) -> tuple[int, int]:
        if head not in self.heads:
            raise UnknownNameError.of("head", head, self.heads)
        return place_of(head)

    def _own(self, head: str) -> Float[Tensor, "example pos d_head"]:
        """The output of a head everywhere, which is pooled."""
        layer, index = self._place(head)
        return self._embedding if index == self.n_heads else self._z(layer)[:, :, index]

    # --- compositions -----------------------------------------------------------------------------
    def logits(self, taken: Mapping[str, Tensor]) -> Float[Tensor, "example d_vocab_out"]:
        """Logits of inputs that are composed of sources.

        Args:
            taken: source → the input that each takes it from, (example,) indices of these inputs;
                or what it is, (example, d_model) of the embedding, (example, d_head) of a head, as
                `attending` and `mixed` give it. Sources that are not named are held.

        Raises:
            UnknownNameError: no such source.
        """
        for name in taken:
            if name not in self.names:
                raise UnknownNameError.of("source", name, self.names)
        start, where = self._embedding, None if self.pooled else "answer"
        stream = self.heads[-1] if self.pooled else EMBEDDING
        if (new := taken.get(stream)) is not None:
            start = start[new] if not new.is_floating_point() else new.expand_as(start)
        written = []
        for layer in range(self.subject.n_layers):
            z = self._z(layer)
            for index in range(self.n_heads):
                if (new := taken.get(f"L{layer}H{index}")) is not None:
                    z = z.clone() if z is self._z(layer) else z
                    found = new if new.is_floating_point() else self._z(layer)[new][..., index, :]
                    z[..., index, :] = found
            written.append(z)
        if resumes(self.subject.model):
            return self._tail(start, written)
        edits = [Replace(Site("blocks.0.hook_resid_pre", where), start)]
        edits += [
            Replace(Site(f"blocks.{layer}.attn.hook_z", where), z)
            for layer, z in enumerate(written)
        ]
        data = self.subject.data[self.rows.to(self.subject.device)]
        return logits_under(self.subject, edits, data=data).cpu()

    def _tail(self, x: Tensor, written: Sequence[Tensor]) -> Tensor:
        """Logits of a native model from the stream before its first block and what heads write."""
        weights = self._weights
        model = self.subject.model
        forward = Forward(weights, model.config)
        with torch.no_grad():
            x = x.to(self.subject.device)
            for layer, z in enumerate(written):
                name = f"blocks.{layer % model.config.n_layers}.attn"
                w_o, bias = weights[f"{name}.W_O"], weights.get(f"{name}.b_O")
                x = x + linear(z.to(x).flatten(1), w_o.flatten(0, 1), bias)
                x = forward.feed_forward(layer, x)
            return forward.unembed(x).cpu()

    @cached_property
    def _weights(self) -> dict[str, Tensor]:
        return detached_weights(self.subject.model)

    @property
    def _embedding(self) -> Float[Tensor, "example *pos d_model"]:
        return self._held("blocks.0.hook_resid_pre", answer=True)

    def _z(self, layer: int) -> Float[Tensor, "example *pos head d_head"]:
        return self._held(f"blocks.{layer}.attn.hook_z", answer=True)


MAX_ROUNDS = 12
"""Others of each input that an interchange takes a group from, at most."""


# --- tests ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Measured:
    """The count of a test.

    hits of n: inputs on which the model does what the program says. null_hits of null_n: the same
    of a program that says something else; None where nothing else could be said. chance: share of
    the inputs for which the program says what it says most often. left: compositions that are not
    counted, as no input has such tokens together.
    """

    hits: int
    n: int
    null_hits: int | None = None
    null_n: int = 0
    chance: float = 0.0
    left: int = 0

    @classmethod
    def of(cls, hits: Tensor, said: Tensor, null: Tensor | None = None) -> Measured:
        """The count of flags (example,), beside those of the null; said: the answers."""
        counted = (None, 0) if null is None else (int(null.sum()), len(null))
        most = int(said.unique(return_counts=True)[1].max()) / len(said) if len(said) else 0.0
        return cls(int(hits.sum()), len(hits), *counted, most)

    @property
    def alone(self) -> Measured:
        """The count without its null."""
        return replace(self, null_hits=None, null_n=0)

    @property
    def share(self) -> float:
        """hits / n; NaN of nothing."""
        return self.hits / self.n if self.n else float("nan")

    @property
    def null(self) -> float | None:
        """The share of the null."""
        return None if self.null_hits is None or not self.null_n else self.null_hits / self.null_n


@dataclass(frozen=True)
class Group:
    """Sources that bring the same variables, so that they come from one input together.

    value: (tokens (example, pos), answer positions) → variable → its values. keys: positions
    whose tokens heads of layer 0 bring each for itself, so that every one may come from another
    input, negative ones counted back from the answer; () where the group is taken whole. mask:
    tokens and positions → keys (example, pos), a random half of which may come from another input,
    where they are brought alike, or by weights; weights: source → these.
    """

    sources: tuple[str, ...]
    value: Callable[[Tensor, Tensor], Values]
    keys: tuple[int, ...] = ()
    mask: Callable[[Tensor, Tensor], Tensor] | None = None
    weights: Mapping[str, Weights] = field(default_factory=dict[str, "Weights"])


Answer = Callable[[Values], Int[Tensor, " example"]]
"""The answer of a program by the values of its variables; -1 where it says nothing."""


def order_of(n: int, *name: str | int) -> Int[Tensor, " n"]:
    """A random order of n inputs without fixed points, by the name of what takes it."""
    return in_one_cycle(torch.from_numpy(rng("sources", *name).permutation(n)))


def in_one_cycle(cycle: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The order in which each follows the next: without fixed points, where there are several.

    >>> in_one_cycle(torch.tensor([2, 0, 1]))
    tensor([2, 0, 1])
    """
    order = torch.empty_like(cycle)
    order[cycle] = cycle.roll(1)
    return order


def draw_rows(
    sources: Sources, group: Group, *name: str | int, only: int | None = None
) -> Int[Tensor, "example pos"]:
    """The input that each key of a group comes from: another one of each example, whole; each key
    of `group.keys`, or of these the one `only`, another; or half of the keys of `group.mask`.
    """
    n, ctx = sources.tokens.shape
    rows = torch.arange(n)[:, None].repeat(1, ctx)
    if group.keys:
        for key in group.keys if only is None else (only,):
            place = key + (sources.at + 1) * (key < 0)
            asked = sources.tokens.gather(1, sources.at[:, None]) * (place != sources.at)[:, None]
            other = same_values(torch.cat([sources.at[:, None], asked], 1), *name, key)
            rows[torch.arange(n), place] = other
    elif group.mask is not None:
        coin = torch.from_numpy(rng("sources half", *name).random((n, ctx))) < 0.5
        other = order_of(n, *name)
        where = coin & group.mask(sources.tokens, sources.at)
        rows = torch.where(
            where & group.mask(sources.tokens, sources.at)[other], other[:, None], rows
        )
    else:
        rows = order_of(n, *name)[:, None].expand(n, ctx)
    return rows


@dataclass
class ComposedInputs:
    """An input composed for each example: `taken` goes to `Sources.logits`; values: of the
    program's variables. possible: examples whose bags hold no two tokens together, nor one without
    another, that no input has so; of others the form of the inputs says nothing.
    """

    taken: dict[str, Tensor]
    values: dict[str, Tensor]
    possible: Bool[Tensor, " example"]


def compose(
    sources: Sources,
    groups: Sequence[Group],
    rows: Mapping[int, Int[Tensor, "example pos"]],
    rest: Sequence[str] = (),
    *name: str | int,
) -> ComposedInputs:
    """Take group i from the inputs rows[i], which are its own where i is not named, and every
    source of `rest`, which is said not to matter, from an input of its own.
    """
    made = ComposedInputs({}, {}, torch.ones(len(sources), dtype=torch.bool))
    places = torch.arange(sources.tokens.shape[1])
    for index, group in enumerate(groups):
        drawn = rows.get(index)
        if drawn is None:
            made.values.update(group.value(sources.tokens, sources.at))
            continue
        by_key = bool(group.keys) or group.mask is not None
        at = sources.at if by_key else sources.at[drawn[:, 0]]
        values = group.value(sources.tokens[drawn, places], at)
        made.values.update(values)
        for part, own in group.value(sources.tokens, sources.at).items():
            if own.dim() > 1:
                made.possible &= pairs_are_shown(values[part] > 0, own > 0)
        for source in group.sources:
            if source == EMBEDDING:  # its token is that of the answer's own position
                made.taken[source] = drawn.gather(1, sources.at[:, None])[:, 0]
            else:
                weights = group.weights.get(source)
                mixed = sources.mixed(source, drawn, weights) if by_key else drawn[:, 0]
                made.taken[source] = mixed
    for source in rest:
        made.taken[source] = order_of(len(sources), "rest", source, *name)
    return made


def pairs_are_shown(
    found: Bool[Tensor, "example token"], shown: Bool[Tensor, "input token"]
) -> Bool[Tensor, " example"]:
    """Flags of examples each pair of whose tokens is there, or is not, as in some input.

    >>> inputs = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]]).bool()
    >>> pairs_are_shown(torch.tensor([[1, 0, 0], [1, 0, 1], [0, 1, 1]]).bool(), inputs).tolist()
    [True, False, False]
    """
    found, shown = (torch.cat([one, ~one], 1).double() for one in (found, shown))
    never = (shown.T @ shown == 0).double()
    return ((found @ never) * found).sum(1) == 0


def composed(
    sources: Sources,
    groups: Sequence[Group],
    answer: Answer,
    rest: Sequence[str] = (),
    seed: int = 0,
) -> Measured:
    """Answers of inputs whose every source comes from an input of its own, where that is possible;
    the null: those that the program gives to another composition.
    """
    rows = {i: draw_rows(sources, one, "composed", i, seed) for i, one in enumerate(groups)}
    made = compose(sources, groups, rows, rest, "composed", seed)
    want = answer(made.values)
    got = sources.answers(sources.logits(made.taken))
    null = got == want[order_of(len(want), "composed null", seed)]
    said = (want >= 0) & made.possible
    found = Measured.of((got == want)[said], want[said], null[said])
    return replace(found, left=int((~made.possible).sum()))


def swapped(
    sources: Sources,
    groups: Sequence[Group],
    index: int,
    answer: Answer,
    only: int | None = None,
    seed: int = 0,
    enough: int = 0,
) -> Measured:
    """Answers when one group, or one key of it, comes from another input, on those that the
    program answers otherwise then; the null: the old answer. enough: so many of these are looked
    for, by up to `MAX_ROUNDS` others of each input.
    """
    before = answer(compose(sources, groups, {}).values)
    hits, wants, old = list[Tensor](), list[Tensor](), list[Tensor]()
    for number in range(MAX_ROUNDS):
        name = ("swapped", index, seed, number)
        made = compose(
            sources, groups, {index: draw_rows(sources, groups[index], *name, only=only)}
        )
        want = answer(made.values)
        changed = (want != before) & (want >= 0) & made.possible
        got = sources.answers(sources.logits(made.taken))
        hits.append((got == want)[changed])
        wants.append(want[changed])
        old.append((got == before)[changed])
        if sum(map(len, hits)) >= enough or not len(hits[0]):
            break
    return Measured.of(torch.cat(hits), torch.cat(wants), torch.cat(old))


def scrubbed(
    sources: Sources, groups: Sequence[Group], rest: Sequence[str] = (), seed: int = 0
) -> Measured:
    """Own answers kept when every group comes from an input with the same values of its variables,
    and what is said not to matter from any; the null: each group from any. Counted where some group
    has another input with these values.
    """
    own, n = compose(sources, groups, {}), len(sources)
    taken, null, moved = {}, {}, torch.zeros(len(sources), dtype=torch.bool)
    for index, group in enumerate(groups):
        values = group.value(sources.tokens, sources.at)
        code = _codes({name: own.values[name] for name in values})
        like = same_values(code, "resampled", index, seed)
        moved |= (sources.tokens[like] != sources.tokens).any(1)
        for source in group.sources:
            taken[source], null[source] = like, order_of(n, "resampled null", index, seed)
    for source in rest:
        taken[source] = null[source] = order_of(n, "rest", source, "resampled", seed)
    kept = [sources.answers(sources.logits(one)) == sources.own for one in (taken, null)]
    return Measured.of(kept[0][moved], sources.own[moved], kept[1])


def kept_without(
    sources: Sources, names: Sequence[str], *name: str | int, each: bool = False
) -> Measured:
    """Own answers kept when the sources `names` all come from one other input, or each from one of
    its own.
    """
    n, drawn = len(sources), ("each",) if each else ("without", *name)
    taken = {one: order_of(n, *drawn, *([one] if each else [])) for one in names}
    return Measured.of(sources.answers(sources.logits(taken)) == sources.own, sources.own)


def routed(
    sources: Sources,
    patterns: Mapping[str, Float[Tensor, "example pos"]],
    fixed: Collection[str] = (),
    seed: int = 0,
    differs: Callable[[Mapping[str, Tensor]], Bool[Tensor, " example"]] | None = None,
    rest: Sequence[str] = (),
) -> Measured:
    """Own answers kept when heads attend, jointly, as a program says, and the sources `rest`, which
    are said not to matter, all come from one other input, so that none of them stands in for these.

    patterns: head → attention to each key; NaN where the program says nothing. fixed: heads of
    which is said that their keys depend on no input. The null: the other heads attend as is said
    for another input, on inputs where that is something else, None where it nowhere is; where all
    are fixed, to one random key each, where there is one among those that are not named, or several
    are. differs: patterns → inputs whose answer they change by the program, which the null is of.
    """
    other = order_of(len(sources), "routed", seed)
    wrong, differ = dict(patterns), torch.zeros(len(sources), dtype=torch.bool)
    every = set(patterns) <= set(fixed)
    for head, one in patterns.items():
        if every:
            draw = torch.from_numpy(rng("routed key", head, seed).random(one.shape))
            named = one.nan_to_num(0.0) > 0
            free = sources.visible & (~named | (named.sum(1, keepdim=True) > 1))
            free = torch.where(free.any(1, keepdim=True), free, sources.visible)
            key = (draw * free).argmax(1)
            wrong[head] = torch.nn.functional.one_hot(key, one.shape[1]).to(one)
            differ[:] = True
        elif head not in fixed:
            theirs = one[other].nan_to_num(0.0) * sources.visible
            share = theirs.sum(1, keepdim=True)
            wrong[head] = torch.where(share > 0.5, theirs / share.clamp(min=1e-9), one)
            differ |= ((wrong[head] - one).abs().nan_to_num(0.0) > 1e-3).any(1)
    if differs is not None:
        differ &= differs(wrong)
    hit, null = (
        sources.answers(
            sources.logits(
                {head: sources.attending(head, one) for head, one in said.items()}
                | dict.fromkeys(rest, order_of(len(sources), "routed rest", seed))
            )
        )
        == sources.own
        for said in (patterns, wrong)
    )
    return Measured.of(hit, sources.own, null[differ] if bool(differ.any()) else None)


def reads(
    sources: Sources, keys: Mapping[str, Bool[Tensor, "example pos"]], rest: Sequence[str] = ()
) -> Measured:
    """Own answers kept when heads attend, jointly, to the named keys alone, by weights of their own
    that are made to sum to what all do, and the sources `rest` come from one other input; the null:
    to all other keys alone, alike where they have no weights for these; None where there are none.
    """
    alike, other = sources.visible.float(), order_of(len(sources), "read rest")

    def only(head: str, mask: Tensor) -> Tensor:
        pattern, even = sources.restricted(head, mask), alike * mask
        even = even / even.sum(1, keepdim=True)  # NaN where there is no such key
        return torch.where(pattern.isnan(), even, pattern)

    hit, null = (
        sources.answers(
            sources.logits(
                {
                    head: sources.attending(head, only(head, mask == named))
                    for head, mask in keys.items()
                }
                | dict.fromkeys(rest, other)
            )
        )
        == sources.own
        for named in (True, False)
    )
    others = torch.stack([(sources.visible & ~mask).any(1) for mask in keys.values()]).any(0)
    return Measured.of(hit, sources.own, null[others] if bool(others.any()) else None)


def moved_key(
    sources: Sources,
    heads: Sequence[str],
    key: Int[Tensor, " example"],
    operands: Bool[Tensor, "example pos"],
    answer: Callable[[Int[Tensor, " example"]], Int[Tensor, " example"]],
    seed: int = 0,
) -> Measured:
    """Answers when heads are made to attend to another operand than their key: on inputs that the
    program then answers otherwise, its answer; the null: the old answer.

    Args:
        key: position that the heads are said to attend to; -1 where they are said to attend to
            none, and are left.
        operands: positions whose tokens may be moved to.
        answer: positions (example,) → the program's answer with that key.
    """
    own = sources.tokens.gather(1, key.clamp(min=0)[:, None])
    free = operands & sources.visible & (sources.tokens != own)
    draw = torch.from_numpy(rng("sources moved key", seed).random(free.shape))
    other = (draw * free).argmax(1)
    want, before = answer(other), answer(key)
    asked = free.any(1) & (key >= 0) & (want != before) & (want >= 0)
    pattern = torch.nn.functional.one_hot(other, free.shape[1]).to(sources.own_logits)
    got = sources.answers(
        sources.logits({head: sources.attending(head, pattern) for head in heads})
    )
    return Measured.of((got == want)[asked], want[asked], (got == before)[asked])


def same_values(codes: Int[Tensor, "example value"], *name: str | int) -> Int[Tensor, " example"]:
    """For each input another one with the same values; itself where there is none."""
    _, group = torch.unique(codes, dim=0, return_inverse=True)
    order = order_of(len(codes), "same", *name)
    order = order[torch.argsort(group[order], stable=True)]
    rows = torch.empty_like(order)
    sizes = torch.bincount(group)
    start = 0
    for size in sizes[sizes > 0].tolist():
        members = order[start : start + size]
        rows[members] = members.roll(1)
        start += size
    return rows


def _codes(values: Values) -> Int[Tensor, "example value"]:
    """The values of all variables of each input, side by side."""
    return torch.cat([one.reshape(len(one), -1) for one in values.values()], 1).long()
