"""A synthetic language with a Zipfian vocabulary and a nested grammar, whose entropy at every
position is computed exactly.

The grammar is written as a finite automaton in which state and token fix the next state. A reader
who has seen a document from its start therefore knows the state, and nothing else about the past
matters, so the best possible predictor's loss at a position is H(token | state) averaged over where
the automaton is (Shannon 1948, Sec. 7).

A document has one topic, betrayed by its first noun; its nouns come from the topic's own list. A
sentence is a clause: determiner, noun, perhaps a nested clause that a comma ends, then a verb,
which agrees with the clause's determiner across whatever was nested, and perhaps an object. Between
clauses stand sentences of two templates at a known rate: ``rises x y .`` with y uniform above x,
and ``sums x y z .`` with z = x + y mod 16.

Cost: building about a quarter of a second, once; drawing about 4 million tokens a second a core.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csc_matrix

from mechint.errors import ParameterError
from mechint.task import rng

TOPICS, CLASSES, NUMBERS, DEPTH = 8, 3, 16, 3
NEST, OBJECT, END = 0.25, 0.5, 0.1
"""Chances: a noun gets a nested clause (down to DEPTH), a verb gets an object, a document ends
after a sentence.
"""

FUNCTION_WORDS = (
    "rises",
    "sums",
    ",",
    ".",
    *(f"the{k}" for k in range(CLASSES)),
    *map(str, range(NUMBERS)),
)
SMALLEST, LARGEST = len(FUNCTION_WORDS) + CLASSES + TOPICS, 8192
"""Words of the smallest language, and of one that is built in seconds."""

State = tuple
Edge = tuple[str, float, State]  # word, probability, next state


@dataclass(frozen=True, eq=False)
class Automaton:
    """States s with edges (token, probability, next state); state 0 begins a document. Edges are
    sorted by state.

    first (state + 1,): where a state's edges begin; source, token, target, probability (edge,);
    kinds (state,): what the state awaits.
    """

    first: np.ndarray
    source: np.ndarray
    token: np.ndarray
    target: np.ndarray
    probability: np.ndarray
    kinds: np.ndarray

    def draw(
        self, n: int, length: int, generator: np.random.Generator
    ) -> tuple[Int[np.ndarray, "n length"], Int[np.ndarray, "n length"]]:
        """`n` texts from a document's start on: tokens (n, length), and the state before each token
        (n, length).
        """
        tokens, states = np.empty((length, n), np.int64), np.empty((length, n), np.int64)
        state = np.zeros(n, np.int64)
        for position, uniform in enumerate(generator.random((length, n))):
            states[position] = state
            edge = np.searchsorted(self._ladder, state + uniform, side="right")
            edge = np.minimum(
                edge, self.first[state + 1] - 1
            )  # state + uniform may round up to the next state
            tokens[position], state = self.token[edge], self.target[edge]
        return tokens.T.copy(), states.T.copy()

    @cached_property
    def _ladder(self) -> np.ndarray:
        """Upper ends of the edges' shares of [state, state + 1), ascending over all edges."""
        total = np.concatenate([[0.0], np.cumsum(self.probability)])
        return self.source + total[1:] - total[self.first[self.source]]

    @cached_property
    def entropies(self) -> Float[np.ndarray, " state"]:
        """H(token | state) of every state, nats."""
        return np.bincount(
            self.source, -self.probability * np.log(self.probability), len(self.kinds)
        )

    @cached_property
    def _step(self) -> csc_matrix:
        """(state, state) where column s holds the chances of the states after s."""
        size = len(self.kinds)
        return csc_matrix((self.probability, (self.target, self.source)), (size, size))

    def occupancy(self, length: int) -> Float[np.ndarray, "length state"]:
        """(length, state) distribution of the state before each token of a text from a document's
        start.
        """
        rows = [np.eye(1, len(self.kinds))[0]]
        for _ in range(length - 1):
            rows.append(self._step @ rows[-1])
        return np.stack(rows)


def _zipf(words: Sequence[Any]) -> Iterator[tuple[Any, float]]:
    weights = 1 / np.arange(1, len(words) + 1)
    yield from zip(words, weights / weights.sum(), strict=True)


