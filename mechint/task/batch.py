"""Examples as tensors: tokens, targets, and which of the targets are the answers."""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from mechint.errors import DataError, ParameterError
from mechint.groups.finite import FiniteGroup

SPLITS = ("train", "validation", "test")

MAX_SEED = 2**63 - 1
"""Largest seed that a parameter takes."""

IGNORE, ANY = -1, -2
"""The target where no answer is read, and where any class would be right."""


class TargetKind(IntEnum):
    """The role of the target at a position.

    ANSWER: what the task asks for. STEP: an intermediate result, a chain of thought, or a later
    character of an answer. FORM: punctuation, the prompt itself, or the end of the text.
    """

    NONE = 0
    ANSWER = 1
    STEP = 2
    FORM = 3


def own_positions(
    lengths: Int[Tensor, " example"] | None, n_ctx: int
) -> Bool[Tensor, "example pos"] | None:
    """True at the positions that each example has, False where it is padded on the right; None
    where no example is padded, or `lengths` are None.

    >>> own_positions(torch.tensor([3, 1]), 3).tolist()
    [[True, True, True], [True, False, False]]
    """
    if lengths is None or bool((lengths >= n_ctx).all()):
        return None
    return torch.arange(n_ctx, device=lengths.device) < lengths[:, None]


def first_of_each(rows: Shaped[Tensor, "row n"]) -> Int[Tensor, " different"]:
    """The place at which each different row stands first, ascending.

    >>> first_of_each(torch.tensor([[1, 2], [3, 4], [1, 2]])).tolist()
    [0, 1]
    """
    first: Any = np.unique(rows.cpu().numpy(), axis=0, return_index=True)[1]
    return torch.as_tensor(np.sort(first), device=rows.device)


@dataclass(frozen=True)
class Vocabulary:
    """Tokens ↔ text: token i is ``tokens[i]``; `separator` stands between tokens."""

    tokens: tuple[str, ...]
    separator: str = " "

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token → its number."""
        return {token: index for index, token in enumerate(self.tokens)}

    def decode(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> str:
        """The text of `tokens`."""
        return self.separator.join(self.tokens[int(token)] for token in tokens)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; DataError names the first token that the vocabulary lacks."""
        words = text.split(self.separator) if self.separator else list(text)
        for word in words:
            if word not in self.ids:
                raise DataError(f"text {text!r}: {word!r} is not in the vocabulary")
        return [self.ids[word] for word in words]


@dataclass(frozen=True)
class Output:
    """One group of classes that a model answers with.

    `group` acts on the classes where they form one (class i = element i). `names` are the classes
    as a reader knows them, one each, and behind them those of `Task.alternatives`; their numbers
    where none are given.
    """

    name: str
    n_classes: int
    group: FiniteGroup | None = None
    names: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """(n_classes,) the name of every class.

        >>> Output("a < b", 2, names=("no", "yes")).class_names, Output("sum", 3).class_names
        (('no', 'yes'), ('0', '1', '2'))
        """
        return self.names or tuple(map(str, range(self.n_classes)))


@dataclass(frozen=True)
class Answers:
    """The positions at which each example is asked, and the right answers.

    positions (example, answer) int64, ascending; targets (example, answer, output) int64. Both are
    IGNORE where an example has fewer answers than another.
    """

    positions: Int[Tensor, "example answer"]
    targets: Int[Tensor, "example answer output"]

    def __len__(self) -> int:
        """Most answers that an example has."""
        return self.positions.shape[1]

    def at(self, answer: int) -> tuple[Int[Tensor, " example"], Int[Tensor, "example output"]]:
        """Position and targets of one answer per example; a negative number counts from the
        example's last.

        Examples without that answer have IGNORE for both.

        Raises:
            ParameterError: no example has the answer.
        """
        width = len(self)
        if not -width <= answer < width:
            has = f"0 to {width - 1}" if width else "none: these examples have no answers"
            raise ParameterError(f"answer={answer}: expected {has}")
        counts = (self.positions != IGNORE).sum(1)
        index = counts + answer if answer < 0 else torch.full_like(counts, answer)
        there = (index >= 0) & (index < counts)
        rows, index = torch.arange(len(index), device=index.device), index.clamp(0, width - 1)
        positions = self.positions[rows, index].where(there, IGNORE)
        return positions, self.targets[rows, index].where(there[:, None], IGNORE)


