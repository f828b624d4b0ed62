"""Explanation: a program of a model, with its claims of where the variables live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Bool
from torch import Tensor

from mechint.explanation.code import written
from mechint.explanation.parts import Copy, Features, Part, Route, Values
from mechint.task import Program

if TYPE_CHECKING:
    from mechint.explanation.source_program import SourceProgram
    from mechint.subject import Subject


@dataclass(frozen=True)
class Explanation:
    """A causal program of a model and where its variables live.

    name: in one line, with its numbers ("addition by frequencies 3, 15 and 17"). program: computes
    the variables and the answers. parts, routes: where they live. family: who proposed it. spare:
    features that the explanation does not use, as many again as a block has, for the null of each
    test: an explanation by these is fitted as hard. spare_blocks: the same for one block of a part,
    alike for all blocks of one width. notes: what a reader is told besides. copies: routes whose
    token is said to be the answer. over_sources: the same program over the sources of the answer,
    by whose tests it is then judged. short: the name without its numbers and sites, for a headline.
    among: the inputs that it is of, by their values; of all when None.
    """

    name: str
    program: Program
    parts: tuple[Part, ...] = ()
    routes: tuple[Route, ...] = ()
    family: str = "claim"
    spare: Callable[[int], Explanation | None] | None = None
    spare_blocks: Callable[[Part, str], list[Features]] | None = None
    notes: tuple[str, ...] = ()
    over_sources: SourceProgram | None = None
    copies: tuple[Copy, ...] = ()
    short: str = ""
    among: Callable[[Values], Bool[Tensor, " n"]] | None = None

    @property
    def inputs(self) -> list[str]:
        """Variables without parents that some part holds."""
        held = {name for part in self.parts for name in part.variables}
        return [s.name for s in self.program.steps if not s.parents and s.name in held]

    @property
    def held(self) -> list[str]:
        """Variables that some part holds, in the order of the program."""
        held = {name for part in self.parts for name in part.variables}
        return [step.name for step in self.program.steps if step.name in held]

    def to_python(self, subject: Subject, *, seed: int = 0, examples: int = 3000) -> str:
        """A Python file of numpy alone that computes the answers from tokens, with its constants.

        The answers are those of a program over sources, or the largest of the logits that a part
        reads off its features, fitted on the same half of the inputs as in `audit`.

        Raises:
            NotApplicableError: no part reads the logits, or a variable has more than 65,536 cases.

        >>> from mechint import planted
        >>> from mechint.explanation import explain
        >>> subject = planted.modular_addition(13, (2, 5)).subject
        >>> text = explain(subject, family="frequencies")[0].explanation.to_python(subject)
        >>> "import numpy" in text and "torch" not in text
        True
        """
        return written(subject, self, seed, examples).text


def program_text(explanation: Explanation) -> str:
    """One line a variable that a part holds, with what it follows from and where it lives, and one
    a route to a key, or copy.
    """
    if explanation.over_sources is not None:
        source = explanation.over_sources
        return "\n".join([*source.lines(), *map(str, explanation.routes)])
    lines = list[str]()
    for step in (explanation.program.variables[name] for name in explanation.held):
        tokens = ", ".join(f"token {place}" for place in step.positions)
        source = f"of {', '.join(step.parents)}" if step.parents else tokens or "of the tokens"
        said = f": {step.description}" if step.description else ""
        lines.append(f"{step.name} {source}{said}")
        for part in explanation.parts:
            if step.name in part.variables:
                blocks = f", by {', '.join(part.blocks)}" if part.blocks else ""
                lines.append(f"    at {part.site}{blocks}")
    routes = [one for one in explanation.routes if one.key is not None]
    return "\n".join([*lines, *map(str, (*routes, *explanation.copies))])
