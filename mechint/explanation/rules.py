"""Rules: which keys a head attends to, as a function of the tokens, and the value that it brings.

A rule is one line of a function of `Inputs`; such functions are registered in the entry-point group
``mechint.rules``, so that other packages can add their own:

    [project.entry-points."mechint.rules"]
    palindromes = "my_package.rules:mirrored"

Tokens whose number is the same in all inputs are *structural* (a separator, an end mark); the
others are *operands*, among which rules look for the largest, the smallest and so on.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.registry import RULES

MAX_SYMBOLS = 24
"""Operands up to which every one has rules of its own."""
MAX_POSITIONS = 64
"""Positions up to which every one has a rule of its own."""
MIN_MASS = 0.08
"""Mean attention from which a position is among those that a head reads by its own weights."""
ALIKE = 0.1
"""Log-attention by which no two tokens differ that are attended to alike."""
NOTHING = -1
"""The value of a token variable whose rule finds no key."""

Keys = Callable[[Tensor, Tensor], Tensor]
Weights = Float[Tensor, " d_vocab"] | Literal["own"] | None


@dataclass(frozen=True)
class Inputs:
    """The inputs that rules are made for.

    tokens (example, pos) and the positions `at` (example,) of their answers; causal: whether the
    answer sees no later token; d_vocab: tokens that the model reads.

    >>> rows = torch.tensor([[9, 1, 8, 2], [9, 2, 8, 2], [9, 1, 8, 3]])
    >>> inputs = Inputs(rows, torch.tensor([3, 3, 3]), True, 10)
    >>> inputs.operands.tolist(), inputs.structural.tolist()
    ([1, 2, 3], [8, 9])
    """

    tokens: Int[Tensor, "example pos"]
    at: Int[Tensor, " example"]
    causal: bool
    d_vocab: int

    def visible(self, tokens: Tensor, at: Tensor) -> Bool[Tensor, "example pos"]:
        """Keys that the answer may attend to."""
        places = torch.arange(tokens.shape[1])
        return places <= at[:, None] if self.causal else torch.ones_like(tokens, dtype=torch.bool)

    @cached_property
    def _counts(self) -> Int[Tensor, "example d_vocab"]:
        return count_tokens(self.tokens, self.visible(self.tokens, self.at), self.d_vocab)

    @cached_property
    def operands(self) -> Int[Tensor, " operand"]:
        """Tokens whose number is not the same in all inputs; where all have the same, those that
        do not keep their positions.
        """
        counts = self._counts
        free = (counts != counts[0]).any(0)
        if not bool(free.any()):
            shown = self.visible(self.tokens, self.at)
            moves = ((self.tokens != self.tokens[0]) & shown).any(0)
            free[self.tokens[:, moves].unique()] = True
        return free.nonzero().flatten()

    @cached_property
    def structural(self) -> Int[Tensor, " token"]:
        """The other tokens of the inputs."""
        used = self._counts.any(0)
        used[self.operands] = False
        return used.nonzero().flatten()

    def is_operand(self, tokens: Tensor, at: Tensor) -> Bool[Tensor, "example pos"]:
        """Visible operands."""
        return torch.isin(tokens, self.operands) & self.visible(tokens, at)

    @cached_property
    def aligned(self) -> int | None:
        """The position of all answers, where it is one."""
        return int(self.at[0]) if bool((self.at == self.at[0]).all()) else None

    def counted(self, place: int) -> int:
        """A place behind the tokens up to the answer, from their start where it is not the last of
        all answers, so that the last token is that of the input.
        """
        at = self.aligned
        last = self.causal and (at is None or at == self.tokens.shape[1] - 1)
        return place if at is None or last else at + 1 + place

    @property
    def own_python(self) -> str:
        """The token at the answer, in Python."""
        return f"t[{self.counted(-1)}]"

    @property
    def operands_python(self) -> str:
        """The operands, in Python."""
        return "operands(t)" if len(self.structural) else "t"

    @cached_property
    def own_is_constant(self) -> bool:
        """True where the token at the answer is the same in all inputs."""
        own = self.own(self.tokens, self.at)
        return bool((own == own[0]).all())

    @staticmethod
    def own(tokens: Tensor, at: Tensor) -> Int[Tensor, " example"]:
        """The token at the answer."""
        return tokens.gather(1, at[:, None])[:, 0]


@dataclass(frozen=True)
class Rule:
    """Keys that a head attends to, alike, and the value that it brings.

    name: after "attends to". python: the value as an expression over the tokens ``t`` up to the
    answer. keys: (tokens (example, pos), answer positions (example,)) → flags (example, pos); none
    where the rule says nothing. kind: "token", the keys hold one token, which is the value; "bag",
    the value counts the operands among them. shift: how far behind its key the value stands, as a
    later layer's head may bring a token that an earlier one put there. fixed: the keys depend on
    no input. place: they are a place told by marks, which a position says as well where it is the
    same in all inputs. weights: log-weights of tokens by which a bag is read; "own": whatever
    weights of its own the head gives these keys, so that each is a variable.
    """

    name: str
    python: str
    keys: Keys
    kind: Literal["token", "bag"] = "token"
    shift: int = 0
    fixed: bool = False
    place: bool = False
    weights: Weights = dataclasses.field(default=None, compare=False)

    def pattern(self, tokens: Tensor, at: Tensor) -> Float[Tensor, "example pos"]:
        """The attention that the rule says; NaN where it says nothing."""
        mask = self.keys(tokens, at).float()
        if isinstance(self.weights, Tensor):
            mask = mask * self.weights[tokens].exp()
        total = mask.sum(1, keepdim=True)
        return torch.where(total > 0, mask / total.clamp(min=1e-12), torch.nan)

    def key(self, tokens: Tensor, at: Tensor) -> Int[Tensor, " example"]:
        """The first of the keys; -1 where there is none."""
        mask = self.keys(tokens, at)
        return torch.where(mask.any(1), mask.int().argmax(1), -1)

    def token(self, tokens: Tensor, at: Tensor) -> Int[Tensor, " example"]:
        """The token that is brought; `NOTHING` where there is none."""
        mask = self.keys(tokens, at)
        last = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
        place = last + self.shift
        there = mask.any(1) & (place >= 0) & (place < mask.shape[1])
        found = tokens.gather(1, place.clamp(0, mask.shape[1] - 1)[:, None])[:, 0]
        return torch.where(there, found, NOTHING)

    def tells(self, other: Rule) -> bool:
        """Return whether one of two rules names a token by its place and the other does not."""
        return (self.fixed or self.place) != (other.fixed or other.place)

    def shifted(self, by: int) -> Rule:
        """The rule of which the token `by` behind the key is the value."""
        words = "after" if by > 0 else "before"
        name = f"{self.name}, of which the token {words} is brought"
        beside = f"t[i {'+' if by > 0 else '-'} {abs(by)}]"
        own = self.python == "t[-1]"
        python = f"t[{by - 1}]" if own else self.python.replace("t[i]", beside, 1)
        return dataclasses.replace(self, name=name, python=python, shift=by)

    def __str__(self) -> str:
        return self.name


def is_constant(keys: Bool[Tensor, "example pos"]) -> bool:
    """Return whether keys are the same in all inputs."""
    return bool((keys == keys[0]).all())


def count_tokens(
    tokens: Int[Tensor, "example pos"], mask: Bool[Tensor, "example pos"], d_vocab: int
) -> Int[Tensor, "example d_vocab"]:
    """Counts of each token at the positions of the mask."""
    counts = torch.zeros(len(tokens), d_vocab, dtype=torch.long)
    return counts.scatter_add_(1, tokens, mask.long())


def rules_for(inputs: Inputs) -> list[Rule]:
    """Every rule of the registry for some inputs, each name once."""
    made = {rule.name: rule for name in RULES for rule in RULES[name](inputs)}
    return list(made.values())


# --- one line a rule ------------------------------------------------------------------------------
def by_position(inputs: Inputs) -> Iterator[Rule]:
    """Keys at a place: of the sequence, or counted back from the answer."""
    yield Rule("its own token", inputs.own_python, partial(mark_places, [-1]), fixed=True)
    least = int(inputs.at.min()) if inputs.causal else inputs.tokens.shape[1] - 1
    for place in range(min(least + 1, MAX_POSITIONS)):
        if place != inputs.aligned:
            keys = partial(mark_places, [place])
            yield Rule(f"position {place}", f"t[{place}]", keys, fixed=True)
    if inputs.aligned is None and inputs.causal:
        for back in range(1, min(least, MAX_POSITIONS) + 1):
            words = "the previous token" if back == 1 else f"the token {back} before the answer"
            keys = partial(mark_places, [-1 - back])
            yield Rule(words, f"t[{-1 - back}]", keys, fixed=True)


def by_size(inputs: Inputs) -> Iterator[Rule]:
    """The key whose operand is the largest, the smallest, or the next to the answer's own."""
    ops, own = inputs.operands_python, inputs.own_python
    ranked, near = partial(mark_ranked, inputs), partial(_next_in_size, inputs)
    for words, python, keys in (
        ("largest", f"max({ops})", partial(ranked, -1)),
        ("smallest", f"min({ops})", partial(ranked, 0)),
        ("second largest", f"sorted({ops})[-2]", partial(ranked, -2)),
        ("second smallest", f"sorted({ops})[1]", partial(ranked, 1)),
        ("next larger", f"min((x for x in {ops} if x > {own}), default=None)", partial(near, 1)),
        ("next smaller", f"max((x for x in {ops} if x < {own}), default=None)", partial(near, -1)),
    ):
        yield Rule(f"the {words} token", python, keys)