@dataclass(frozen=True)
class Batch:
    """Examples on one device.

    tokens (batch, pos) int64; targets (batch, pos, output) int64, IGNORE where nothing is read;
    weights like targets, float32, or None for ones; lengths (batch,) int64 where examples are
    padded on the right, else None; kinds (batch, pos) int8, the `TargetKind` of every position, or
    None where every target is an answer; masks: name → (batch, pos) bool, e.g. "task" for the
    tokens of an injected task.

    Tasks over real vectors have tokens (batch, n) float32, the inputs, and targets (batch, n_out)
    float32; the number of the task that each input belongs to, where there are several, is
    ``masks["task"]`` (batch,) int64.
    """

    tokens: Tensor
    targets: Tensor
    weights: Tensor | None = None
    lengths: Tensor | None = None
    masks: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    kinds: Tensor | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        parts = {
            field.name: function(value)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        masks = {name: function(mask) for name, mask in self.masks.items()}
        return Batch(**parts, masks=masks)

    def __getitem__(self, index: Any) -> Batch:
        return self._map(lambda tensor: tensor[index])

    def to(self, device: torch.device | str) -> Batch:
        """The batch on another device."""
        return self._map(lambda tensor: tensor.to(device))

    @classmethod
    def cat(cls, parts: Sequence[Batch]) -> Batch:
        """The examples of all `parts`, one after another; each has the same optional members."""
        joined = {
            field.name: torch.cat([getattr(part, field.name) for part in parts])
            for field in fields(cls)
            if isinstance(getattr(parts[0], field.name), Tensor)
        }
        masks = {name: torch.cat([part.masks[name] for part in parts]) for name in parts[0].masks}
        return cls(**joined, masks=masks)

    def own_positions(
        self, at: int | Literal["answer"] | None = None
    ) -> Bool[Tensor, "batch ..."] | None:
        """The part of an activation that is data, not padding: (batch, pos) True at the positions
        that each example has, or (batch,) whether it has the one position `at`; None where all of
        it is data, as at the answers.

        >>> tokens = torch.tensor([[4, 2, 0], [7, 7, 7]])
        >>> batch = Batch(tokens, tokens.unsqueeze(-1), lengths=torch.tensor([2, 3]))
        >>> batch.own_positions(at=-1).tolist()
        [False, True]
        """
        own = own_positions(self.lengths, self.tokens.shape[1])
        if own is None or at == "answer":
            return None
        return own if at is None else own[:, at]

    def check_position(self, name: str, at: int | Literal["answer"] | None) -> None:
        """Refuse the one position `at` of activation `name` where examples end before it.

        Raises:
            ParameterError: some examples are padding there.
        """
        n = self.tokens.shape[1]
        own = self.own_positions(at) if isinstance(at, int) and -n <= at < n else None
        if own is None or bool(own.all()):
            return
        assert self.lengths is not None
        raise ParameterError(
            f"{name}: position {at} is behind the end of {int((~own).sum())} of {len(self)} "
            f'examples; expected "answer", or 0 to {int(self.lengths.min()) - 1}, which all have'
        )

    @property
    def reads(self) -> list[int]:
        """Positions at which any example has a target, ascending."""
        asked = (self.targets != IGNORE).any(-1).any(0)
        return [int(position) for position in asked.nonzero().flatten()]

    @property
    def answers(self) -> Answers:
        """Positions and targets of the answers alone, example by example.

        >>> tokens = torch.tensor([[4, 2, 0], [7, 7, 0]])
        >>> targets = torch.tensor([[-1, 3, 9], [5, 9, -1]]).unsqueeze(-1)
        >>> kinds = torch.tensor([[0, 1, 3], [1, 3, 0]], dtype=torch.int8)
        >>> Batch(tokens, targets, kinds=kinds).answers.positions.tolist()
        [[1], [0]]
        """
        if self.targets.dim() < 3:  # real targets stand at no position
            none = self.targets.new_zeros(len(self), 0, dtype=torch.int64)
            return Answers(none, none.unsqueeze(-1))
        asked = (self.targets != IGNORE).any(-1)  # (batch, pos)
        if self.kinds is not None:
            asked &= self.kinds == TargetKind.ANSWER
        counts = asked.sum(1)
        width = int(counts.max()) if len(counts) else 0
        order = asked.int().argsort(dim=1, descending=True, stable=True)[:, :width]
        there = torch.arange(width, device=counts.device) < counts[:, None]
        rows = torch.arange(len(self), device=counts.device)[:, None]
        targets = self.targets[rows, order].where(there[..., None], IGNORE)
        return Answers(order.where(there, IGNORE), targets)


def rng(*key: int | str) -> np.random.Generator:
    """A generator that depends on `key` alone, on every machine (PCG64 over its SHA-256)."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Generator(np.random.PCG64(np.frombuffer(digest, np.uint32).tolist()))


def epochs(data: Batch, seed: int, batch_size: int | None, start: int = 0) -> Iterator[Batch]:
    """Batches of a fixed set for ever, in a new order every epoch (what does not fill a batch is
    left out); all of it when none or too few.
    """
    n = len(data)
    if batch_size is None or batch_size >= n:
        while True:
            yield data
    per_epoch = n // batch_size
    step, epoch, order = start, -1, torch.arange(n)
    while True:
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            order = torch.as_tensor(rng("order", seed, epoch).permutation(n))
        first = step % per_epoch * batch_size
        yield data[order[first : first + batch_size]]
        step += 1


# --- the memory that examples take ----------------------------------------------------------------
PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
BYTES = 8
"""Of a token, and of a target."""

COPIES = 4
"""Copies of the examples in memory while they are made: drawn, joined, labeled, returned."""


def free_memory() -> int:
    """Bytes of memory that this machine could give now, and the limits of this process allow."""
    return max(0, min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_left()]))


def _left() -> Iterator[int]:
    """Bytes that the machine, the limit on addresses, and each control group (of version 1 and 2)
    leave this process; nothing where the system does not say.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        yield 1024 * _numbers(PROC / "meminfo")["MemAvailable"]
    with contextlib.suppress(OSError, ValueError, IndexError):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int((PROC / "self/statm").read_text(encoding="ascii").split()[0])
        if limit != resource.RLIM_INFINITY:
            yield limit - pages * resource.getpagesize()
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top = GROUPS / "memory" if kinds else GROUPS
            limit, used = ("memory.limit_in_bytes", "rss") if kinds else ("memory.max", "anon")
            for place in (top / path.strip("/"), *(top / path.strip("/")).parents):
                with contextlib.suppress(OSError, ValueError, KeyError):
                    allowed = int((place / limit).read_text(encoding="ascii"))
                    yield allowed - _numbers(place / "memory.stat")[used]


def _numbers(file: Path) -> dict[str, int]:
    """Name → number of a file with one of each in a line."""
    words = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {name.rstrip(":"): int(number) for name, number, *_ in words}


def example_bytes(n: int, n_ctx: int, n_outputs: int) -> int:
    """About how many bytes `n` examples of `n_ctx` tokens take at most while they are made.

    >>> example_bytes(100, 3, 1) == 100 * 3 * 2 * 8 * 4
    True
    """
    return n * n_ctx * (1 + n_outputs) * BYTES * COPIES


def check_fits(name: str, n: int, n_ctx: int, n_outputs: int) -> None:
    """ParameterError where `n` examples do not fit in what is free."""
    needed, free = example_bytes(n, n_ctx, n_outputs), free_memory()
    if needed > free:
        raise ParameterError(
            f"{name}: {n} examples of {n_ctx} tokens and {n_outputs} outputs need about "
            f"{needed / 2**30:.3g} GiB; {free / 2**30:.3g} GiB are free; ask for fewer, or make "
            "the task smaller"
        )
