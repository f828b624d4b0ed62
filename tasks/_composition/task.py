"""k-fold composition with hidden permutations: pointer chasing whose hop length can double with
every layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import DataError
from mechint.task import (
    IGNORE,
    MAX_SEED,
    Batch,
    Chance,
    Control,
    GeneratedTask,
    Output,
    Program,
    Step,
    Vocabulary,
    rng,
)
from mechint.tasks.sequences import BUCKETS, draw_in, in_split, plain_class, random_class

TABULATED = 8
"""Up to so many points all permutations are listed (8! rows), and drawing one is a look-up."""

FEW = 1024
"""Up to so many inputs they are listed, for the split and the chance level."""


@dataclass(frozen=True)
class Composition(GeneratedTask):
    """r-hop queries (σᵢ₊ᵣ₋₁ ∘ πᵢ₊ᵣ₋₁ ∘ … ∘ σᵢ ∘ πᵢ)(j) at every position, π hidden and fixed, σ
    fresh in each example.

    Position ``i·n + j`` (i < k, j < n, from 0) holds token ``i·n + σᵢ(j)``. One output a hop
    length: its class at that position is the r-hop from (i, j), not read where i + r > k. The query
    form, (σₖ ∘ πₖ ∘ … ∘ σ₁ ∘ π₁)(x), is the k-hop at position x. Variables "r-hop of x" are the
    intermediate results on the way of x through the layers.

    >>> task = Composition(n=3, k=2, hops=(1, 2))
    >>> batch = task.sample(1, seed=0)
    >>> task.text(batch.tokens[0]), task.tables()["permutations"], batch.targets[0].tolist()
    ('2 1 0 | 0 1 2', [[0, 2, 1], [1, 2, 0]], [[2, 0], [0, 1], [1, 2], [1, -1], [2, -1], [0, -1]])
    """

    name: ClassVar[str] = "composition"
    topic: ClassVar[str] = "groups"
    source: ClassVar[str] = (
        "Learning Compositional Functions with Transformers (Emergence and scaling laws for "
        "SGD learning, Part II)"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 3,
        "d_model": 64,
        "n_heads": 4,
        "act_fn": "gelu",
        "normalization_type": "LN",
        "attention_dir": "bidirectional",
        "embed_std": 0.5,
    }
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 2000,
        "batch_size": 64,
        "lr": 1e-3,
        "betas": (0.9, 0.98),
        "weight_decay": 0.0,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.n": 3,
            "task.k": 2,
            "task.hops": (1, 2),
            "model.n_layers": 2,
            "model.d_model": 32,
            "train.steps": 600,
        },
        "paper": {"train.steps": 2000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 600, seed 0"
    }

    n: int = setting(6, "points that are permuted", low=2, high=64)
    k: int = setting(4, "permutations composed", low=1, high=32)
    hops: tuple[int, ...] = setting(
        (1, 2, 4), "hop lengths asked for, one output each", low=1, high=32
    )
    perm_seed: int = setting(0, "seed of the hidden permutations", low=0, high=MAX_SEED)
    weights: tuple[float, ...] | None = setting(
        None,
        (
            "probability with which a training example asks each hop; every hop of every example "
            "when none"
        ),
        low=0,
        high=1e6,
    )
    stages: tuple[int, ...] | None = setting(
        None,
        "first training batch of each hop; all from the start when none",
        low=0,
        high=1_000_000_000,
    )
    cumulative: bool = setting(True, "earlier hops stay in later stages")
    labels: str = setting(
        "true", "shuffled: every input has random answers of its own", choices=("true", "shuffled")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        distinct = self.hops and len(set(self.hops)) == len(self.hops)
        self.require(
            "hops",
            distinct and max(self.hops) <= self.k,
            f"different numbers from 1 to k={self.k}",
        )
        for name in ("weights", "stages"):
            given, count = getattr(self, name), len(self.hops)
            one_each = given is None or len(given) == count
            self.require(name, one_each, f"one number for each of the {count} hops")
        self.require(
            "weights" if self.stages is None else "stages",
            all(self._chances(step).any() for step in {0, *(self.stages or ())}),
            "some hop to train on at every step",
        )
        self.require(
            "k",
            math.factorial(self.n) ** self.k >= 2 * len(BUCKETS),
            f"more: n={self.n} and k={self.k} give too few inputs for a train, a validation and a "
            "test split",
        )

    # --- inputs -----------------------------------------------------------------------------------
    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(
            tuple(f"{layer}:{value}" for layer in range(self.k) for value in range(self.n))
        )

    @property
    def n_ctx(self) -> int:
        return self.k * self.n

    @cached_property
    def permutations(self) -> Int[Tensor, "k n"]:
        """(k, n) the hidden permutations πᵢ."""
        drawn = rng("hidden permutations", self.n, self.k, self.perm_seed).permuted(
            np.tile(np.arange(self.n), (self.k, 1)), axis=1
        )
        return torch.from_numpy(drawn)

    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        return self.batch_of(draw_in(split, n, 1.05, self._draw, self._hash, generator))

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        """As for every generated task; a training batch asks the hops of its stage, by their
        weights.
        """
        for step, batch in enumerate(super().stream(split, seed, batch_size, start), start):
            yield self._asked(batch, step, seed) if split == "train" else batch

    def _draw(self, n: int, generator: np.random.Generator) -> Tensor:
        """Tokens (n, k * n) of uniformly random permutations."""
        if self.n <= TABULATED:
            rows = torch.from_numpy(generator.integers(0, len(self._all_permutations), n * self.k))
            permutations = self._all_permutations.index_select(0, rows).view(n, self.k, self.n)
        else:
            permutations = torch.from_numpy(generator.random((n, self.k, self.n)).argsort(-1))
        return permutations.add_(self._offsets).flatten(1)

    @cached_property
    def _all_permutations(self) -> Tensor:
        return torch.tensor(list(itertools.permutations(range(self.n))))

    @cached_property
    def _offsets(self) -> Tensor:
        return torch.arange(0, self.n_ctx, self.n)[:, None]

    def _every_input(self) -> Tensor | None:
        """Tokens of all inputs where they are few, else None."""
        if math.factorial(self.n) ** self.k > FEW:
            return None
        values = torch.tensor(
            list(itertools.product(self._all_permutations.tolist(), repeat=self.k))
        )
        return (values + self._offsets).flatten(1)

    def _hash(self, tokens: Tensor) -> Tensor:
        """(batch,) a linear hash modulo 2⁶⁴, the same for all hidden permutations."""
        return tokens @ self._coefficients[:, 0].to(tokens.device)

    @cached_property
    def _coefficients(self) -> Tensor:
        """(pos, 1 + output) odd multipliers: of the hash, and of the shuffled labels; with few
        inputs, such that no split is empty.
        """
        keys = (rng("hash", self.n, self.k, attempt) for attempt in itertools.count())
        drawn = (
            torch.from_numpy(key.integers(0, 1 << 62, (self.n_ctx, 1 + len(self.hops)))) | 1
            for key in keys
        )
        inputs = self._every_input()
        if inputs is None:
            return next(drawn)
        return next(
            odd
            for odd in drawn
            if all(in_split(inputs @ odd[:, 0], split).any() for split in BUCKETS)
        )

    # --- which hops a training batch asks ---------------------------------------------------------
    def _chances(self, step: int) -> np.ndarray:
        """(output,) weight of each hop in training batch `step`; zero where it is not asked."""
        weights = np.ones(len(self.hops)) if self.weights is None else np.array(self.weights)
        if self.stages is None:
            return weights
        begun = np.array(self.stages) <= step
        latest = np.array(self.stages) == max(
            [stage for stage in self.stages if stage <= step], default=-1
        )
        return weights * (begun if self.cumulative else latest)

    def _asked(self, batch: Batch, step: int, seed: int) -> Batch:
        chances = self._chances(step)
        if self.weights is None:
            asked = torch.from_numpy(chances > 0)
        else:
            chosen = rng("hop", seed, step).choice(
                len(chances), len(batch), p=chances / chances.sum()
            )
            asked = torch.from_numpy(chosen[:, None, None] == np.arange(len(chances)))
        return batch if asked.all() else replaced(batch, targets=batch.targets.where(asked, IGNORE))

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(Output(f"{hop}-hop", self.n) for hop in self.hops)

    @property
    def chance(self) -> Mapping[str, Chance]:
        """Every answer is equally likely; with so few inputs that they can be listed, as counted
        over the test's.
        """
        inputs = self._every_input()
        if inputs is None:
            return {output.name: Chance(1 / self.n, math.log(self.n)) for output in self.outputs}
        targets = self.label_inputs(inputs[in_split(self._hash(inputs), "test")])
        read = {output.name: targets[..., index] for index, output in enumerate(self.outputs)}
        return {name: Chance.of(values[values != IGNORE]) for name, values in read.items()}

    # --- answers ----------------------------------------------------------------------------------
    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        return Batch(tokens, self.label_inputs(tokens))

    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        """Targets (batch, pos, output) of tokens (batch, pos)."""
        targets = tokens.new_full((*tokens.shape, len(self.hops)), IGNORE)
        results = self._results(tokens, self.hops) if self.labels == "true" else {}
        for index, hop in enumerate(self.hops):
            read = (self.k - hop + 1) * self.n
            if self.labels == "true":
                targets[:, :read, index] = results[hop].flatten(1)
            else:
                odd = self._coefficients[:read, index + 1].to(tokens.device)
                code = self._hash(tokens)[:, None]
                targets[:, :read, index] = random_class(code, odd, self.n)
        return targets

    def _results(self, tokens: Tensor, hops: Sequence[int]) -> dict[int, Tensor]:
        """Hop length r → (batch, k - r + 1, n) the r-hop from every (i, j), for the lengths
        `hops`.
        """
        first = (self.permutations + self._offsets).flatten().to(tokens.device)
        after_one = tokens.gather(1, first.expand_as(tokens)).unflatten(1, (self.k, self.n))
        results = {1: after_one.sub_(self._offsets.to(tokens.device))}

        def result(hop: int) -> Tensor:
            if hop not in results:
                half = 1 << ((hop - 1).bit_length() - 1)
                begun, rest = result(hop - half), result(half)
                results[hop] = rest[:, hop - half :].gather(2, begun[:, : self.k - hop + 1])
            return results[hop]

        return {hop: result(hop) for hop in hops}

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        n, k = self.n, self.k
        if self.labels == "shuffled":
            coefficients = self._coefficients.tolist()
            code = sum(int(token) * row[0] for token, row in zip(tokens, coefficients, strict=True))
            answers = [
                [plain_class(code, coefficient, n) for coefficient in row[1:]]
                for row in coefficients
            ]
            return [
                [
                    answer if p // n + hop <= k else IGNORE
                    for hop, answer in zip(self.hops, row, strict=True)
                ]
                for p, row in enumerate(answers)
            ]
        sigma = [[int(tokens[i * n + j]) - i * n for j in range(n)] for i in range(k)]
        hidden = self.permutations.tolist()

        def follow(i: int, j: int, hop: int) -> int:
            for layer in range(i, i + hop):
                j = sigma[layer][hidden[layer][j]]
            return j

        return [
            [follow(i, j, hop) if i + hop <= k else IGNORE for hop in self.hops]
            for i in range(k)
            for j in range(n)
        ]

    # --- the truth about the algorithm ------------------------------------------------------------
    @cached_property
    def programs(self) -> Mapping[str, Program]:  # type: ignore[override]
        """ "r-hop of x": where x is after r layers from the first, r up to the longest hop asked;
        none under shuffled labels.
        """
        if self.labels == "shuffled":
            return {}
        steps = [self._step(hop, x) for hop in range(1, max(self.hops) + 1) for x in range(self.n)]
        answers = tuple(tuple(f"{hop}-hop of {x}" for hop in self.hops) for x in range(self.n))
        return {"layers": Program("layers", tuple(steps), answers)}

    def _step(self, hop: int, x: int) -> Step:
        layer = hop - 1
        hidden = self.permutations[layer]

        def follow(tokens: Tensor, before: Tensor) -> Tensor:
            place = layer * self.n + hidden.to(tokens.device)[before]
            return tokens.gather(1, place[:, None])[:, 0] - layer * self.n

        def first(tokens: Tensor) -> Tensor:
            return follow(tokens, torch.full_like(tokens[:, 0], x))

        def change(tokens: Tensor, values: Tensor) -> Tensor:
            """Two images of the last layer on the way are swapped."""
            before, name = torch.full_like(values, x), f"{layer}-hop of {x}"
            if layer:
                before = self.programs["layers"].run(tokens, only=(name,))[name]
            here = hidden.to(tokens.device)[before]
            rows, part = torch.arange(len(tokens)), tokens[:, layer * self.n : hop * self.n]
            swapped = part.clone()
            there = (part == (layer * self.n + values)[:, None]).int().argmax(1)
            swapped[rows, here], swapped[rows, there] = part[rows, there], part[rows, here]
            result = tokens.clone()
            result[:, layer * self.n : hop * self.n] = swapped
            return result

        return Step(
            f"{hop}-hop of {x}",
            self.n,
            follow if layer else first,
            (f"{layer}-hop of {x}",) if layer else (),
            f"where {x} is after {hop} of the {self.k} layers",
            positions=() if layer else (int(hidden[x]),),
            change=change,
        )

    @property
    def n_answers(self) -> int:
        """One per position from which some hop is asked."""
        return (self.k - min(self.hops) + 1) * self.n

    @property
    def answer_names(self) -> tuple[str, ...]:
        """The start of each query: layer and point."""
        return tuple(f"from {p // self.n}:{p % self.n}" for p in range(self.n_answers))

    @property
    def controls(self) -> tuple[Control, ...]:
        alone = {"hops": (max(self.hops),), "weights": None, "stages": None}
        direct = Control(
            "direct", "the longest hop alone, without the shorter ones that lead to it", alone
        )
        return (
            *super().controls,
            Control("shuffled", "random answers to every input", {"labels": "shuffled"}),
            direct,
        )

    def tables(self) -> dict[str, Any]:
        multipliers = {"hash": self._coefficients.tolist()} if self.labels == "shuffled" else {}
        return {"permutations": self.permutations.tolist(), **multipliers}

    def text(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> str:
        """The permutations σ₁ … σₖ by their values: ``2 0 1 | 1 2 0``."""
        values = [int(token) % self.n for token in tokens]
        return " | ".join(
            " ".join(map(str, values[start : start + self.n]))
            for start in range(0, len(values), self.n)
        )

    def tokens_of(self, text: str) -> list[int]:
        layers = [layer.split() for layer in text.split("|")]
        if len(layers) != self.k or any(
            sorted(layer) != sorted(map(str, range(self.n))) for layer in layers
        ):
            raise DataError(
                f"text {text!r}: expected {self.k} permutations of 0 to {self.n - 1}, "
                "separated by |"
            )
        return [i * self.n + int(value) for i, layer in enumerate(layers) for value in layer]
