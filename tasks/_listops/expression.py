"""Expressions as trees of brackets: drawn, solved, spelled and read.

``s(+3(-749))=4e``: one character a value and an operation, `s` starts and `e` ends. A chain of
thought resolves the right-most innermost bracket at every ``>``: ``s(%12(%34))>(%127)>0=0e``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from random import Random

from mechint.errors import DataError
from mechint.task import Vocabulary
from mechint.tasks._listops.algebra import Algebra

Path = tuple[int, ...]
"""Operand indices from the outermost bracket down; () is the outermost bracket itself."""

START, END = "s", "e"
LETTERS = range(0x100, 0x250)
"""Latin Extended-A and -B: one letter a value where 26 do not suffice."""

NESTING = 0.5
"""Probability that an operand is a bracket, where the depth allows one."""


@dataclass(frozen=True)
class Bracket:
    """An operation, by its index in the algebra, on values and brackets."""

    operation: int
    operands: tuple[int | Bracket, ...]

    def at(self, path: Path) -> int | Bracket:
        """The value or bracket at `path`."""
        node: int | Bracket = self
        for slot in path:
            assert isinstance(node, Bracket), path
            node = node.operands[slot]
        return node

    def put(self, path: Path, new: int | Bracket) -> Bracket:
        """The tree with `new` at `path`, which is not () unless `new` is a bracket."""
        if not path:
            assert isinstance(new, Bracket)
            return new
        slot, *rest = path
        child = self.operands[slot]
        if rest:
            assert isinstance(child, Bracket), path
            new = child.put(tuple(rest), new)
        return replace(self, operands=(*self.operands[:slot], new, *self.operands[slot + 1 :]))

    def leaves(self, below: Path = ()) -> Iterator[Path]:
        """Paths of all plain values, from left to right."""
        for slot, operand in enumerate(self.operands):
            if isinstance(operand, Bracket):
                yield from operand.leaves((*below, slot))
            else:
                yield (*below, slot)

    @property
    def first_resolved(self) -> Path:
        """Path of the right-most innermost bracket."""
        for slot in reversed(range(len(self.operands))):
            operand = self.operands[slot]
            if isinstance(operand, Bracket):
                return (slot, *operand.first_resolved)
        return ()


@dataclass(frozen=True)
class Resolution:
    """A bracket as it is resolved: where it stands, its operands as values, and its own value."""

    path: Path
    operands: tuple[int, ...]
    value: int


def solve(
    algebra: Algebra, tree: Bracket, given: Mapping[Path, int] | None = None
) -> list[Resolution]:
    """Resolve every bracket, the right-most innermost one first; a bracket whose path is in `given`
    comes to the value there.

    >>> from tasks._listops.algebra import integers
    >>> tree = Bracket(3, (1, 2, Bracket(3, (3, 4))))
    >>> [(step.path, step.value) for step in solve(integers(10), tree)]
    [((2,), 7), ((), 0)]
    """
    steps: list[Resolution] = []

    def value(bracket: Bracket, path: Path) -> int:
        operands = [0] * len(bracket.operands)
        for slot in reversed(range(len(operands))):
            operand = bracket.operands[slot]
            nested = isinstance(operand, Bracket)
            operands[slot] = value(operand, (*path, slot)) if nested else operand
        if given is not None and path in given:
            result = given[path]
        else:
            result = algebra.compute(bracket.operation, operands)
        steps.append(Resolution(path, tuple(operands), result))
        return result

    value(tree, ())
    return steps


def with_value(algebra: Algebra, tree: Bracket, path: Path, wanted: int) -> Bracket | None:
    """The tree changed in one plain value so that what stands at `path` comes to `wanted`; None
    where no such change does.

    Of several the choice depends on the tree alone, and is not always the first operand.
    """
    target = tree.at(path)
    if not isinstance(target, Bracket):
        return tree.put(path, wanted)
    leaves = list(target.leaves())
    first = (wanted + sum(hash(target.at(leaf)) for leaf in leaves)) % len(leaves)
    for leaf in leaves[first:] + leaves[:first]:
        for candidate in range(algebra.size):
            changed = target.put(leaf, candidate)
            if solve(algebra, changed)[-1].value == wanted and changed != target:
                return tree.put(path, changed)
    return None


@dataclass(frozen=True, eq=False)
class ExpressionGrammar:
    """Random trees: `fewest` to `most` operands a bracket, up to `depth` nested brackets, at most
    `max_brackets` in all; `weights` (operation,): how often each is drawn, in proportion.
    """

    size: int
    weights: Sequence[float]
    fewest: int
    most: int
    depth: int
    max_brackets: int

    def draw(self, random: Random) -> Bracket | None:
        """One tree; None where it grew beyond `max_brackets`. The number of operands is uniform,
        every operand is nested with probability `NESTING`, values are uniform.
        """
        brackets = 0

        def grow(depth: int) -> Bracket:
            nonlocal brackets
            brackets += 1
            (operation,) = random.choices(operations, cum_weights=shares)
            operands: list[int | Bracket] = []
            for _ in range(random.randint(self.fewest, self.most)):
                nested = depth > 1 and random.random() < NESTING and brackets <= self.max_brackets
                operands.append(grow(depth - 1) if nested else int(random.random() * self.size))
            return Bracket(operation, tuple(operands))

        operations, shares = range(len(self.weights)), list(accumulate(self.weights))
        tree = grow(self.depth)
        return tree if brackets <= self.max_brackets else None

    def complete(self, operation: int) -> Bracket:
        """The tree with the most brackets, of the largest value."""
        tree: int | Bracket = self.size - 1
        for _ in range(self.depth):
            tree = Bracket(operation, (tree,) * self.most)
        assert isinstance(tree, Bracket)
        return tree

    def chain(self, operation: int) -> Bracket:
        """A short tree that reaches `depth`: a bracket of the most operands, then of the fewest,
        each within the first operand of the one around it.
        """
        tree: int | Bracket = 0
        for level in reversed(range(self.depth)):
            count = self.fewest if level else self.most
            tree = Bracket(operation, (tree, *[0] * (count - 1)))
        assert isinstance(tree, Bracket)
        return tree


@dataclass(frozen=True, eq=False)
class Notation:
    """Spelling of the values and operations of `algebra`, a character each.

    >>> from tasks._listops.algebra import integers
    >>> notation = Notation(integers(10))
    >>> notation.texts(notation.parse("(+3(-749))"))
    ['(+3(-749))', '(+34)', '4']
    """

    algebra: Algebra

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Text of every value: digits up to 10, A-Z up to 26, from U+0100 (Ā) on beyond."""
        n = self.algebra.size
        first = ord("0") if n <= 10 else ord("A") if n <= 26 else LETTERS[0]
        return tuple(chr(first + value) for value in range(n))

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Text of every operation."""
        return tuple(operation.symbol for operation in self.algebra.operations.values())

    @property
    def end_token(self) -> int:
        """The token that ends a text."""
        return self.vocabulary.ids[END]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every character once: values first, then operations, then the rest."""
        return Vocabulary((*self.values, *self.symbols, *"()>=", START, END), separator="")

    # --- trees and texts --------------------------------------------------------------------------
    def spell(self, tree: int | Bracket) -> str:
        """The text of a tree; `parse` is its inverse."""
        if not isinstance(tree, Bracket):
            return self.values[tree]
        return f"({self.symbols[tree.operation]}{''.join(map(self.spell, tree.operands))})"

    def parse(self, text: str) -> Bracket:
        """The tree of an expression; DataError where it is not one."""
        stack: list[tuple[int, list[int | Bracket]]] = [(-1, [])]
        characters = iter(text)
        for character in characters:
            if character == "(" and (symbol := next(characters, "")) in self.symbols:
                stack.append((self.symbols.index(symbol), []))
            elif character in self._values:
                stack[-1][1].append(self._values[character])
            elif character == ")" and len(stack) > 1:
                operation, operands = stack.pop()
                stack[-1][1].append(Bracket(operation, tuple(operands)))
        tree = stack[0][1][0] if len(stack) == 1 and len(stack[0][1]) == 1 else None
        if not isinstance(tree, Bracket) or self.spell(tree) != text or not _is_filled(tree):
            raise DataError(
                f"text {text!r}: expected an expression such as "
                f"({self.symbols[0]}{''.join(self.values[:2])})"
            )
        return tree

    @cached_property
    def _values(self) -> dict[str, int]:
        return {text: index for index, text in enumerate(self.values)}

    def texts(self, tree: Bracket, steps: Sequence[Resolution] | None = None) -> list[str]:
        """The expression after 0, 1, 2, … of `steps`, the last its value: each replaces the bracket
        that opens last.
        """
        texts = [self.spell(tree)]
        for step in solve(self.algebra, tree) if steps is None else steps:
            before, _, rest = texts[-1].rpartition("(")
            texts.append(before + self.values[step.value] + rest.partition(")")[2])
        return texts

    def write(self, texts: Sequence[str], chain_of_thought: bool) -> str:
        """The whole text of a solved expression, with its start and end."""
        shown = texts if chain_of_thought else texts[:1]
        return f"{START}{'>'.join(shown)}={texts[-1]}{END}"

    def expression(self, text: str) -> str:
        """The expression that a text asks for: all before its first ``>`` or ``=``."""
        return re.split("[>=]", text.removeprefix(START), maxsplit=1)[0]

    # --- the plain reading, for brute force -------------------------------------------------------
    def rewrite(self, expression: str) -> list[str]:
        """As `texts`, by rewriting the text alone: the last bracket that holds no other is read and
        replaced.
        """
        steps = [expression]
        while steps[-1] not in self.values:
            *_, last = re.finditer(r"\((.)([^()]*)\)", steps[-1])
            operation = list(self.algebra.operations.values())[self.symbols.index(last[1])]
            value = self.values[
                operation.compute([self.values.index(character) for character in last[2]])
            ]
            steps.append(steps[-1][: last.start()] + value + steps[-1][last.end() :])
        return steps


