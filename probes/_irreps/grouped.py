"""Which group a model is held against, and what it computes summed by the product, in one pass."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.activations import LOGITS
from mechint.errors import DataError
from mechint.groups.finite import FiniteGroup
from mechint.subject import Subject
from probes._fourier.spectra import Array
from probes.answers import AnswerTally, Sums, not_by_heart
from probes.operands import by_element, by_example

MOST = 0.5
"""Share of the answers that have to be the task's for its table to be the model's."""


@dataclass(frozen=True)
class Grouped:
    """A model's logits and last hidden layer on all pairs of a group's elements.

    Pairs stand in the order of the elements (`operands.element_places`). source: where the table is
    from, "task" or "model"; products (n, n): the element that answers each pair; answers (n, n):
    the class that the model answers. sums (n, n): logits centered over classes and inputs, summed
    by the pair's product; squares: the sum of their squares. hidden: "left", "right", "product" →
    mean activation (n, d_mlp) for each x, y and x·y, less the mean; hidden_squares: the sum of
    squares of the centered activations, over all pairs. unseen: by the task's table, sums of the
    logits over the pairs that the model cannot have by heart, and what these are; None where they
    do not show every product.
    """

    group: FiniteGroup
    source: str
    products: Int[Array, "n n"]
    answers: Int[Array, "n n"]
    sums: Float[Array, "n n"]
    squares: float
    hidden: dict[str, Array] = field(default_factory=dict)
    hidden_squares: float = 0.0
    unseen: tuple[str, Sums] | None = None


def group_answers(subject: Subject, table: str) -> Grouped:
    """All sums of one forward over the data, of a second one where the task's table does not fit.

    table: "task", "model", or "auto": the task's where the model answers most pairs by it or by no
    group's table.

    Raises:
        DataError: the task has no group, or the model's own answers are none.
    """
    assert subject.task is not None
    given = subject.task.outputs[0].group
    if table == "task" and given is None:
        raise DataError("its task has no group; set irreps.table=model")
    labels = by_element(subject, subject.targets[:, 0]).cpu().numpy()
    known = given is not None and table != "model"
    answers, sums = _summed(subject, labels) if known else (model_table(subject), None)
    if known and (table == "task" or float((answers == labels).mean()) > MOST):
        return _grouped(given, "task", labels, answers, sums)
    try:
        group = FiniteGroup(answers)
    except DataError as error:
        if known:  # an untrained model: what it has is still measured on the task's group
            return _grouped(given, "task", labels, answers, sums)
        raise DataError(f"the model's own answers are not a group: {error}") from error
    found = _grouped(group, "model", answers, answers, _summed(subject, answers)[1])
    return dataclasses.replace(found, unseen=None)  # its own table is not what it was taught


def why_no_group(subject: Subject, table: str) -> str | None:
    """Why `group_answers` would raise, without a forward where the task's table decides it."""
    assert subject.task is not None
    given = subject.task.outputs[0].group
    if given is not None and table != "model":
        return None
    if table == "task":
        return "its task has no group; set irreps.table=model"
    try:
        FiniteGroup(model_table(subject))
    except DataError as error:
        return f"the model's own answers are not a group: {error}"
    return None


def model_table(subject: Subject) -> Int[Array, "n n"]:
    """The class the model answers to every pair, for a task whose grid is that of two operands."""
    assert subject.task is not None
    n = subject.task.outputs[0].n_classes
    parts = [found[LOGITS][:, :n].argmax(-1) for _, found in subject.stream([LOGITS], at="answer")]
    return by_element(subject, torch.cat(parts)).cpu().numpy()


# --- sums -----------------------------------------------------------------------------------------
@dataclass
class _Sums:
    """Sums over the chunks seen so far, by product, and for the hidden layer by x and y too."""

    logits: Tensor
    squares: float = 0.0
    hidden: dict[str, Tensor] = field(default_factory=dict)
    hidden_squares: float = 0.0
    unseen: tuple[str, AnswerTally] | None = None


def _summed(subject: Subject, products: Array) -> tuple[Array, _Sums]:
    """The model's answers (n, n), and sums by `products`, in one pass."""
    n, device = len(products), subject.device
    hook = f"blocks.{subject.n_layers - 1}.mlp.hook_post"
    names = [LOGITS, *([hook] if hook in subject.model.hook_dict else [])]
    sums = _Sums(torch.zeros(n, n, dtype=torch.float64, device=device))
    elements = torch.arange(n, device=device).expand(n, n)
    by = {"left": by_example(subject, elements.mT), "right": by_example(subject, elements)}
    product = by_example(subject, torch.from_numpy(products).to(device))
    if (np.bincount(products.ravel(), minlength=n) == n).all():
        by["product"] = product
    answers, rest = [], not_by_heart(subject)
    if rest is not None:
        sums.unseen = (rest[0], AnswerTally(n, device))
    for part, found in subject.stream(names, at="answer"):
        logits = found[LOGITS][:, :n]
        answers.append(logits.argmax(-1))
        centered = logits.double()
        centered -= centered.mean(1, keepdim=True)
        sums.logits.index_add_(0, product[part], centered)
        sums.squares += float(centered.flatten() @ centered.flatten())
        if rest is not None and sums.unseen is not None:
            some = rest[1](part, answers[-1] == product[part])
            sums.unseen[1].add(product[part][some], centered[some])
        if hook in found:
            _add_hidden(sums, found[hook], {name: i[part] for name, i in by.items()}, n)
    return by_element(subject, torch.cat(answers)).cpu().numpy(), sums


def _add_hidden(sums: _Sums, values: Tensor, by: dict[str, Tensor], n: int) -> None:
    """Add the neurons of a chunk (example, d_mlp): a sum of n of them needs no float64, that of all
    squares does.
    """
    for name, index in by.items():
        if name not in sums.hidden:
            sums.hidden[name] = values.new_zeros(n, values.shape[1])
        sums.hidden[name].index_add_(0, index, values)
    sums.hidden_squares += float(torch.linalg.vector_norm(values, dim=1).double().square().sum())


def _grouped(
    group: FiniteGroup | None, source: str, products: Array, answers: Array, sums: _Sums | None
) -> Grouped:
    assert group is not None and sums is not None
    n = len(products)
    mean = sums.logits.sum(0) / n**2
    counts = torch.bincount(torch.from_numpy(products.flatten()), minlength=n)[:, None]
    hidden, hidden_squares = {}, 0.0
    if sums.hidden:
        hidden_sums = {name: summed.double() for name, summed in sums.hidden.items()}
        hidden_mean = hidden_sums["left"].sum(0) / n**2
        hidden_squares = sums.hidden_squares - float(n**2 * hidden_mean.square().sum())
        hidden = {
            name: (summed / n - hidden_mean).cpu().numpy() for name, summed in hidden_sums.items()
        }
    unseen = None
    if sums.unseen is not None and sums.unseen[1].counts.all():
        unseen = (sums.unseen[0], sums.unseen[1].total())
    return Grouped(
        group,
        source,
        products,
        answers,
        (sums.logits - counts.to(mean.device) * mean).cpu().numpy(),
        sums.squares - float(n**2 * mean.square().sum()),
        hidden,
        hidden_squares,
        unseen,
    )