def by_match(inputs: Inputs) -> Iterator[Rule]:
    """Keys that stand at or after an earlier token equal to the answer's own."""
    if not inputs.causal:
        return
    equal, after = "t[i] == t[-1]", "t[i - 1] == t[-1]"
    # no input has two earlier equal tokens, so "the last" and "the only" cannot be told apart
    if bool((_earlier_equals(inputs.tokens, inputs.at).sum(1) < 2).all()):
        only = _python_last(equal, 0, 1, "only")
        yield Rule("the only earlier equal token", only, partial(_only_earlier_equal, 0))
        words = "the token after the only earlier equal one"
        yield Rule(words, _python_last(after, 1, 0, "only"), partial(_only_earlier_equal, 1))
    else:
        python = _python_last(equal, 0, 1)
        yield Rule("the last earlier equal token", python, partial(mark_equal, 0))
        last = _python_last(after, 1, 0)
        yield Rule("the token after an earlier equal one", last, partial(mark_equal, 1))
        pair = f"either({_python_last('t[i - 2 : i] == t[-2:]', 2, 0)}, {last})"
        yield Rule("the token after an earlier equal pair", pair, mark_after_pair)
    own, ops = inputs.own_python, inputs.operands_python
    for more, (words, python, place) in itertools.product(
        ("", " + 1"), (("its own token", own, None), ("the first token", "t[0]", 0))
    ):
        keys = partial(_position_named, bool(more), place)
        yield Rule(f"the position that {words} names{more}", f"t[{python}{more}]", keys)
    yield Rule("the first operand", f"{ops}[0]", partial(_first_operand, inputs), place=True)
    yield Rule("the last operand", f"{ops}[-1]", partial(_last_operand, inputs), place=True)


