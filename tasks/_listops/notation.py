"""How expressions over an algebra are written, and how one is read and solved a character at a
time.

Two spellings. *symbolic*: ``s(+3(-749))=4e``, one character a value and an operation, `s` starts
and `e` ends. *functional*: ``max_10(3,min_10(7,4,9))=4``, numbers in decimal, a line break (left
out of texts) ends. A chain of thought resolves the right-most innermost bracket at every ``>``:
``s(%12(%34))>(%127)>0=0e``.

`solve` and `write` work on text alone and share nothing with the vectorized writer but the tables
of characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from mechint.errors import DataError
from mechint.task import Vocabulary
from tasks._listops.algebra import Algebra

SPELLINGS = ("symbolic", "functional")
LETTERS = range(0x100, 0x250)
"""Latin Extended-A and -B: one letter a value where 26 do not suffice."""

NOTHING, START, CLOSE, STEP, EQUALS, END, FIRST_VALUE = range(7)
"""Codes of the items a text is made of; values and openings follow."""


def characters(n: int) -> tuple[str, ...]:
    """One character for each of `n` values: digits up to 10, A-Z up to 26, from U+0100 (Ā) on
    beyond.

    >>> "".join(characters(10)), "".join(characters(20)), "".join(characters(30))[:5]
    ('0123456789', 'ABCDEFGHIJKLMNOPQRST', 'ĀāĂăĄ')
    """
    assert n <= len(LETTERS), n
    first = ord("0") if n <= 10 else ord("A") if n <= 26 else LETTERS[0]
    return tuple(chr(first + value) for value in range(n))


@dataclass(frozen=True, eq=False)
class Notation:
    """Writes the values and operations of `algebra` in one of `SPELLINGS`.

    >>> from tasks._listops.algebra import integers
    >>> Notation(integers(10), "functional").solve("max_10(3,min_10(7,4,9))")
    ['max_10(3,min_10(7,4,9))', 'max_10(3,4)', '4']
    """

    algebra: Algebra
    spelling: str

    @property
    def symbolic(self) -> bool:
        """Whether operations are single characters."""
        return self.spelling == "symbolic"

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Text of every value."""
        return (
            characters(self.algebra.size)
            if self.symbolic
            else tuple(map(str, range(self.algebra.size)))
        )

    @cached_property
    def openings(self) -> tuple[str, ...]:
        """Text that opens a bracket of every operation."""
        if self.symbolic:
            return tuple(f"({operation.symbol}" for operation in self.algebra.operations.values())
        return tuple(f"{name.lower()}{self.algebra.suffix}(" for name in self.algebra.names)

    @property
    def start(self) -> str:
        """What begins a text."""
        return "s" if self.symbolic else ""

    @property
    def end(self) -> str:
        """What ends a text."""
        return "e" if self.symbolic else "\n"

    @property
    def end_token(self) -> int:
        """The token of `end`."""
        return self.vocabulary.ids[self.end]

    @property
    def comma(self) -> str:
        """What stands between two operands."""
        return "" if self.symbolic else ","

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every character once: values first, then operations, then the rest."""
        operations = "".join(self.openings).replace("(", "")
        return Vocabulary(
            tuple(
                dict.fromkeys(
                    "".join(self.values)
                    + operations
                    + "()"
                    + self.comma
                    + ">="
                    + self.start
                    + self.end
                )
            ),
            separator="",
        )

    # --- items: what the vectorized writer puts side by side --------------------------------------
    @cached_property
    def spelled(self) -> Int[np.ndarray, "item character"]:
        """(item, character) token + 1 of every character of an item, 0 where there is none."""
        later = (
            [self.comma + text for text in self.values],
            [self.comma + text for text in self.openings],
        )
        items = [
            "",
            self.start,
            ")",
            ">",
            "=",
            self.end,
            *self.values,
            *later[0],
            *self.openings,
            *later[1],
        ]
        table = np.zeros((len(items), max(map(len, items))), np.int16)
        for row, text in zip(table, items, strict=True):
            row[: len(text)] = np.array(self.vocabulary.encode(text), np.int16) + 1 if text else 0
        return table

    def value_item(
        self, value: Int[np.ndarray, "*shape"], first: Bool[np.ndarray, "*shape"] | bool
    ) -> Int[np.ndarray, "*shape"]:
        """Item of `value`; `first`: nothing stands before it in its bracket."""
        return FIRST_VALUE + value + np.where(first, 0, self.algebra.size)

    def opening_item(
        self, operation: Int[np.ndarray, "*shape"], first: Bool[np.ndarray, "*shape"] | bool
    ) -> Int[np.ndarray, "*shape"]:
        """Item that opens a bracket of `operation`."""
        return (
            FIRST_VALUE + 2 * self.algebra.size + operation + np.where(first, 0, len(self.openings))
        )

    # --- plain reading and writing ----------------------------------------------------------------
    @cached_property
    def _innermost(self) -> re.Pattern[str]:
        return re.compile(
            r"(\([^()])([^()]*)\)" if self.symbolic else r"([a-z][a-z_0-9]*\()([^()]*)\)"
        )

    def bracket(self, text: str) -> tuple[str, list[int]]:
        """Opening and operands of a bracket of values; DataError where it is none."""
        match = self._innermost.fullmatch(text)
        if match is None or match[1] not in self.openings:
            raise DataError(
                f"text {text!r}: expected a bracket of values such as "
                f"{self.openings[0]}{self.comma.join(self.values[:2])})"
            )
        operands = list(match[2]) if self.symbolic else match[2].split(",")
        if not operands or not set(operands) <= set(self.values):
            raise DataError(
                f"text {text!r}: expected operands {self.values[0]} … {self.values[-1]}"
            )
        return match[1], [self.values.index(operand) for operand in operands]

    def solve(self, expression: str) -> list[str]:
        """The expression after 0, 1, 2, … steps, the last its value; DataError where it is no
        expression.
        """
        steps = [expression]
        while steps[-1] not in self.values:
            brackets = list(self._innermost.finditer(steps[-1]))
            if not brackets:
                raise DataError(
                    f"text {expression!r}: expected an expression such as "
                    f"{self.openings[0]}{self.comma.join(self.values[:2])})"
                )
            last = brackets[-1]
            opening, operands = self.bracket(last[0])
            operation = list(self.algebra.operations.values())[self.openings.index(opening)]
            steps.append(
                steps[-1][: last.start()]
                + self.values[operation.plain(operands)]
                + steps[-1][last.end() :]
            )
        return steps

    def write(self, steps: list[str], chain_of_thought: bool) -> str:
        """The whole text of solved `steps`, with its start and end."""
        shown = steps if chain_of_thought else steps[:1]
        return self.start + ">".join(shown) + "=" + steps[-1] + self.end

    def expression(self, text: str) -> str:
        """What a text asks for: all before its first ``>`` or ``=``."""
        return re.split("[>=]", text.removeprefix(self.start), maxsplit=1)[0]

    def opening(self, expression: str) -> tuple[int, str]:
        """Index of the outermost operation of an expression, and the text after its opening."""
        opening = next((text for text in self.openings if expression.startswith(text)), None)
        if opening is None:
            raise DataError(
                f"text {expression!r}: expected an expression that begins with "
                f"{' or '.join(self.openings)}"
            )
        return self.openings.index(opening), expression.removeprefix(opening)
