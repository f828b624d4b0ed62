"""Measures of a run of the remainders study: accuracies and onsets of primes, and the structure of
embeddings, heads and neurons at its end and at an early checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from mechint.decide.null import p_values
from mechint.probe import run as run_probe
from mechint.subject import Subject
from mechint.training import Run

EASY = (2, 3, 5, 7)
"""The primes that the paper sees first, and that its masked control leaves out."""

GENERALIZED = 0.9
"""Held-out accuracy from which a prime counts as generalized at the end."""

HALFWAY = 0.5
"""Onset: the first step at which accuracy is so far from chance, 1/q, to 1. A bar on the accuracy
itself would come later for large q by arithmetic alone.
"""

EARLY = 2000
"""Structure is compared between arms at the last kept checkpoint up to this step."""

ONE_DIGIT = 0.8
"""Share of all its attention that a head which attends to one digit gives it."""

FEW = 3
"""Frequencies of a "very small set"."""

ORDERS = 999


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracies at the end, onsets, structure early and at the end, active frequencies over time,
    and, of a main run, when the gradients of the attention and of the MLP fell.
    """
    subject = run.subject()
    steps = sorted(subject.series)
    early = max((step for step in steps if step <= EARLY), default=run.step)
    row: dict[str, Any] = {
        **accuracies(run),
        "early_step": early,
        "early": structure(subject.at_step(early)),
        "end": structure(subject),
    }
    powers = [power(neurons(subject.at_step(step))).sum(-1) for step in steps]
    row["active"] = [steps, active_over_time(np.stack(powers, axis=1))]
    if labels["arm"] in ("main", "long"):
        row["settled"] = settled(subject, steps)
    return row


def accuracies(run: Run) -> dict[str, Any]:
    """Of every output (prime → value; "answer" where there is one): accuracy at the last step, held
    out and in training, and the onset; infinite where it never comes.
    """
    outputs: Any = run.spec.task.outputs
    single = len(outputs) == 1
    found: dict[str, Any] = {"final": {}, "train": {}, "onset": {}}
    for output in outputs:
        name = "answer" if single else str(output.n_classes)
        column = "accuracy" if single else f"accuracy.{output.name}"
        held = [(row["step"], row[f"test.{column}"]) for row in run.metrics]
        found["final"][name] = float(held[-1][1])
        found["train"][name] = float(run.final[f"train.{column}"])
        chance = 1 / output.n_classes
        half = (step for step, at in held if (at - chance) / (1 - chance) >= HALFWAY)
        found["onset"][name] = float(next(half, math.inf))
    return found


def structure(subject: Subject) -> dict[str, Any]:
    """Correlation of the digits' position embeddings; singular values of the centered token
    embedding for 50% and 90% of the variance; attention from the answer to either digit, head by
    head; p-values of periodicity; effective frequencies of embedding and neurons; the median
    neuron's share in one frequency and in FEW.
    """
    p: int = subject.task.to_dict()["p"]  # type: ignore[union-attr]
    state = {
        name: value.detach().double().cpu().numpy()
        for name, value in subject.model.named_parameters()
    }
    tokens, positions = state["embed.W_E"][:p], state["pos_embed.W_pos"]
    activations = neurons(subject)
    pattern = subject.activation("blocks.0.attn.hook_pattern", at="answer")  # (example, head, pos)
    singular = np.linalg.svd(tokens - tokens.mean(0), compute_uv=False)
    held = np.cumsum(singular**2) / (singular**2).sum()
    rows, columns = activations.reshape(p, -1), activations.transpose(1, 0, 2).reshape(p, -1)
    per_neuron = power(activations)
    leading = np.sort(per_neuron / per_neuron.sum(0).clip(1e-24), axis=0)[::-1]
    return {
        "position_correlation": float(np.corrcoef(positions[0], positions[1])[0, 1]),
        "rank_50": int(np.searchsorted(held, 0.5) + 1),
        "rank_90": int(np.searchsorted(held, 0.9) + 1),
        "heads": pattern[..., :2].double().mean(0).cpu().numpy().tolist(),
        "p_embedding": periodicity(gram(tokens)),
        "p_neurons": periodicity(gram(rows) + gram(columns)),
        "frequencies_embedding": effective(energies(gram(tokens))),
        "frequencies_neurons": effective(per_neuron.sum(-1)),
        "neuron_share": float(np.median(leading[0])),
        "neuron_few": float(np.median(leading[:FEW].sum(0))),
    }