def by_mark(inputs: Inputs) -> Iterator[Rule]:
    """Keys at and beside a structural token."""
    for mark in inputs.structural.tolist()[:MAX_SYMBOLS] if inputs.causal else ():
        for by, words, key, low in (
            (1, "the token after", "t[i - 1]", 1),
            (-1, "the token before", "t[i + 1]", 0),
            (0, "the mark", "t[i]", 0),  # beside which a later layer may find a token
        ):
            python = _python_last(f"{key} == {mark}", low, int(by < 0))
            yield Rule(f"{words} {mark}", python, partial(_beside, mark, by), place=True)


def by_token(inputs: Inputs) -> Iterator[Rule]:
    """All keys alike, or those whose token is of a kind."""
    ops, own = inputs.operands_python, inputs.own_python
    every = f"Counter({ops})"
    yield Rule("all tokens", every, inputs.visible, "bag")
    yield Rule("all operands", every, inputs.is_operand, "bag")
    if inputs.causal:
        earlier = every if inputs.own_is_constant else f"Counter({ops}[:-1])"
        yield Rule("all earlier tokens", earlier, partial(_earlier, inputs), "bag")
    if len(inputs.operands) > MAX_SYMBOLS:
        return
    otherwise = "" if inputs.own_is_constant else f" or Counter([{own}])"
    for one in inputs.operands.tolist():
        kind = f"Counter(x for x in {ops} if x == {one}){otherwise}"
        keys = partial(_tokens_or_own_place, inputs, one)
        yield Rule(f"tokens = {one}, else itself", kind, keys, "bag")


