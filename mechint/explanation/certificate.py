"""Certificates: the model, a program and the task on every input of a finite task, counted.

    print(certify(subject, explain(subject)[0].explanation))

What is certified are answers, and not the mechanism by which they are computed: a lookup table is
certified, too.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.checkpoints.save import digest_of
from mechint.errors import NotApplicableError
from mechint.explanation.claims import program_of
from mechint.explanation.code import written
from mechint.explanation.explanation import Explanation
from mechint.explanation.measure import MAX_EXAMPLES, answers_of, is_population, labels_of
from mechint.explanation.rounding import LIBRARY, RoundingBound
from mechint.models.foreign.untouched import evaluating
from mechint.subject import Subject
from mechint.system.jsonable import to_jsonable
from mechint.task import IGNORE, FiniteTask

MAX_INPUTS = 1 << 20
"""Inputs of a task that is counted, at most."""
CHUNK = 512
"""Inputs of one forward."""
ONLY_ANSWERS = "answers are certified, not the mechanism: a lookup table's would be, too"


@dataclass(frozen=True)
class Certificate:
    """Counts over every input, and how far the model is from answering otherwise.

    n: inputs, each once. as_task, as_program: those on which the model, in float64, answers as the
    task and as the program do; None where there is no program. margin: least gap between the logit
    of its answer and any other one (nats), in float64, on the input `at`. rounding: the most that
    rounding in `precision`, the type with the fewest digits of its weights and buffers, can move
    such a gap; None where that is not bounded. safe: inputs whose gap is larger than that. same:
    inputs on which the model as it is, in `precision` and on this machine, gives the same answer.
    trust: what has to be trusted → how it was done.
    """

    n: int
    as_task: int
    as_program: int | None
    margin: float
    at: str
    precision: str
    rounding: float | None
    safe: int
    same: int
    trust: Mapping[str, str]

    @property
    def reason(self) -> str:
        """The reason why it is none; "" where all inputs agree, by more than rounding can move."""
        for name, count in (("task", self.as_task), ("program", self.as_program)):
            if count not in (None, self.n):
                return f"the model answers as the {name} on {count:,} of {self.n:,} inputs"
        if self.safe == self.same == self.n:
            return ""
        open_ones = f"all {self.n:,} answers are right, {self.n - self.safe:,} by a margin that"
        here = f"as it runs here, {self.n - self.same:,} are others"
        return f"{open_ones} rounding in {self.precision} is not shown to leave; {here}"

    @property
    def sentence(self) -> str:
        """The counts, the margin and what is not certified."""
        both = "the task" if self.as_program is None else "the program and the task"
        counted = self.reason or f"on all {self.n:,} inputs the model answers as {both}"
        least = f"least margin {self.margin:.4g} nats ({self.at})"
        if self.rounding is not None:
            least += f", rounding in {self.precision} moves none by more than {self.rounding:.2g}"
        word = "not certified" if self.reason else "certified"
        return f"{word}: {counted}; {least}; {ONLY_ANSWERS}"

    def __str__(self) -> str:
        """The sentence, and a line for each thing that has to be trusted."""
        trust = [f"  {what}: {how}" for what, how in self.trust.items()]
        return "\n".join([self.sentence, "What must you trust?", *trust])

    def to_dict(self) -> dict[str, Any]:
        """The fields and the reason as JSON values."""
        told = {"certified": not self.reason, "sentence": self.sentence, "reason": self.reason}
        return to_jsonable({**told, **vars(self)})


def certify(
    subject: Subject, program: Any = None, *, seed: int = 0, examples: int = MAX_EXAMPLES
) -> Certificate:
    """Count on every input of a finite task how the model answers, in float64, beside the task and
    a program, with the least margin and a bound on rounding.

    Args:
        subject: a model on a task whose inputs are finite, or on prompts that are all of their
            form, every combination of the tokens of each place; at most `MAX_INPUTS`.
        program: an Explanation, which is counted as the file that `Explanation.to_python` writes;
            or a Program or a function from tokens (input, pos) to the answer (input,), as `audit`
            takes it; None counts model and task alone.
        seed, examples: as of the `explain` that found the explanation.

    Source: certificates over all inputs, Gross et al. 2024, arXiv:2406.11779; the bound, Higham
    2002, chapter 3.

    Raises:
        NotApplicableError: inputs without end, a sample, too many of them, answers that are
            numbers, or a model that does not compute in float64.

    >>> from mechint import planted
    >>> subject = planted.modular_addition(13, (2, 5)).subject
    >>> found = certify(subject, lambda tokens: (tokens[:, 0] + tokens[:, 1]) % 13)
    >>> found.n, found.as_task, found.as_program, found.margin > found.rounding
    (169, 169, 169, True)
    """
    subject, counted = _with_every_input(subject)
    said = None if program is None else _answers_by(subject, program, seed, examples)
    task, model, at = subject.task, subject.model, subject.answer_positions.cpu()
    assert task is not None
    tokens, targets = subject.data.tokens, subject.targets.cpu()
    slices = list(task.output_slices.values())
    held = [*model.parameters(), *model.buffers()]
    types = {one.dtype for one in held if one.is_floating_point()}
    precision = max(types, key=lambda one: torch.finfo(one).eps)
    exact = copy.deepcopy(model).to(device="cpu", dtype=torch.float64)
    unbounded, parts = "", list[tuple[Tensor, ...]]()
    for rows in torch.arange(len(tokens)).split(CHUNK):
        asked = targets[rows] != IGNORE
        as_is = _leads(_logits(model, tokens[rows], at[rows])[0], None, slices, asked)[0]
        kept = None if unbounded else precision  # of one without a bound the others say nothing
        logits, error, reason = _logits(exact, tokens[rows].cpu(), at[rows], kept)
        unbounded = unbounded or reason
        answers, *leads = _leads(logits, error, slices, asked)
        parts.append((answers, as_is, *leads))
    answers, as_is, lead, moved, slack = (torch.cat(some) for some in zip(*parts, strict=True))

    def count(other: Tensor) -> int:
        return int(((answers == other) | (targets == IGNORE)).all(1).sum())

    worst = int(lead.argmin())
    return Certificate(
        len(tokens),
        count(targets),
        None if said is None else count(said),
        float(lead[worst]),
        task.vocabulary.decode(tokens[worst].tolist()),
        str(precision).removeprefix("torch."),
        None if unbounded else float(moved.max()),
        0 if unbounded else int((slack > 0).sum()),
        count(as_is),
        {
            "weights": f"those of {subject.describe()}, sha256 {_digest(model)}",
            "our forward": f"a {type(model).__name__} in float64, by torch {torch.__version__}, "
            f"of up to {CHUNK} inputs at once, none of which acts on another",
            "rounding": unbounded
            or f"sums in any order; torch's functions to {LIBRARY} units in the last place; that "
            "no number on the way overflows",
            "this enumeration": counted,
            "the program": "there is none"
            if said is None
            else "the file that --python writes"
            if isinstance(program, Explanation)
            else "the function that was given",
        },
    )


def _with_every_input(subject: Subject) -> tuple[Subject, str]:
    """The subject on every input that there is, and these in words."""

    def check(holds: bool, wants: str) -> None:
        if not holds:
            raise NotApplicableError(f"{subject.describe()}: a certificate is of {wants}")

    task, every = subject.task, "every input; expected a finite task, or all prompts of a form"
    check(subject.answer != "all", "one answer; got answer='all', expected a number")
    check(isinstance(task, FiniteTask), f"{every}, got {task.name if task else 'none'}")
    assert isinstance(task, FiniteTask)
    n = len(subject.data) if task.is_sample else math.prod(task.grid)
    check(n <= MAX_INPUTS, f"at most {MAX_INPUTS:,} inputs; got {n:,}")
    subject = subject if task.is_sample else subject.with_data(task.examples())
    tokens, lengths, n = (
        subject.data.tokens.cpu(),
        subject.answer_positions.cpu() + 1,
        len(subject.data),
    )
    numbers = tokens.is_floating_point() or subject.targets.is_floating_point()
    check(not numbers, "tokens that are answered by classes; got numbers")
    whole = not task.is_sample or is_population(tokens, lengths)
    check(whole, f"{every}, got {n:,} that are not all combinations of their tokens")
    check(len(tokens.unique(dim=0)) == n, f"inputs that differ; some of the {n:,} are equal")
    check(subject.finite, "a model with finite logits; some are not")
    form = f"all of {task.title}, and its answers"
    if task.is_sample:
        form = "all combinations of the prompts' tokens, and their answers or else the model's"
    return subject, f"{n:,} inputs, each once: {form}"


def _answers_by(
    subject: Subject, program: Any, seed: int, examples: int
) -> Int[Tensor, "input output"]:
    """The answers of a program to every input, IGNORE where it says nothing."""
    tokens = subject.data.tokens.cpu()
    if not isinstance(program, Explanation):
        stated = program_of(subject, program)
        assert stated is not None
        return labels_of(answers_of(stated, subject), stated.run(tokens))
    if program.over_sources is not None:
        at = subject.answer_positions.cpu()
        return program.over_sources.run_python(tokens, at)[:, None]
    found = torch.from_numpy(written(subject, program, seed, examples).answers(tokens))
    if program.among is None:
        return found
    return found.masked_fill(~program.among(program.program.run(tokens))[:, None], IGNORE)


def _logits(
    model: Any, tokens: Tensor, at: Tensor, precision: torch.dtype | None = None
) -> tuple[Tensor, Tensor | None, str]:
    """Logits (input, d_vocab_out) at the answers, the bound on each where a precision is given, and
    the reason for which there is none.
    """
    rows = torch.arange(len(at))
    with torch.no_grad(), evaluating(model):
        if precision is None:
            return model(tokens)[rows, at].double().cpu(), None, ""
        try:
            with RoundingBound(precision) as bound:
                logits = model(tokens)
        except NotApplicableError as error:
            return *_logits(model, tokens, at)[:2], str(error)
    return logits[rows, at], bound.of(logits)[rows, at], ""


def _leads(
    logits: Tensor, error: Tensor | None, slices: Sequence[slice], asked: Tensor
) -> tuple[Tensor, ...]:
    """The answers (input, output); of each input how far they lead the next class, at least, how
    much rounding moves that, at most, and what is left of the lead at the worst class.
    """
    error, found = torch.zeros_like(logits) if error is None else error, list[list[Tensor]]()
    for column, part in enumerate(slices):
        own = logits[:, part].argmax(1, keepdim=True)
        other = asked[:, column, None] & (torch.arange(part.stop - part.start) != own)
        lead = logits[:, part].gather(1, own) - logits[:, part]
        move = error[:, part].gather(1, own) + error[:, part]
        lead, move = lead.where(other, torch.inf), move.where(other, 0.0)
        found.append([own[:, 0], lead.amin(1), move.amax(1), (lead - move).amin(1)])
    answers, leads, moves, slacks = (torch.stack(some, 1) for some in zip(*found, strict=True))
    return answers, leads.amin(1), moves.amax(1), slacks.amin(1)


def _digest(model: Any) -> str:
    """A digest of the weights and buffers."""
    held = (*model.named_parameters(), *model.named_buffers())
    return digest_of({}, {name: one.detach().cpu() for name, one in held})[:16]
