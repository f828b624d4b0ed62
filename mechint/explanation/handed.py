"""A product of two tokens that a program over sources found, handed to families that ask for its
group: the program says what the answer is, they say how it is computed.
"""

from __future__ import annotations

import torch

from mechint.explanation.functions import LEAST_GROUP
from mechint.explanation.records import KEEPS
from mechint.explanation.standing import Audit
from mechint.groups.finite import group_of
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.task import Program, Step, Symmetry


def handed(found: Audit, subject: Subject) -> Subject | None:
    """A subject that is asked by prompts, with the group whose product of two tokens a program
    says that its answer is, or with an inverse; None where it is none, or gives other answers than
    the model.
    """
    program, task = found.explanation.over_sources, subject.task
    if program is None or not isinstance(task, Prompts) or program.inputs.aligned is None:
        return None
    if program.otherwise is not None:
        return None
    tokens, at = program.inputs.tokens, program.inputs.at
    if not found.value("coverage") >= KEEPS.value:
        return None
    own = program.answer(tokens, at)

    def reads(place: int) -> bool:
        moved = tokens.clone()
        moved[:, place] = tokens[:, place].roll(1)
        return not torch.equal(program.answer(moved, at), own)

    places = [place for place in range(tokens.shape[1]) if reads(place)]
    if len(places) != 2:
        return None
    elements = tokens[:, places].unique()
    n = len(elements)
    grid = tokens[:1].repeat(n * n, 1)
    grid[:, places] = torch.cartesian_prod(elements, elements)
    answers = program.answer(grid, at[:1].repeat(n * n))
    if n < LEAST_GROUP or not bool(torch.isin(answers, elements).all()):
        return None
    group = group_of(torch.searchsorted(elements, answers).reshape(n, n).numpy())
    if group is None:
        return None
    size = int(elements.max()) + 1
    table = torch.zeros(size, size, dtype=torch.long)
    table[grid[:, places[0]], grid[:, places[1]]] = answers
    names = [f"t[{place}]" for place in places]
    steps = [
        Step(name, size, lambda t, place=place: t[:, place], positions=(place,))
        for name, place in zip(names, places, strict=True)
    ]
    steps.append(
        Step("answer", size, lambda _, x, y: table[x.cpu(), y.cpu()].to(x.device), tuple(names))
    )
    told = Program(found.explanation.name, tuple(steps), (("answer",),))
    return subject.with_task(task.told(told, Symmetry(group, tuple(elements.tolist()))))
