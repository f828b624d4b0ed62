"""Pairs, places where a variable is looked for, and what the best subspace of each does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import DataError, ParameterError
from mechint.interventions import Site
from mechint.models.protocol import gradients_of, read_only_hooks
from mechint.probes._das._swap import SwapSite, interchange_accuracy, mean
from mechint.subject.counterfactuals import asked_answer, draw
from mechint.subject.pairs import Pairs
from mechint.task import IGNORE, Batch, FiniteTask, Task, Variable
from mechint.task.sides import sides

if TYPE_CHECKING:
    from mechint.subject import Subject

MINIMAL_PAIRS = 256
"""Most pairs on which the whole activation is swapped with a source that differs in the variable
alone.
"""
MIN_PAIRS = 24
"""Pairs in all, a third of them held out, without which nothing is searched."""
HELD_OUT = 1 / 3
"""Share of the examples that is held out where they are a sample (`FiniteTask.is_sample`)."""
MIN_EXAMPLES = 10
"""Held-out examples of a sample from which something is said: pairs of them that share none are
five then, and five right of five against none have p = 1/252, four 1/70 (Fisher's exact test).
"""


AMONG = ("subspaces", "principal", "units", "boundless")
"""Sets that `fit` searches: any subspace, the first principal directions, units by a trained mask,
or any subspace of a number of dimensions that is trained, too.
"""
UNIT_COST = 0.01
"""Nats that a unit of the mask costs."""
BOUND_COST = 1.0
"""Nats that all dimensions within the boundary cost together."""
SHARPEST = 0.1
"""Dimensions over which the boundary is blurred in the last step, from a quarter of all on."""


@dataclass(frozen=True)
class Drawn:
    """Pairs that a subspace is trained on, and other pairs, on which it is judged.

    minimal: pairs whose source differs from the base in the variable and in as little else as the
    task allows, fewer than `MINIMAL_PAIRS` where the task has no more, None where it has none.
    fitted: where the examples are a sample, those that `train` is made of, else None: no pair of
    `test` has any of them. apart: nor a stated counterfactual of any of them.
    """

    train: Pairs
    test: Pairs
    minimal: Pairs | None = None
    fitted: Batch | None = None
    apart: bool = True

    @property
    def unseen(self) -> float:
        """Share of `test` whose base and source are in no pair of `train`."""
        trained = _inputs(self.train.base) | _inputs(self.train.source)
        both = zip(self.test.base.tolist(), self.test.source.tolist(), strict=True)
        new = [tuple(base) not in trained and tuple(source) not in trained for base, source in both]
        return sum(new) / len(new)

    @property
    def examples(self) -> int | None:
        """Different examples in `test` where these are a sample; None where they are not."""
        if self.fitted is None:
            return None
        return len(_inputs(self.test.base) | _inputs(self.test.source))


def _inputs(tokens: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(row) for row in tokens.tolist()}


def draw_pairs(
    subject: Subject, variable: Variable, trained: int, held_out: int, seed: int, only_correct: bool
) -> Drawn:
    """Pairs to train on, and pairs held out: others of the same inputs, or, where the inputs of the
    task are a sample, pairs of examples that no training pair has. Of a small task as many as it
    has, in the same proportion.

    Raises:
        DataError: there are fewer than `MIN_PAIRS`.
    """
    task = subject.known_task
    if isinstance(task, FiniteTask) and task.is_sample:
        return _draw_divided(subject, task, variable, trained, held_out, seed, only_correct)
    n = trained + held_out
    if isinstance(task, FiniteTask):
        n = int(min(n, count_pairs(math.prod(task.grid), variable)))
    least, answer = min(n, MIN_PAIRS), asked_answer(subject)
    drawn = draw(subject, variable, n, seed, only_correct=only_correct, answer=answer, least=least)
    held = max(2, round(len(drawn) * held_out / (trained + held_out)))
    minimal = draw_minimal(subject, variable, held_out, seed, only_correct, None)
    return Drawn(drawn[held:], drawn[:held], minimal)


def count_pairs(n: int, variable: Variable) -> int:
    """Number of different independent pairs that n examples make."""
    return n * (n - 1) if variable.is_example else n * n


def _draw_divided(
    subject: Subject,
    task: FiniteTask,
    variable: Variable,
    trained: int,
    held_out: int,
    seed: int,
    only_correct: bool,
) -> Drawn:
    """Pairs of examples that are trained on, and pairs of others."""
    found = sides(task, HELD_OUT, seed)
    fitted, others = (task.examples()[rows] for rows in (found.fitted, found.held_out))
    parts: list[Pairs] = []
    for wanted, among in ((trained, fitted), (held_out, others)):
        n = min(wanted, count_pairs(len(among), variable))
        if n < 2:
            raise DataError(
                f"{subject.describe()}: {len(fitted)} examples can be trained on and "
                f"{len(others)} held out; two of each make a pair: give it more examples"
            )
        options = {"answer": asked_answer(subject), "among": among, "least": 2}
        parts.append(draw(subject, variable, n, seed, only_correct=only_correct, **options))
    minimal = draw_minimal(subject, variable, held_out, seed, only_correct, fitted)
    train, test = parts
    return Drawn(train, test, minimal, fitted, found.apart)


def draw_minimal(
    subject: Subject,
    variable: Variable,
    held_out: int,
    seed: int,
    only_correct: bool,
    among: Batch | None,
) -> Pairs | None:
    """Pairs whose source differs in the variable and in as little else as the task allows, at most
    as many as are held out; those made of the examples `among`. None where there are none.
    """
    n, answer = min(held_out, MINIMAL_PAIRS), asked_answer(subject)
    options = {"only_correct": only_correct, "relation": "minimal", "answer": answer, "least": 1}
    try:
        drawn = draw(subject, variable, n, seed + 1, **options)
    except DataError:
        return None
    if among is not None:
        drawn = drawn[drawn.made_of(among.tokens)]
    return drawn if len(drawn) else None


Place = tuple[str, int | None]
"""A hook and a position, None for that of the answer."""
Verdict = Literal["variable", "inputs", "inconsistent", "none"]

SWEPT = 64
"""Pairs, and at most as many positions, on which the whole activation is swapped everywhere."""
SPARE = 2.0
"""Standard errors of a share of the held-out pairs above the threshold, on the training pairs."""
NEIGHBORS = 5
DECODED_ON = 2048
"""Most inputs that the variable is decoded from."""
LEAST_DECODED = 0.8
"""Of the values, above chance, that coordinates must tell out of sample to be the variable's."""


MOST_INPUT = 0.5
"""Share of the coordinates' variance among inputs that share the value, above which the value has
to be decodable from them.
"""


@dataclass(frozen=True)
class SiteCell:
    """One subspace of the search and what its interchange does, on held-out pairs but `trained`.

    correct (pair, output). full_swap, full_swap_minimal: of the whole activation, from any source
    and from one that differs in the variable and in as little else as the task allows, NaN where
    there is none such. input_share, decoded: of `share_within_values` and `decode`, NaN where no
    two inputs share a value.
    """

    place: Place
    dimension: int
    subspace: Tensor
    losses: list[float]
    trained: float
    correct: Tensor
    full_swap: float
    full_swap_minimal: float
    input_share: float
    decoded: float

    @property
    def iia(self) -> float:
        """Interchange intervention accuracy on held-out pairs, 0–1."""
        return mean(self.correct)

    @property
    def where(self) -> str:
        """Hook and position, in the one spelling of components."""
        hook, pos = self.place
        return str(Site(hook, "answer" if pos is None else pos))

    def verdict(self, threshold: float) -> Verdict:
        """none: the swap does not give the answers. inconsistent: it does, and the swap of the
        whole activation, from a source that differs in the variable alone, does not. inputs: the
        coordinates say what the variable is computed from and not its value, which cannot be
        decoded from them on other inputs. variable: they hold the variable.
        """
        if self.iia < threshold:
            return "none"
        if self.full_swap_minimal < threshold:  # NaN: nothing can be said
            return "inconsistent"
        if self.input_share > MOST_INPUT and not self.decoded >= LEAST_DECODED:
            return "inputs"
        return "variable"


# --- places ---------------------------------------------------------------------------------------
def default_places(
    subject: Subject, variable: Variable, pos: int | None, *, embedding: bool = False
) -> list[Place]:
    """The residual stream before every block at the variable's own positions, and after every layer
    at the answer, where the model lets the stream be edited.

    embedding: before the first block, too, where the stream holds the variable's own tokens.
    """
    hooks = set(subject.hooks) - set(read_only_hooks(subject.model))
    own = variable.positions if pos is None else (pos,)
    places: list[Place] = []
    for layer in range(subject.n_layers):
        if layer or embedding or pos is not None:
            places += [(f"blocks.{layer}.hook_resid_pre", pos) for pos in own[:4]]
        for name in ("hook_resid_mid", "hook_resid_post"):
            if pos is None and f"blocks.{layer}.{name}" in hooks:
                places.append((f"blocks.{layer}.{name}", None))
    return places


def candidate_places(subject: Subject, minimal: Pairs, threshold: float) -> list[Place]:
    """Positions before the answer's at which the swap of the whole stream after a layer gives the
    answers: where a variable without a position of its own may be, as the carry of a sum that is
    written at its last digit. At most two a layer; [] where examples are read at several positions.

    minimal: pairs that differ in the variable alone, of which `SWEPT` are used.

    Cost: one forward over these pairs per position and per layer but the last.
    """
    pairs = minimal[:SWEPT]
    read = int(pairs.reads[0])
    if not bool(((pairs.reads == read) & (pairs.source_reads == read)).all()) or read > SWEPT:
        return []
    differ = (pairs.base != pairs.source).any(0)[:read].nonzero().flatten().tolist()
    places: list[Place] = []
    for layer in range(subject.n_layers - 1):
        hook, found = f"blocks.{layer}.hook_resid_post", dict[int, float]()
        for pos in range(min(differ, default=read), read):
            site = SwapSite(subject, pairs, hook, pos)
            found[pos] = mean(interchange_accuracy(subject, site, None))
        best = sorted(found, key=lambda pos: found[pos], reverse=True)[:2]
        places += [(hook, pos) for pos in best if found[pos] >= threshold]
    return places


def component_places(
    subject: Subject, variable: Variable, minimal: Pairs, threshold: float
) -> list[Place]:
    """Outputs of the heads of a layer, side by side, and of its MLP, at the answer and the own
    positions of the variable, where the swap of the whole gives the answers: the stream adds them
    up, and what two heads write may lie in one subspace of it.

    Cost: one forward over `minimal` per layer, kind and position.
    """
    hooks, found = set(subject.hooks) - set(read_only_hooks(subject.model)), list[Place]()
    for layer in range(subject.n_layers):
        for name in ("attn.hook_z", "hook_mlp_out"):
            for pos in (None, *variable.positions[:4]):
                if (hook := f"blocks.{layer}.{name}") in hooks:
                    site = SwapSite(subject, minimal, hook, pos)
                    whole = mean(interchange_accuracy(subject, site, None))
                    found += [(hook, pos)] * (whole >= threshold)
    return found


# --- the search -----------------------------------------------------------------------------------
def search(
    subject: Subject,
    variable: Variable,
    drawn: Drawn,
    places: Sequence[Place],
    dimensions: Sequence[int],
    threshold: float,
    fitting: dict[str, Any],
    *,
    every: bool = False,
) -> Iterator[SiteCell]:
    """The subspace of every dimension at every place, the largest dimension first.

    fitting: keyword arguments of `fit`. every: smaller dimensions are searched, too, where a larger
    one already falls short of the threshold on the training pairs.
    """
    task, train, test = subject.known_task, drawn.train, drawn.test
    for place in places:
        on_train, on_test = (SwapSite(subject, part, *place) for part in (train, test))
        full = mean(interchange_accuracy(subject, on_test, None))
        minimal = math.nan
        if drawn.minimal is not None:
            whole = SwapSite(subject, drawn.minimal, *place)
            minimal = mean(interchange_accuracy(subject, whole, None))
        sizes = sorted(
            {dimension for dimension in dimensions if dimension <= on_test.width}, reverse=True
        )
        if not sizes:
            raise ParameterError(
                f"das: dimension {min(dimensions)} is above the width {on_test.width} of {place[0]}"
            )
        sizes = sizes[:1] if fitting.get("among") == "boundless" else sizes
        inputs = torch.cat([train.base, train.source])
        activations = torch.cat([on_train.base, on_train.source])
        for dimension in sizes:
            subspace, losses = fit(on_train, task, dimension, **fitting)
            trained = mean(interchange_accuracy(subject, on_train, subspace))
            correct = interchange_accuracy(subject, on_test, subspace)
            within = decoded = math.nan
            if not variable.is_example:
                coordinates = activations @ subspace
                values = variable.value_of(inputs)
                within = share_within_values(coordinates, values)
                if within > MOST_INPUT:
                    decoded = decode(coordinates, values, own_tokens(variable, inputs))
            yield SiteCell(
                place,
                subspace.shape[1],
                subspace,
                losses,
                trained,
                correct,
                full,
                minimal,
                within,
                decoded,
            )
            if not every and trained < threshold:
                break


def choose_cell(found: Sequence[SiteCell], threshold: float) -> SiteCell:
    """The smallest subspace that holds the variable on the training pairs, with `SPARE` standard
    errors of a held-out accuracy to spare or else as much as any; the one of highest accuracy among
    equals. Where none does, one that carries the inputs, or whose full swap fails; else the most
    accurate.
    """
    holding = [cell for cell in found if cell.trained >= threshold]
    by_verdict = {
        name: [cell for cell in holding if cell.verdict(threshold) == name] for name in ORDER
    }
    chosen = next((cells for cells in by_verdict.values() if cells), holding)
    if not chosen:
        return max(found, key=lambda one: one.trained)
    # held-out pairs judge it: one just above the threshold falls below it there by chance
    error = math.sqrt(threshold * (1 - threshold) / len(chosen[0].correct))
    enough = min(threshold + SPARE * error, max(cell.trained for cell in chosen))
    chosen = [cell for cell in chosen if cell.trained >= enough]
    return min(chosen, key=lambda one: (one.dimension, -one.trained))


ORDER: tuple[Verdict, ...] = ("variable", "inputs", "inconsistent")


# --- the variable, or the inputs that it is computed from? ----------------------------------------
def share_within_values(
    coordinates: Float[Tensor, "example k"], values: Int[Tensor, " example"]
) -> float:
    """Variance of the coordinates among inputs that share the variable's value, over their variance
    among all: 0 where they are a function of the variable, and 1 where their means say nothing of
    it, as of a code that puts one value on both sides of another.

    NaN where no two inputs share a value, or the coordinates do not vary.
    """
    z = coordinates.double()
    index = values.unique(return_inverse=True)[1]  # (example,) place of its value
    counts = index.bincount()  # (value,)
    free = len(z) - len(counts)  # degrees of freedom within values
    total = float((z - z.mean(0)).square().sum()) / max(len(z) - 1, 1)
    if free < 1 or total <= 1e-20:
        return math.nan
    means = z.new_zeros(len(counts), z.shape[1]).index_add_(0, index, z) / counts[:, None]
    return float((z - means[index]).square().sum()) / free / total


def decode(
    coordinates: Float[Tensor, "example k"],
    values: Int[Tensor, " example"],
    inputs: Int[Tensor, "example own"],
) -> float:
    """Share of the values, above chance, that the nearest of other inputs tell: 1 where the value
    is a function of the coordinates that neighbors share, about 0 where they hold the inputs alone.

    inputs: what the variable is computed from; half of the different ones are decoded from the
    other half, each value counting alike. NaN where every value has one input.
    """
    combinations, own = inputs.unique(dim=0, return_inverse=True)
    present, index = values.unique(return_inverse=True)
    if len(combinations) <= len(present) or len(present) < 2:
        return math.nan
    generator = torch.Generator().manual_seed(0)
    # half of the different inputs are known, so that a table of inputs tells no value
    fitted = torch.zeros(len(combinations), dtype=torch.bool)
    fitted[torch.randperm(len(combinations), generator=generator)[: len(combinations) // 2]] = True
    rows = torch.randperm(len(values), generator=generator)[:DECODED_ON].to(own.device)
    known = fitted.to(own.device)[own[rows]]
    known, asked = rows[known], rows[~known]
    if len(known) < NEIGHBORS or not len(asked):
        return math.nan
    distances = torch.cdist(coordinates[asked].double(), coordinates[known].double())
    nearest = distances.topk(NEIGHBORS, largest=False).indices
    one_hot = torch.nn.functional.one_hot(index, len(present)).double()  # (example, value)
    votes = one_hot[known] / one_hot[known].sum(0).clamp_min(1)  # each value counts alike
    said = votes[nearest].sum(1).argmax(1)  # (asked,) value of most votes among its neighbors
    right = (said == index[asked]).double()
    recalls = [float(right[index[asked] == value].mean()) for value in index[asked].unique()]
    chance = 1 / len(present)
    return (sum(recalls) / len(recalls) - chance) / (1 - chance)


def own_tokens(
    variable: Variable, tokens: Int[Tensor, "example pos"]
) -> Int[Tensor, "example own"]:
    """The tokens that the variable is computed from, where it says; else all."""
    return tokens[:, list(variable.positions)] if variable.positions else tokens


# --- the fit of one subspace ----------------------------------------------------------------------
def fit(
    site: SwapSite,
    task: Task,
    dimension: int,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    seed: int,
    among: str = "subspaces",
) -> tuple[Float[Tensor, "width k"], list[float]]:
    """The subspace of this dimension whose interchange best gives the labels of the pairs, and the
    loss of every step.

    Minimizes the cross-entropy of the labels (Geiger et al. 2024, Eq. 4) with Adam on a free matrix
    whose QR decomposition gives the orthonormal columns, the learning rate falling linearly to
    zero. Equal bits for equal seeds.

    among: "principal" takes the first principal directions of the activations, whatever the labels;
    "units" those of most weight in a mask that the same loss trains (desiderata-based masking,
    Davies et al. 2023); "boundless" at most so many dimensions, those within a boundary that is
    trained with them (Wu et al. 2023).

    Raises:
        ParameterError: more dimensions than the activation is wide.
    """
    if dimension > site.width:
        raise ParameterError(
            f"das: dimension {dimension} is above the width {site.width} of {site.hook}"
        )
    labels = site.pairs.labels
    generator = torch.Generator().manual_seed(seed)
    if among == "principal":
        each = torch.cat([site.base, site.source])
        subspace = torch.linalg.svd(each - each.mean(0)).Vh[:dimension].T.contiguous()
        with torch.no_grad():
            every = torch.arange(min(batch_size, len(site.pairs)), device=site.base.device)
            loss = answer_loss(task, site.swapped(subspace, every), labels[every])
        return subspace, [float(loss)]
    units = torch.eye(site.width).to(site.base) if among == "units" else None
    free = random_subspace(site.width, dimension, generator).to(site.base).requires_grad_()
    if units is not None:
        free = site.base.new_zeros(site.width).requires_grad_()
    bound = site.base.new_full((), 0.5).requires_grad_()  # of all dimensions
    # of the boundary, in dimensions, narrower in every step: at last a dimension is in or out
    blur = torch.linspace(math.log(max(dimension / 4, SHARPEST)), math.log(SHARPEST), steps).exp()
    place = torch.arange(dimension).to(site.base) + 0.5
    leaves = [free, bound] if among == "boundless" else [free]
    adam, losses = torch.optim.Adam(leaves, lr=lr), []
    for step in range(steps):
        rows = torch.randint(len(site.pairs), (batch_size,), generator=generator)
        rows = rows.to(site.base.device)
        with torch.enable_grad():
            basis = orthonormal(free) if units is None else units
            mask = torch.ones_like(place)
            if units is not None:
                mask = free.sigmoid()
            elif among == "boundless":
                mask = ((dimension * bound - place) / blur[step]).sigmoid()
            # swapped through basis · basisᵀ, so that a column counts by its mask
            loss = answer_loss(task, site.swapped(basis * mask.sqrt(), rows), labels[rows])
            cost = {"units": UNIT_COST * mask.sum(), "boundless": BOUND_COST * mask.mean()}
            loss = loss + cost.get(among, 0.0)
            for leaf, grad in zip(leaves, gradients_of(loss, leaves, all_used=True), strict=True):
                leaf.grad = grad
        adam.param_groups[0]["lr"] = lr * (1 - step / steps)
        adam.step()
        with torch.no_grad():  # orthonormal again, so that the step size keeps its meaning
            free.copy_(orthonormal(free) if units is None else free)
            bound.clamp_(0, 1)
        losses.append(loss.detach())
    if units is not None:
        return units[:, free.topk(dimension).indices], torch.stack(losses).tolist()
    kept = max(1, int((place < dimension * bound).sum())) if among == "boundless" else dimension
    return free.detach()[:, :kept], torch.stack(losses).tolist()


def orthonormal(free: Float[Tensor, "width k"]) -> Float[Tensor, "width k"]:
    """Orthonormal columns that span the columns of `free`, in their order and sense.

    >>> orthonormal(torch.tensor([[3.0], [4.0]])).flatten().tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if free.shape[1] == 1:
        return free / free.norm()
    q, r = torch.linalg.qr(free)
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0).to(q)


def answer_loss(
    task: Task, logits: Float[Tensor, "row d_vocab_out"], labels: Int[Tensor, "row output"]
) -> Float[Tensor, ""]:
    """Mean over outputs of the mean cross-entropy (nats) of labels (row, output), in the precision
    of the logits.
    """
    losses = [
        F.cross_entropy(logits[:, columns], labels[:, output], ignore_index=IGNORE)
        for output, columns in enumerate(task.output_slices.values())
        if bool((labels[:, output] != IGNORE).any())
    ]
    return torch.stack(losses).mean()


def random_subspace(
    width: int, dimension: int, generator: torch.Generator
) -> Float[Tensor, "width k"]:
    """Orthonormal columns of a uniformly distributed subspace, float64."""
    square = torch.randn(width, dimension, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square)[0]
