"""An expression as a tree of brackets: read, changed at one place, and solved with the value of a
bracket set by hand.

Shares nothing with the vectorized writer; `Notation.solve` rewrites text and is the check on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mechint.errors import DataError
from tasks._listops.notation import Notation

Path = tuple[int, ...]
"""Operand indices from the outermost bracket down; () is the outermost bracket itself."""


@dataclass(frozen=True)
class Bracket:
    """An operation, by its index in the algebra, on values and brackets."""

    operation: int
    operands: tuple[int | Bracket, ...]

    def at(self, path: Path) -> int | Bracket:
        """What stands at `path`."""
        found: int | Bracket = self
        for slot in path:
            assert isinstance(found, Bracket), path
            found = found.operands[slot]
        return found

    def put(self, path: Path, new: int | Bracket) -> Bracket:
        """The tree with `new` at `path`, which is not ()."""
        slot, *rest = path
        child = self.operands[slot]
        if rest:
            assert isinstance(child, Bracket), path
            new = child.put(tuple(rest), new)
        operands = (*self.operands[:slot], new, *self.operands[slot + 1 :])
        return replace(self, operands=operands)

    def leaves(self, below: Path = ()) -> Iterator[Path]:
        """Paths of all plain values, from left to right."""
        for slot, operand in enumerate(self.operands):
            if isinstance(operand, Bracket):
                yield from operand.leaves((*below, slot))
            else:
                yield (*below, slot)

    @property
    def first_resolved(self) -> Path:
        """Path of the right-most innermost bracket, which is resolved first."""
        for slot in reversed(range(len(self.operands))):
            operand = self.operands[slot]
            if isinstance(operand, Bracket):
                return (slot, *operand.first_resolved)
        return ()


def parse(notation: Notation, text: str) -> Bracket:
    """The tree of an expression; DataError where it is not one.

    >>> from tasks._listops.algebra import integers
    >>> parse(Notation(integers(10), "symbolic"), "(+3(-74))").operands
    (3, Bracket(operation=1, operands=(7, 4)))
    """
    operation, rest = notation.opening(text)
    operands: list[int | Bracket] = []
    depth, word = 1, ""
    for character in rest:
        depth += (character == "(") - (character == ")")
        if depth == 0 or (depth == 1 and character == ","):
            operands += _operands(notation, word)
            word = ""
        else:
            word += character
    if depth or not operands:
        raise DataError(f"text {text!r}: its brackets do not match")
    return Bracket(operation, tuple(operands))


def _operands(notation: Notation, word: str) -> list[int | Bracket]:
    """What stands between two commas, or all operands of a bracket where there are no commas."""
    if not notation.symbolic:
        return [_value(notation, word) if word[-1] != ")" else parse(notation, word)]
    operands: list[int | Bracket] = []
    depth, part = 0, ""
    for character in word:
        depth += (character == "(") - (character == ")")
        part += character
        if not depth:
            bracket = len(part) > 1
            operands.append(parse(notation, part) if bracket else _value(notation, part))
            part = ""
    return operands


def _value(notation: Notation, word: str) -> int:
    if word not in notation.values:
        raise DataError(f"text {word!r}: expected a value, {notation.values[0]} and so on")
    return notation.values.index(word)


def spell(notation: Notation, tree: int | Bracket) -> str:
    """The expression of a tree; the inverse of `parse`."""
    if not isinstance(tree, Bracket):
        return notation.values[tree]
    inside = notation.comma.join(spell(notation, operand) for operand in tree.operands)
    return f"{notation.openings[tree.operation]}{inside})"


def value(notation: Notation, tree: int | Bracket) -> int:
    """What a tree comes to."""
    if not isinstance(tree, Bracket):
        return tree
    operation = list(notation.algebra.operations.values())[tree.operation]
    return operation.plain([value(notation, operand) for operand in tree.operands])


def solve(notation: Notation, tree: Bracket, given: Mapping[Path, int]) -> list[str]:
    """The expression after 0, 1, 2, … steps, where a bracket in `given` comes to that value."""
    steps = [spell(notation, tree)]
    while True:
        path = tree.first_resolved
        result = given[path] if path in given else value(notation, tree.at(path))
        if not path:
            return [*steps, notation.values[result]]
        tree = tree.put(path, result)
        steps.append(spell(notation, tree))


def with_value(notation: Notation, tree: Bracket, path: Path, wanted: int) -> Bracket | None:
    """The tree changed in one plain value so that what stands at `path` comes to `wanted`; None
    where no such change does.

    Of several the choice depends on the tree alone, and is not always the first operand.
    """
    target = tree.at(path)
    if not isinstance(target, Bracket):
        return tree.put(path, wanted)
    leaves = list(target.leaves())
    first = (wanted + sum(value(notation, target.at(leaf)) for leaf in leaves)) % len(leaves)
    for leaf in leaves[first:] + leaves[:first]:
        for candidate in range(notation.algebra.size):
            changed = target.put(leaf, candidate)
            if value(notation, changed) == wanted and changed != target:
                return tree.put(path, changed) if path else changed
    return None
