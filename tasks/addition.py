"""Rival algorithms for addition modulo n: clock, pizza and a table of pairs.

Nanda et al. 2023, Progress measures for grokking; Zhong et al. 2023, The Clock and the Pizza.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.task import Program, Step

N_FREQUENCIES = 5


def addition_programs(table: Program, n: int) -> list[Program]:
    """Clock, pizza (of an odd modulus) and lookup for the task of `table`, whose first two steps
    are the operands and whose last is their sum modulo n.

    clock: "angle_k" is k(x + y) mod n, and the answer the class c with the largest
    Σ_k cos(2π(kc - angle_k)/n). pizza: each term is weighted by |cos(π difference_k/n)|, with
    "difference_k" = k(x - y) mod n; of an even modulus the weight can be zero and the answer
    ambiguous. lookup: "pair" is xn + y.
    """
    *operands, answer = table.steps
    names = tuple(step.name for step in operands)
    frequencies = range(1, min(N_FREQUENCIES, n // 2) + 1)

    def step(name: str, size: int, compute: object, description: str) -> Step:
        return Step(name, size, compute, names, description)  # type: ignore[arg-type]

    angles = [
        step(f"angle_{k}", n, partial(_combined, n, k, 1), f"{k} times the sum, mod {n}")
        for k in frequencies
    ]
    differences = [
        step(f"difference_{k}", n, partial(_combined, n, k, -1), f"{k} times x - y, mod {n}")
        for k in frequencies
    ]
    pair = step("pair", n * n, lambda tokens, x, y: x * n + y, "which pair of operands")

    def program(name: str, between: Sequence[Step], compute: object, description: str) -> Program:
        parents = tuple(one.name for one in between)
        last = Step(answer.name, n, compute, parents, answer.description)  # type: ignore[arg-type]
        return Program(name, (*operands, *between, last), table.answers, description)

    clock = program("clock", angles, partial(_loudest, n, frequencies), "by angles of the sum")
    pizza = program(
        "pizza",
        [*angles, *differences],
        partial(_loudest, n, frequencies),
        "by angles of the mean, weighted by the distance of the operands",
    )
    lookup = program("lookup", [pair], lambda tokens, pair: (pair // n + pair % n) % n, "by pairs")
    return [clock, pizza, lookup] if n % 2 else [clock, lookup]


def _combined(n: int, k: int, sign: int, tokens: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return k * (x + sign * y) % n


def _loudest(
    n: int, frequencies: Sequence[int], tokens: Tensor, *angles: Tensor
) -> Int[Tensor, " batch"]:
    """The class with the largest sum of cosines; weighted where angles of differences follow."""
    classes = torch.arange(n, device=tokens.device)
    logits: Float[Tensor, "batch n"] = torch.zeros(len(tokens), n, device=tokens.device)
    for index, k in enumerate(frequencies):
        waves = torch.cos(2 * torch.pi / n * (k * classes - angles[index][:, None]))
        if len(angles) > len(frequencies):
            difference = angles[len(frequencies) + index]
            waves = waves * torch.cos(torch.pi / n * difference).abs()[:, None]
        logits = logits + waves
    return logits.argmax(1)