# --- keys -----------------------------------------------------------------------------------------
def _at(tokens: Tensor, places: Tensor) -> Tensor:
    """Flags (example, pos) of one place each; none where it is outside."""
    return torch.arange(tokens.shape[1]) == places[:, None]


def mark_places(places: Sequence[int], tokens: Tensor, at: Tensor) -> Tensor:
    """Flags of places, all counted from the start, or all back from the answer, which is at -1."""
    start = (at[:, None] + 1) * (places[0] < 0)
    return torch.isin(torch.arange(tokens.shape[1]) - start, torch.tensor(places))


def mark_ranked(inputs: Inputs, rank: int, tokens: Tensor, at: Tensor) -> Tensor:
    """Operands equal to the one of a rank."""
    shown = inputs.is_operand(tokens, at)
    count = shown.sum(1)
    place = count + rank if rank < 0 else torch.full_like(count, rank)
    ordered = torch.where(shown, tokens, inputs.d_vocab + 1).sort(1).values
    there = (place >= 0) & (place < count)
    value = ordered.gather(1, place.clamp(0, tokens.shape[1] - 1)[:, None])
    return shown & (tokens == value) & there[:, None]


def _next_in_size(inputs: Inputs, sign: int, tokens: Tensor, at: Tensor) -> Tensor:
    own = Inputs.own(tokens, at)[:, None]
    shown = inputs.is_operand(tokens, at) & (sign * tokens > sign * own)
    far = 4 * inputs.d_vocab
    nearest = torch.where(shown, sign * tokens, far).amin(1, keepdim=True)
    return shown & (sign * tokens == nearest)


def _python_last(condition: str, low: int, less: int, one: str = "last") -> str:
    """The last token t[i] of which a condition holds, in Python, or the only one; None where there
    is none.
    """
    stop = "len(t)" if not less else f"len(t) - {less}"
    return f"{one}(t[i] for i in range({low}, {stop}) if {condition})"


def _flag_last(mask: Tensor) -> Tensor:
    places = torch.arange(mask.shape[1])
    last = torch.where(mask, places, -1).amax(1)
    return places == last[:, None]


def _earlier_equals(tokens: Tensor, at: Tensor) -> Tensor:
    """Earlier tokens equal to the answer's own."""
    places = torch.arange(tokens.shape[1])
    return (tokens == Inputs.own(tokens, at)[:, None]) & (places < at[:, None])


def _only_earlier_equal(by: int, tokens: Tensor, at: Tensor) -> Tensor:
    """The place `by` after the earlier token equal to the answer's own, where it is one."""
    mask = _earlier_equals(tokens, at)
    return _behind(mask & (mask.sum(1) == 1)[:, None], by)