def neurons(subject: Subject) -> Float[np.ndarray, "x0 x1 neuron"]:
    """Neurons after the ReLU at the answer, over all p² inputs."""
    values = subject.activation("blocks.0.mlp.hook_post", at="answer")  # (example, d_mlp)
    p = math.isqrt(len(values))
    return values.double().cpu().numpy().reshape(p, p, -1)


def power(images: Float[np.ndarray, "x0 x1 neuron"]) -> Float[np.ndarray, "frequency neuron"]:
    """Power of every frequency 1 … (p - 1)/2 of either digit: that of all 2-D Fourier coefficients
    (k, j) and (j, k).
    """
    p = len(images)
    spectrum = np.abs(np.fft.fft2(images, axes=(0, 1))) ** 2  # (k, j, neuron)
    half = np.arange(1, (p - 1) // 2 + 1)
    return np.sum([spectrum[k].sum(1) + spectrum[:, k].sum(0) for k in (half, p - half)], axis=0)


def gram(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """Products of the centered rows."""
    x = x - x.mean(0)
    return x @ x.T


def energies(products: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " frequency"]:
    """Energy of rows at every frequency 1 … (n - 1)/2, from their products.

    >>> wave = np.cos(2 * np.pi * 2 * np.arange(7) / 7)[:, None]
    >>> (energies(gram(wave)).round(6) + 0.0).tolist()
    [0.0, 3.5, 0.0]
    """
    n = len(products)
    return (
        2
        * np.real(np.fft.fft(np.fft.ifft(products, axis=0), axis=1).diagonal())[
            1 : (n - 1) // 2 + 1
        ]
    )


def periodicity(products: Float[np.ndarray, "n n"], orders: int = ORDERS) -> float:
    """p-value of the largest frequency's energy against rows in random order."""
    generator, n = np.random.default_rng(0), len(products)
    drawn = (generator.permutation(n) for _ in range(orders))
    samples = np.array([energies(products[np.ix_(o, o)]).max() for o in drawn])
    return float(p_values(samples, float(energies(products).max())))


def effective(shares: Float[np.ndarray, " frequency"]) -> float:
    """Effective number of frequencies: exp of the entropy of their shares.

    >>> effective(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    shares = shares[shares > 0] / shares.sum()
    return float(round(math.exp(-(shares * np.log(shares)).sum()), 6))


def active_over_time(powers: Float[np.ndarray, "frequency checkpoint"]) -> list[int]:
    """Active frequencies at every checkpoint by the authors' rule: each is divided by its sum over
    time, and counts where it is above μ + 2σ of all frequencies and times.

    >>> active_over_time(np.array([[0.0, 9.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]))
    [0, 1, 0, 0]
    """
    share = powers / powers.sum(1, keepdims=True)
    return (share > share.mean() + 2 * share.std()).sum(0).tolist()


def settled(subject: Subject, steps: list[int]) -> dict[str, float]:
    """For the weights of the attention and of the MLP: the step at which the norm of the loss's
    gradient has made half of its fall, in logarithms, from its largest value to its last one; and
    that fall, as a factor.
    """
    found: dict[str, list[float]] = {"attention": [], "MLP": []}
    for step in steps:
        result = run_probe("gradients", subject.at_step(step), weights="log", permutations=1)
        norms: Mapping[str, float] = result.metrics["gradients.norms"]
        for part, mark in (("attention", ".attn."), ("MLP", ".mlp.")):
            found[part].append(math.hypot(*(v for name, v in norms.items() if mark in name)))
    row = {}
    for part, values in found.items():
        logs = np.log(values)
        top = int(logs.argmax())
        middle = (logs[top] + logs[-1]) / 2
        row[part] = float(next(steps[i] for i in range(top, len(logs)) if logs[i] <= middle))
        row[f"{part}_fall"] = float(np.exp(logs[top] - logs[-1]))
    return row