def _is_filled(tree: Bracket) -> bool:
    """Return whether every bracket has an operand."""
    return bool(tree.operands) and all(
        _is_filled(operand) for operand in tree.operands if isinstance(operand, Bracket)
    )


@dataclass(frozen=True, eq=False)
class HeldOutTuples:
    """Held-out operand tuples of one length, ordered."""

    tuples: tuple[tuple[int, ...], ...]

    @cached_property
    def _all(self) -> frozenset[tuple[int, ...]]:
        return frozenset(self.tuples)

    def occur(self, steps: Sequence[Resolution]) -> bool:
        """Return whether a bracket, once its operands are values, shows a pattern among consecutive
        operands.
        """
        width = len(self.tuples[0])
        return any(
            step.operands[first : first + width] in self._all
            for step in steps
            for first in range(len(step.operands) - width + 1)
        )

    def plant(self, tree: Bracket, random: Random) -> Bracket | None:
        """Write a random pattern into one of the brackets that hold just as many plain values; None
        where there is none.
        """
        width = len(self.tuples[0])
        leaves = list(tree.leaves())
        first = [leaf for leaf in leaves if leaf[-1] == 0]
        fitting = []
        for leaf in first:
            bracket = tree.at(leaf[:-1])
            assert isinstance(bracket, Bracket)
            plain = not any(isinstance(operand, Bracket) for operand in bracket.operands)
            if plain and len(bracket.operands) == width:
                fitting.append((leaf[:-1], bracket))
        if not fitting:
            return None
        path, bracket = random.choice(fitting)
        return tree.put(path, replace(bracket, operands=random.choice(self.tuples)))
