"""Chains of stochastic gradient Langevin dynamics around a model's weights.

    w ← w − ε/2 (nβ ∇L_B(w) + γ (w − w*)) + √ε ξ,    ξ ~ N(0, 1)

(Lau et al. 2023, Eq. 10; Welling & Teh 2011). Every step of a chain draws its batch B anew, and its
loss is held against that of w* on the same B: each chain has a baseline of its own, and the noise
of the batch falls out of the difference.

All chains move together, vectorized where the model's forward allows it, one after another where it
does not. The field's library, devinterp, would bring zarr, xarray and three more packages for what
is here: a baseline per chain, and a reason where they disagree.
Cost: one forward and backward on a batch per chain and step. Memory: four copies of the weights
per chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import grad_and_value, vmap

from mechint.interventions import detached_weights, resumes
from mechint.models.foreign.untouched import all_finite
from mechint.models.forward import Forward
from mechint.models.protocol import gradients_of
from mechint.models.replaced import call_with_weights
from mechint.models.rows import RowLayout
from mechint.subject import Subject
from mechint.task import IGNORE, Batch, Task, rng

Weights = dict[str, Tensor]
"""Name → (chain, …) values."""
Gradient = Callable[[Weights], Weights]
"""∇L of every chain at its weights."""
STIFF = 0.1
"""Step size ε times the largest curvature of the potential; its bias there is ε·curvature / 4."""
PILOT, TRIES = 60, 12
"""Steps of a pilot chain, and pilots at most."""
POWER = 8
"""Iterations of the power method."""
FLAT = 1e-4
"""Share of the largest curvature up to which a direction counts as flat; what differences of
float32 gradients get wrong is less."""
STEPS = 32
"""Of the Lanczos method: products with the Hessian per start, at most."""
COORDINATES = 1024
"""Of all starts together, at least: with so many the error of a share is about 0.02."""


class Chain(NamedTuple):
    """One chain: its step size, and its shares of the localization and of the noise; without noise
    it is descent.
    """

    step_size: float
    localization: float = 1.0
    noise: float = 1.0


class Sampler:
    """The tempered posterior around the weights of a model, and chains that sample it.

    Args:
        model: any model; it stays as it is.
        data: n examples; all of them enter each step where `batch_size` is not below n.
        temperature: nβ, by which the mean loss is multiplied.
        localization: γ, the pull back to the model's own weights.
        chunk: examples per forward, all chains together.
    """

    def __init__(
        self,
        model: Any,
        task: Task | None,
        data: Batch,
        *,
        temperature: float,
        localization: float,
        batch_size: int,
        chunk: int,
    ) -> None:
        self.model, self.task, self.data = model, task, data
        self.temperature, self.localization = temperature, localization
        self.batch_size, self.chunk = min(batch_size, len(data)), chunk
        self.center = self._sampled()
        self.baseline = without_gradient(model, task, data, chunk)  # (n,) of w* itself
        self.vectorized = self._vectorizes()

    @property
    def n_parameters(self) -> int:
        """Weights that the loss depends on; the others are left where they are."""
        return sum(weight.numel() for weight in self.center.values())

    def _sampled(self) -> Weights:
        """The parameters that reach the loss, one copy, detached."""
        every = {
            name: weight.detach().clone().requires_grad_(True)
            for name, weight in self.model.named_parameters()
        }
        loss = self._loss(every, self.data[:1], torch.ones(1, device=self.device))
        found = gradients_of(loss, list(every.values()))
        return {
            name: weight.detach()
            for (name, weight), part in zip(every.items(), found, strict=True)
            if part is not None
        }

    @property
    def device(self) -> torch.device:
        """Device of the chains."""
        return self.data.tokens.device

    # --- loss and gradient of all chains ----------------------------------------------------------
    def _loss(self, weights: Weights, data: Batch, share: Tensor) -> Tensor:
        """Σ share · loss over examples, of one chain's weights (without a chain axis)."""
        return (example_losses(_With(self.model, weights), self.task, data) * share).sum()

    def _vectorizes(self) -> bool:
        """Return whether the model's forward can be mapped over chains."""
        rows = torch.zeros(2, 1, dtype=torch.int64, device=self.device)
        try:
            self._mapped(self.copies(2), rows, torch.ones(1, device=self.device))
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            return False
        return True

    def _mapped(self, weights: Weights, rows: Tensor, share: Tensor) -> tuple[Weights, Tensor]:
        """Gradients (chain, …) and losses (chain,) on the examples rows (chain, example)."""

        descend = grad_and_value(lambda own, chosen: self._loss(own, self.data[chosen], share))
        return vmap(descend, randomness="different")(weights, rows)

    def _looped(self, weights: Weights, rows: Tensor, share: Tensor) -> tuple[Weights, Tensor]:
        """The same, one chain after another."""
        gradients: dict[str, list[Tensor]] = {name: [] for name in weights}
        losses = []
        for chain, chosen in enumerate(rows):
            own = {name: value[chain].requires_grad_(True) for name, value in weights.items()}
            loss = self._loss(own, self.data[chosen], share)
            for name, part in zip(own, torch.autograd.grad(loss, list(own.values())), strict=True):
                gradients[name].append(part)
            losses.append(loss.detach())
        return {name: torch.stack(parts) for name, parts in gradients.items()}, torch.stack(losses)

    def gradient(
        self, weights: Weights, rows: Int[Tensor, "chain example"]
    ) -> tuple[Float[Tensor, " chain"], Weights]:
        """Excess L_B(w) − L_B(w*) and ∇L_B(w) per chain, B the examples `rows` of each."""
        call, width = (self._mapped, len(rows)) if self.vectorized else (self._looped, 1)
        chunk = max(1, self.chunk // width)
        excess = -self.baseline[rows].mean(-1)
        total: Weights = {}
        for start in range(0, rows.shape[-1], chunk):
            part = rows[..., start : start + chunk]
            share = torch.full((part.shape[-1],), 1 / rows.shape[-1], device=self.device)
            gradients, losses = call(weights, part, share.double())
            excess = excess + losses
            total = {n: total[n] + g if total else g for n, g in gradients.items()}
        return excess, total

    # --- chains -----------------------------------------------------------------------------------
    def copies(self, chains: int) -> Weights:
        """The model's own weights, once for every chain."""
        return {
            name: value.expand(chains, *value.shape).clone() for name, value in self.center.items()
        }

    def _rows(self, chains: int, generator: torch.Generator) -> Int[Tensor, "chain example"]:
        n = len(self.data)
        if self.batch_size >= n:
            return torch.arange(n, device=self.device).expand(chains, -1)
        drawn = [torch.randperm(n, generator=generator) for _ in range(chains)]
        return torch.stack(drawn)[:, : self.batch_size].to(self.device)

    def sample(
        self, chains: Sequence[Chain], steps: int, *key: int | str
    ) -> Float[Tensor, "chain step"]:
        """L_B(w) − L_B(w*) in nats at every step of every chain, drawn by `key`; NaN from where a
        chain diverges.
        """
        return self._run(chains, steps, *key)[0]

    def _run(self, kinds: Sequence[Chain], steps: int, *key: int | str) -> tuple[Tensor, Weights]:
        generator = _generator("chains", *key)
        chains = len(kinds)
        weights = self.copies(chains)
        size, pull, noise = torch.tensor(kinds, dtype=torch.float64).T
        trace = torch.full((chains, steps), math.nan, dtype=torch.float64)
        for index in range(steps):
            excess, gradient = self.gradient(weights, self._rows(chains, generator))
            trace[:, index] = excess.detach().cpu()
            if not bool(torch.isfinite(excess).any()):
                break
            # nβ ∇L(w) + γ (w − w*) of every chain
            drift = {
                name: self.temperature * gradient[name]
                + _along(self.localization * pull, value) * (value - self.center[name])
                for name, value in weights.items()
            }
            weights = _moved(weights, drift, size, generator, noise)
        return trace, weights

    # --- the size of a step -----------------------------------------------------------------------
    def choose_step(self, *key: int | str) -> float:
        """ε so that ε · (nβ h + γ) = STIFF, h the largest curvature of the loss where chains go.

        A pilot chain begins at the step that the model's own curvature allows; where it meets
        a larger curvature, or diverges, the step shrinks and the pilot starts again.
        """
        generator = _generator("curvature", *key)
        step = self._stable(self.curvature(self.copies(1), generator))
        for attempt in range(TRIES):
            trace, weights = self._run([Chain(step)], PILOT, "pilot", attempt, *key)
            if not all_finite(trace):
                step /= 8
                continue
            allowed = self._stable(self.curvature(weights, generator))
            if allowed > step / 1.25:
                break
            step = allowed
        return step

    def _stable(self, curvature: float) -> float:
        return STIFF / (self.temperature * curvature + self.localization)

    def curvature(self, weights: Weights, generator: torch.Generator) -> float:
        """Largest |eigenvalue| of the loss's Hessian at the weights of one chain, on one batch."""
        rows = self._rows(1, generator)
        return largest_curvature(
            lambda at: self.gradient(at, rows)[1], weights, self._delta(), generator
        )

    def curving(self, *key: int | str) -> Curving:
        """`share_curving` of the model's own weights, from directions drawn by `key`.

        On some batches of examples, and more than there are weights: fewer cannot make the loss
        curve along all directions.
        """
        generator = _generator("share curved", *key)
        n, enough = len(self.data), max(4 * self.batch_size, 2 * self.n_parameters)
        rows = torch.randperm(n, generator=generator)[None, :enough].to(self.device)

        def gradient(weights: Weights) -> Weights:
            starts = len(next(iter(weights.values())))
            return self.gradient(weights, rows.expand(starts, -1))[1]

        return share_curving(gradient, self.center, self._delta(), generator)

    def _delta(self) -> float:
        """Length of the steps over which gradients are compared."""
        squares = sum(float(value.double().square().sum()) for value in self.center.values())
        return 1e-3 * max(math.sqrt(squares), 1e-3)


class _With:
    """A model called with other weights; what is not named stays its own."""

    def __init__(self, model: Any, weights: Weights) -> None:
        self.model, self.weights = model, weights

    def __call__(self, *arguments: Tensor) -> Tensor:
        if resumes(self.model):  # mathematics of ours, which can be mapped over chains
            weights = {**detached_weights(self.model), **self.weights}
            return Forward(weights, self.model.config).logits(RowLayout.dense(arguments[0]))
        return call_with_weights(self.model, self.weights, arguments)


def _moved(
    weights: Weights, drift: Weights, size: Tensor, generator: torch.Generator, scale: Tensor
) -> Weights:
    """The weights of every chain one step on; sizes (chain,), and how much of ξ it has (chain,)."""
    moved: Weights = {}
    for name, value in weights.items():
        # on the CPU, so that every device draws the same
        noise = torch.randn(value.shape, generator=generator, dtype=value.dtype).to(value)
        steps, share = _along(size, value), _along(scale, value)
        moved[name] = (value - steps / 2 * drift[name] + share * steps.sqrt() * noise).detach()
    return moved


def _along(values: Float[Tensor, " chain"], like: Tensor) -> Tensor:
    """One value per chain, to be multiplied with weights (chain, …)."""
    return values.to(like).reshape(-1, *[1] * (like.dim() - 1))


def _generator(*key: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(int(rng("llc", *key).integers(2**62)))


# --- the negative log-likelihood of each example -------------------------------------------------
def training_data(subject: Subject, split: str) -> Batch:
    """The examples whose loss it is: the training split of a finite task where that is known and
    asked for, and the subject looks at all of the task's examples; else the subject's data.
    """
    parts = subject.split
    if split == "all" or parts is None:
        return subject.data
    return subject.data[parts["train"].to(subject.device)]


def example_losses(model: Any, task: Task | None, data: Batch) -> Float[Tensor, " example"]:
    """−log p(targets | tokens) of every example in nats, in float64.

    Classes: cross-entropy summed over all targets of the example. Real targets: ½‖y − f(x)‖², a
    Gaussian of unit variance without its constant.
    """
    if data.tokens.is_floating_point():
        inputs = [data.tokens] + ([data.masks["task"]] if "task" in data.masks else [])
        answers = model(*inputs).reshape(data.targets.shape)
        return 0.5 * (answers.double() - data.targets.double()).square().flatten(1).sum(1)
    # in float32 1 − softmax of a confident right answer rounds to 0, and the gradient with it
    logits = model(data.tokens).double()  # (example, pos, d_vocab_out)
    parts = [slice(None)] if task is None else task.output_slices.values()
    return torch.stack(
        [
            F.cross_entropy(
                logits[..., part].transpose(1, 2), classes, ignore_index=IGNORE, reduction="none"
            ).sum(1)
            for part, classes in zip(parts, data.targets.unbind(-1), strict=True)
        ]
    ).sum(0)


def without_gradient(model: Any, task: Task | None, data: Batch, chunk: int) -> Tensor:
    """(example,) `example_losses` in chunks, detached."""
    with torch.no_grad():
        parts = [
            example_losses(model, task, data[start : start + chunk])
            for start in range(0, len(data), chunk)
        ]
    return torch.cat(parts)


# --- curvature: the Hessian times directions, by differences of gradients -------------------------
def largest_curvature(
    gradient: Gradient, weights: Weights, delta: float, generator: torch.Generator
) -> float:
    """Largest |eigenvalue| of the Hessian at the weights of one chain, by the power method."""
    drawn = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights.values()]
    v, found = torch.cat([part.flatten(1) for part in drawn], 1), 0.0
    for _ in range(POWER):
        length = float(v.double().norm())
        if not 0 < length < math.inf:
            break
        v = _times_hessian(gradient, weights, delta, v / length)
        found = float(v.double().norm())
    return found if math.isfinite(found) else 1e12


@dataclass(frozen=True)
class Curving:
    """Curvature of the loss at weights: the share of directions along which it curves upward, by
    more than `FLAT` of its `largest` curvature.

    asymmetry: of the products with the Hessian, over `largest`: how much more or less one direction
    makes of another than that of it, the most over all steps. 0 of a matrix; where ReLUs switch
    within the differences, products are of no matrix, and nodes below it are of nothing.
    """

    share: float
    largest: float
    asymmetry: float


def share_curving(
    gradient: Gradient, center: Weights, delta: float, generator: torch.Generator
) -> Curving:
    """Of the weights `center`, without a chain axis; the share is that of the positive eigenvalues
    of the Hessian over all.

    Half their number is a lower bound of the learning coefficient at a minimum. Stochastic Lanczos
    quadrature (Ubaru, Chen & Saad 2017): its nodes lie between the eigenvalues, so a loss that
    curves along all directions gives 1 exactly, however few steps there are.
    """
    size = sum(value.numel() for value in center.values())
    starts = math.ceil(COORDINATES / size)
    weights = {name: value.expand(starts, *value.shape) for name, value in center.items()}
    v = torch.randn(starts, size, generator=generator)
    v = v / v.norm(dim=1, keepdim=True)
    basis, alpha, beta, odd = [v], [], [], [v.new_zeros(())]
    for _ in range(min(size, STEPS)):
        ahead = _times_hessian(gradient, weights, delta, basis[-1])
        alpha.append((ahead * basis[-1]).sum(1))
        back = [(ahead * before).sum(1) for before in basis[:-1]]
        if back:  # of a matrix: 0 but for the last, which is the length of the step before
            back[-1] = back[-1] - beta[-1]
            odd.append(torch.stack(back).norm(dim=0).max())
        for before in [*basis, *basis]:  # twice: once leaves what rounding makes of it
            ahead = ahead - (ahead * before).sum(1, keepdim=True) * before
        length = ahead.norm(dim=1, keepdim=True)
        beta.append(length[:, 0])
        basis.append(ahead / length.clamp_min(1e-30))
    tridiagonal = torch.diag_embed(torch.stack(alpha, 1).double())
    for i, between in enumerate(beta[:-1]):
        tridiagonal[:, i, i + 1] = tridiagonal[:, i + 1, i] = between.double()
    nodes, vectors = torch.linalg.eigh(tridiagonal)  # (start, node), (start, step, node)
    most = nodes.abs().max()
    curved, shares = nodes > FLAT * most, vectors[:, 0].square()
    share = ((shares * curved).sum(1) / shares.sum(1)).mean()  # 1 without rounding
    return Curving(float(share), float(most), float(max(odd) / most.clamp_min(1e-30)))


def _times_hessian(
    gradient: Gradient, weights: Weights, delta: float, v: Float[Tensor, "chain parameter"]
) -> Float[Tensor, "chain parameter"]:
    """H v at the weights of every chain, v of length 1."""
    sizes = [weight[0].numel() for weight in weights.values()]
    parts = dict(zip(weights, v.split(sizes, 1), strict=True))
    ahead, behind = (
        gradient({name: w + d * parts[name].reshape(w.shape).to(w) for name, w in weights.items()})
        for d in (delta, -delta)
    )
    found = [(ahead[name] - behind[name]).flatten(1) / (2 * delta) for name in weights]
    return torch.cat(found, 1).to(v)