def _behind(mask: Tensor, by: int = 1) -> Tensor:
    """Flags `by` places further; what leaves the sequence is lost."""
    moved = mask.roll(by, 1)
    moved[:, slice(by) if by >= 0 else slice(by, None)] = False
    return moved


def mark_equal(by: int, tokens: Tensor, at: Tensor) -> Tensor:
    """The place `by` after the last earlier token equal to the answer's own."""
    return _flag_last(_behind(_earlier_equals(tokens, at), by))


def mark_after_pair(tokens: Tensor, at: Tensor) -> Tensor:
    before = torch.cat([torch.full_like(tokens[:, :1], -1), tokens[:, :-1]], 1)
    own = before.gather(1, at[:, None])
    pair = _flag_last(_behind(_earlier_equals(tokens, at) & (before == own)))
    return torch.where(pair.any(1, keepdim=True), pair, mark_equal(1, tokens, at))


def _position_named(plus: int, place: int | None, tokens: Tensor, at: Tensor) -> Tensor:
    named = (Inputs.own(tokens, at) if place is None else tokens[:, place]) + plus
    return _at(tokens, torch.where(named <= at, named, -1))


def _first_operand(inputs: Inputs, tokens: Tensor, at: Tensor) -> Tensor:
    return _flag_last(inputs.is_operand(tokens, at).flip(1)).flip(1)


def _last_operand(inputs: Inputs, tokens: Tensor, at: Tensor) -> Tensor:
    return _flag_last(inputs.is_operand(tokens, at))


def _beside(mark: int, by: int, tokens: Tensor, at: Tensor) -> Tensor:
    places = torch.arange(tokens.shape[1])
    return _flag_last(_behind((tokens == mark) & (places <= at[:, None]), by)) & (
        places <= at[:, None]
    )


def _earlier(inputs: Inputs, tokens: Tensor, at: Tensor) -> Tensor:
    return inputs.visible(tokens, at) & (torch.arange(tokens.shape[1]) != at[:, None])


def _tokens_or_own_place(inputs: Inputs, one: int, tokens: Tensor, at: Tensor) -> Tensor:
    """The operands equal to one, or where there are none the answer's own place."""
    mask = inputs.is_operand(tokens, at) & (tokens == one)
    return torch.where(mask.any(1, keepdim=True), mask, _at(tokens, at))


# --- rules that are fitted to a head --------------------------------------------------------------
def read_positions(places: Sequence[int]) -> Rule:
    """A few positions, by whatever weights of its own the head gives them."""
    name = f"positions {', '.join(map(str, places))}, by weights of its own"
    return Rule(name, "", partial(mark_places, places), fixed=True, weights="own")


def weighted_tokens(inputs: Inputs, pattern: Float[Tensor, "example pos"]) -> Rule:
    """All tokens, each by a weight of its own: the mean of its log-attention above that of the
    answer's own position.
    """
    shown = inputs.visible(inputs.tokens, inputs.at)
    score = pattern.clamp(min=1e-9).log()
    score = score - score.gather(1, inputs.at[:, None])
    total = torch.zeros(inputs.d_vocab).index_add_(0, inputs.tokens[shown], score[shown])
    number = torch.zeros(inputs.d_vocab).index_add_(
        0, inputs.tokens[shown], torch.ones(int(shown.sum()))
    )
    weights = total / number.clamp(min=1)
    python, spread = f"Counter({inputs.operands_python})", weights[number > 0]
    name = "weighted by token" if spread.max() - spread.min() > ALIKE else "all alike"
    return Rule(f"all tokens, {name}", python, inputs.visible, "bag", weights=weights)


