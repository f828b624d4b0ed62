"""A bench without a model: what it answers under edits is a function of the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mechint.explanation.measure import Bench, Fit
from mechint.explanation.parts import Features, Part
from mechint.interventions import Site
from mechint.task import Program, Step

N = 9
HERE = Site("blocks.0.hook_resid_post", "answer")


def addition(n: int = N) -> Program:
    """(a + b) mod n."""
    a = Step("a", n, lambda tokens: tokens[:, 0], positions=(0,))
    b = Step("b", n, lambda tokens: tokens[:, 1], positions=(1,))
    total = Step("sum", n, lambda tokens, a, b: (a + b) % n, ("a", "b"))
    return Program("sum", (a, b, total), (("sum",),))


def part(*variables: str, name: str = "", whole: bool = False, **more: Any) -> Part:
    """A part at one site."""
    width = 2 * max(len(more.get("blocks", ())), 1)
    features = None if whole else (lambda values: torch.zeros(len(values["a"]), width).double())
    return Part(name or variables[0], HERE, variables, features, **more)


@dataclass(frozen=True, eq=False)
class Stub(Bench):
    """answer(own, edits) → (n,) answers; own: values of the rows, edits: those made.

    An edit is what a test needs to know of it: `kind`, `source` rows, `old` and `new` values,
    `columns`.
    """

    answer: Callable[[dict[str, Tensor], list[Any]], Tensor] = field(
        default=lambda own, edits: own["sum"]
    )

    def logits(self, rows: Tensor, edits: Any = ()) -> Tensor:
        found = self.answer(self.values(rows), list(edits))
        return torch.nn.functional.one_hot(found, self.program.variables["sum"].n_values).double()

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]
        return self.logits(torch.arange(len(self.subject.data.tokens)))

    def fit(self, part: Part) -> Fit:
        assert part.features is not None
        width = 2 * max(len(part.blocks), 1)
        return Fit(part, torch.eye(width).double(), torch.zeros(width).double())

    def fit_features(self, part: Part, features: Features) -> Fit:
        return self.fit(replace(part, name="spare", features=features))

    def edit(self, fit: Fit, old: Any, new: Any, columns: Any = None) -> Any:
        return SimpleNamespace(kind="edit", fit=fit, old=old, new=new, columns=columns)

    def exchange(self, site: Site, rows: Tensor) -> Any:
        return SimpleNamespace(kind="exchange", new=self.values(rows), source=rows)


def stub(
    answer: Callable[[dict[str, Tensor], list[Any]], Tensor] | None = None,
    n: int = N,
    judged: int | None = None,
    program: Program | None = None,
) -> Stub:
    """All pairs of n values, judged but for the first three, answered right without edits."""
    tokens = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    program = program or addition(n)
    right = program.run(tokens)["sum"][:, None]

    def correct(logits: Tensor, labels: Tensor) -> Tensor:
        return logits.argmax(1, keepdim=True) == labels

    subject: Any = SimpleNamespace(
        data=SimpleNamespace(tokens=tokens),
        targets=right,
        device="cpu",
        correct=correct,
        answer=-1,
        asked="",
        answer_positions=torch.ones(len(tokens), dtype=torch.long),
        task=SimpleNamespace(output_slices={"sum": slice(0, n)}, n_answers=1),
        n_layers=1,
        model_description=SimpleNamespace(n_heads=2),
    )
    rows = torch.arange(len(tokens))
    last = len(rows) if judged is None else 3 + judged
    made = {} if answer is None else {"answer": answer}
    return Stub(subject, program, rows[:3], rows[3:last], 0, **made)