@dataclass(frozen=True)
class Grammar:
    """The rules over `n_words` words, of which one a token; each template makes up `reference_rate`
    of the sentences.
    """

    n_words: int
    reference_rate: float

    def __post_init__(self) -> None:
        if not SMALLEST <= self.n_words <= LARGEST:
            raise ParameterError(
                f"corpus: vocab_size={self.n_words}: expected {SMALLEST} to {LARGEST} for the "
                "synthetic language"
            )

    @cached_property
    def verbs(self) -> list[list[str]]:
        """Verbs of each class, a quarter of the open words."""
        each = max(1, (self.n_words - len(FUNCTION_WORDS)) // (4 * CLASSES))
        return [[f"verb{k}.{rank}" for rank in range(each)] for k in range(CLASSES)]

    @cached_property
    def nouns(self) -> list[list[str]]:
        """Nouns of each topic: the other open words, dealt out evenly."""
        left = self.n_words - len(FUNCTION_WORDS) - sum(map(len, self.verbs))
        return [
            [f"noun{topic}.{rank}" for rank in range((left - topic + TOPICS - 1) // TOPICS)]
            for topic in range(TOPICS)
        ]

    @property
    def words(self) -> list[str]:
        """Function words, verbs and nouns, in this order."""
        return [*FUNCTION_WORDS, *(word for group in (*self.verbs, *self.nouns) for word in group)]

    def edges(self, state: State) -> Iterator[Edge]:
        """The words that may follow, with their chances."""
        kind, topic, *rest = state
        if kind == "start":
            yield from self._sentences(topic)
        elif kind in ("rises", "sums", "sums_second", "rises_answer", "sums_answer", "stop"):
            yield from self._template(kind, topic, *rest)
        else:
            yield from self._clause(kind, topic, rest[0])

    def _sentences(self, topic: int | None) -> Iterator[Edge]:
        end = END if topic is not None else 0.0
        if end:
            yield "<eod>", end, ("start", None)
        for template in ("rises", "sums"):
            if self.reference_rate:
                yield template, (1 - end) * self.reference_rate, (template, topic)
        clause = (1 - end) * (1 - 2 * self.reference_rate)
        if clause:
            for k in range(CLASSES):
                yield f"the{k}", clause / CLASSES, ("noun", topic, (k,))

    def _template(self, kind: str, topic: int | None, value: int = 0) -> Iterator[Edge]:
        if kind == "rises":
            yield from (
                (str(x), 1 / (NUMBERS - 1), ("rises_answer", topic, x)) for x in range(NUMBERS - 1)
            )
        elif kind == "rises_answer":
            yield from (
                (str(y), 1 / (NUMBERS - 1 - value), ("stop", topic))
                for y in range(value + 1, NUMBERS)
            )
        elif kind == "sums":
            yield from ((str(x), 1 / NUMBERS, ("sums_second", topic, x)) for x in range(NUMBERS))
        elif kind == "sums_second":
            yield from (
                (str(y), 1 / NUMBERS, ("sums_answer", topic, (value + y) % NUMBERS))
                for y in range(NUMBERS)
            )
        else:
            yield (
                (".", 1.0, ("start", topic))
                if kind == "stop"
                else (str(value), 1.0, ("stop", topic))
            )

    def _clause(self, kind: str, topic: int | None, stack: tuple[int, ...]) -> Iterator[Edge]:
        """`kind`: what is awaited; `stack`: classes of the open clauses, innermost last."""
        if kind == "noun":
            for about, weight in _zipf(range(TOPICS)) if topic is None else [(topic, 1.0)]:
                yield from (
                    (word, weight * p, ("nest_or_verb", about, stack))
                    for word, p in _zipf(self.nouns[about])
                )
        elif kind in ("nest_or_verb", "verb"):
            nest = NEST if kind == "nest_or_verb" and len(stack) < DEPTH else 0.0
            if nest:
                yield from (
                    (f"the{k}", nest / CLASSES, ("noun", topic, (*stack, k)))
                    for k in range(CLASSES)
                )
            yield from (
                (word, (1 - nest) * p, ("object_or_end", topic, stack))
                for word, p in _zipf(self.verbs[stack[-1]])
            )
        else:
            some = OBJECT if kind == "object_or_end" else 0.0
            if some:
                yield from (
                    (word, some * p, ("end", topic, stack))
                    for word, p in _zipf(self.nouns[topic or 0])
                )
            yield (
                (",", 1 - some, ("verb", topic, stack[:-1]))
                if len(stack) > 1
                else (".", 1 - some, ("start", topic))
            )


@cache
def build(n_words: int, reference_rate: float, seed: int) -> tuple[Automaton, tuple[str, ...]]:
    """The language's automaton and its words by token, "<eod>" last; `seed` deals the tokens out to
    the words.

    >>> automaton, words = build(64, 0.05, 0)
    >>> len(words), bool(automaton.entropies.max() < np.log(65))
    (65, True)
    """
    grammar = Grammar(n_words, reference_rate)
    dealt = rng("language", n_words, seed).permutation(n_words)
    names = grammar.words
    words = (*(names[i] for i in dealt), "<eod>")
    token_of = {word: token for token, word in enumerate(words)}
    number: dict[State, int] = {("start", None): 0}
    order, rows = [("start", None)], []
    for state in order:  # grows while it is walked: breadth first from the start
        for word, probability, target in grammar.edges(state):
            if target not in number:
                number[target] = len(order)
                order.append(target)
            rows.append((number[state], token_of[word], number[target], probability))
    source, token, target = (np.array(column) for column in list(zip(*rows, strict=True))[:3])
    first = np.searchsorted(source, np.arange(len(order) + 1))
    probability = np.array([row[3] for row in rows])
    return Automaton(
        first, source, token, target, probability, np.array([state[0] for state in order])
    ), words


@dataclass(frozen=True)
class Synthetic:
    """Texts of the built-in grammar, `words` its vocabulary; every text begins with a document, and
    splits differ by chance alone.
    """

    automaton: Automaton
    words: tuple[str, ...]
    separator: str = " "

    def draw(
        self, n: int, length: int, generator: np.random.Generator
    ) -> tuple[Int[np.ndarray, "n length"], Mapping[str, Bool[np.ndarray, "n length"]]]:
        """`n` texts, and masks of the tokens that answer a reference task."""
        tokens, states = self.automaton.draw(n, length, generator)
        awaited = self.automaton.kinds[states]
        return tokens, {name: awaited == f"{name}_answer" for name in ("rises", "sums")}