def last_of_set(inputs: Inputs, pattern: Float[Tensor, "example pos"]) -> Rule:
    """The last of the operands above the largest gap of their mean attention, as a ratio."""
    shown = inputs.is_operand(inputs.tokens, inputs.at)
    mass = torch.zeros(inputs.d_vocab).index_add_(0, inputs.tokens[shown], pattern[shown])
    mean = mass / torch.bincount(inputs.tokens[shown], minlength=inputs.d_vocab)
    ordered, place = mean[inputs.operands].clamp(min=1e-6).log().sort()
    chosen = inputs.operands[place[int(ordered.diff().argmax()) + 1 :]].sort().values
    said = str(set(chosen.tolist()))

    def keys(tokens: Tensor, at: Tensor) -> Tensor:
        return _flag_last(torch.isin(tokens, chosen) & inputs.visible(tokens, at))

    return Rule(f"the last of {said}", f"last(x for x in t if x in {said})", keys)


# --- rules that the inputs do not tell apart ------------------------------------------------------
@dataclass(frozen=True)
class IndistinguishableRule:
    """A rule with the same keys as another one on all inputs: its name, and how to tell them apart.

    by: what prompts that do would have ("other lengths"); example: one of these. differs: one of
    the two names a place and the other does not, so that these prompts tell nothing of it.
    """

    name: str
    by: str
    example: tuple[int, ...]
    differs: bool = False

    def __str__(self) -> str:
        return f"{self.name} (prompts of {self.by} would tell: {list(self.example)})"


def equal_rules(rule: Rule, rules: Iterable[Rule], inputs: Inputs) -> list[IndistinguishableRule]:
    """Rules whose keys are those of `rule` on all inputs, but not on some changed one."""
    own = rule.keys(inputs.tokens, inputs.at)
    found = [
        other
        for other in rules
        if not rule.name.startswith(other.name)
        and other.kind == rule.kind
        and torch.equal(other.keys(inputs.tokens, inputs.at), own)
    ]
    changed = list(changed_inputs(inputs)) if found else []
    told = [_distinguishing_input(rule, other, changed) for other in found]
    return [one for one in told if one is not None]


def _distinguishing_input(
    rule: Rule, other: Rule, changed: Iterable[tuple[str, Tensor, Tensor]]
) -> IndistinguishableRule | None:
    for words, tokens, at in changed:
        differ = (rule.keys(tokens, at) != other.keys(tokens, at)).any(1)
        if bool(differ.any()):
            row = int(differ.int().argmax())
            example = tuple(tokens[row, : int(at[row]) + 1].tolist())
            return IndistinguishableRule(other.name, words, example, rule.tells(other))
    return None


def changed_inputs(inputs: Inputs, n: int = 64) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Some inputs with one operand fewer, with the operands in another order, and with operands
    drawn anew: words, tokens, answer positions.
    """
    draw = torch.Generator().manual_seed(0)
    tokens, at = inputs.tokens[:n], inputs.at[:n]
    shown = inputs.is_operand(tokens, at)
    shown[torch.arange(len(tokens)), at] = False  # the answer's own token stays
    noise = torch.rand(tokens.shape, generator=draw)
    if inputs.causal and bool((shown.sum(1) > 1).all()):
        gone = (noise * shown).argmax(1)[:, None]
        place = torch.arange(tokens.shape[1])[None]
        kept = (place + (place >= gone).long()).clamp(max=tokens.shape[1] - 1)
        yield "other lengths", tokens.gather(1, kept), at - 1
    order = torch.where(shown, noise, 2.0).argsort(1)
    target = torch.where(shown, torch.arange(tokens.shape[1]), tokens.shape[1]).sort(1).values
    moved = tokens.clone()
    for row in range(len(tokens)):
        count = int(shown[row].sum())
        moved[row, target[row, :count]] = tokens[row, order[row, :count]]
    yield "another order", moved, at
    if len(inputs.operands):
        new = inputs.operands[torch.randint(len(inputs.operands), tokens.shape, generator=draw)]
        yield "other tokens", torch.where(shown, new, tokens), at
        few = inputs.operands[:3][
            torch.randint(min(3, len(inputs.operands)), tokens.shape, generator=draw)
        ]
        yield "few different tokens", torch.where(shown, few, tokens), at
