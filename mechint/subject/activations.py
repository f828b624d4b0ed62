"""Activations, recorded by the name asked for, in chunks of examples.

    recorder = Recorder(model, chunk=4096)
    recorder.record(tokens, ["blocks.0.mlp.hook_post"], -1)      # {name: (example, d_mlp)}
    for part, found in recorder.stream(tokens, ["logits"], budget=1 << 27): ...

All hooks of one request share one forward per chunk. An activation is kept under the name that was
asked for, whatever the hook point calls itself (the hook points of a TransformerLens bridge go by
other names). No hook is left behind. What is asked at one position of each example alone is
computed there alone, on models that can (`mechint.models.at_positions`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.models.at_positions import forward_at, forward_embedded, supports
from mechint.models.foreign.untouched import all_finite, evaluating, plain_arithmetic
from mechint.models.protocol import Hooks, guarded, run_hooked

LOGITS = "logits"
"""The name of the model's own output, which is recorded like an activation."""

Positions = int | Tensor | None
"""The place where an activation is taken: one position of all examples, (example,) one of each,
(example, answer) several of each, or everywhere (None).
"""

LEAST_WORKING_BYTES = 1 << 24
"""A chunk may always take so much, however little a caller allows."""


def select_positions(
    x: Shaped[Tensor, "example pos ..."], positions: int | Int[Tensor, "example ..."]
) -> Shaped[Tensor, "example ..."]:
    """x at one position of each example, (example, …), or at several, (example, answer, …); a view
    where all examples share one.

    >>> select_positions(torch.arange(6.0).view(2, 3), torch.tensor([0, 2])).tolist()
    [0.0, 5.0]
    """
    if isinstance(positions, int):
        return x[:, positions]
    examples = torch.arange(len(x), device=x.device)
    if positions.dim() == 2:
        return x[examples[:, None], positions]
    first = int(positions[0]) if len(positions) else 0
    if bool((positions == first).all()):  # a slice, whose gradient needs no scatter
        return x[:, first]
    return x[examples, positions]


def position_axis(name: str) -> int:
    """The axis along which `name` has positions: of attention patterns and scores the query's."""
    return 2 if name.endswith(("hook_pattern", "hook_attn_scores")) else 1


def select(
    name: str, activation: Shaped[Tensor, " ..."], positions: Positions
) -> Shaped[Tensor, " ..."]:
    """The activation of hook `name`, (example, pos, …), at `positions`; whole where None."""
    if positions is None:
        return activation
    by_position = activation.transpose(1, position_axis(name))
    check_positions(name, positions, by_position.shape[1])
    return select_positions(by_position, positions)


def check_positions(name: str, positions: int | Int[Tensor, " ..."], count: int) -> None:
    """ParameterError where one of `positions` is not among the `count` that `name` has."""
    if isinstance(positions, Tensor):
        positions = int(positions.max()) if positions.numel() else 0
    if not -count <= positions < count:
        raise ParameterError(
            f"{name}: position {positions} is asked for, it has {count}: 0 to {count - 1}"
        )


@dataclass(frozen=True)
class Recorder:
    """Reads activations of `model`, in evaluation mode and at most `chunk` examples per forward."""

    model: Any
    chunk: int = 4096

    def check(self, name: str) -> str:
        """`name` if the model has that hook, or for "logits"; UnknownNameError if not."""
        if name != LOGITS and name not in self.model.hook_dict:
            raise UnknownNameError.of("hook", name, self.model.hook_dict)
        return name

    def logits(
        self, tokens: Shaped[Tensor, "example ..."], hooks: Hooks = (), positions: Positions = None
    ) -> Float[Tensor, "example ..."]:
        """Logits (example, pos, d_vocab_out) under `hooks`, or (example, d_vocab_out) at
        `positions`.

        Raises:
            UnknownNameError: no such hook.
            ParameterError: a hook returns an edit of what the model can only show.
        """
        for name, _ in hooks:
            self.check(name)
        hooks = guarded(self.model, hooks) if hooks else ()
        with plain_arithmetic(tokens.device), torch.no_grad(), evaluating(self.model):
            return torch.cat(
                [
                    select(
                        LOGITS,
                        run_hooked(self.model, tokens[part], hooks),
                        _of(positions, part),
                    )
                    for part in slices(len(tokens), self.chunk)
                ]
            )

    def embedded(
        self,
        tokens: Int[Tensor, "example pos"],
        positions: Positions,
        tables: Float[Tensor, "table d_vocab d_model"],
    ) -> Float[Tensor, "table example d_vocab_out"] | None:
        """Logits at one position of each example with each of `tables` in place of the embedding;
        None for a model that is not computed there alone.
        """
        if positions is None or not supports(self.model):
            return None
        check_positions(LOGITS, positions, tokens.shape[1])
        parts = list[Tensor]()
        for part in slices(len(tokens), self.chunk):
            rows, at_once = tokens[part], max(1, self.chunk // max(1, len(tokens[part])))
            where = positions if isinstance(positions, int) else positions[part]
            logits = [
                forward_embedded(self.model, rows, where, tables[several])
                for several in slices(len(tables), at_once)
            ]
            parts.append(torch.cat(logits))
        return torch.cat(parts, 1)

    def record(
        self,
        tokens: Shaped[Tensor, "example ..."],
        names: Collection[str],
        positions: Positions = None,
        budget: int | None = None,
    ) -> dict[str, Shaped[Tensor, " ..."]]:
        """Activations by name, (example, pos, …), or (example, …) at positions; one forward per
        chunk serves all names.

        Args:
            names: hook names, or "logits".
            budget: bytes of activations that one chunk may make, where `chunk` examples would make
                more.

        Raises:
            UnknownNameError: no such hook.
            ParameterError: a hook that did not run.
            MechintError: an activation that is not finite.
        """
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for _, chunk in self.stream(tokens, names, positions, budget):
            for name, value in chunk.items():
                parts[name].append(value)
        with plain_arithmetic(tokens.device):
            return {name: torch.cat(values) for name, values in parts.items()}

    def stream(
        self,
        tokens: Shaped[Tensor, "example ..."],
        names: Collection[str],
        positions: Positions = None,
        budget: int | None = None,
    ) -> Iterator[tuple[slice, dict[str, Shaped[Tensor, " ..."]]]]:
        """Slices of examples with their activations; arguments and errors as of `record`.

        Memory: the activations of one chunk.
        """
        size = self.chunk
        if budget is not None and positions is None:  # one example tells the bytes of each
            example_bytes = sum(
                value.nbytes for value in self._forward(tokens[:1], names, None).values()
            )
            size = max(1, min(size, max(budget, LEAST_WORKING_BYTES) // max(example_bytes, 1)))
        for part in slices(len(tokens), size):
            yield part, self._forward(tokens[part], names, _of(positions, part))

    def _forward(
        self, tokens: Tensor, names: Collection[str], where: Positions
    ) -> dict[str, Tensor]:
        hooked = [name for name in names if name != LOGITS]
        several = where is None or (isinstance(where, Tensor) and where.dim() > 1)
        if where is not None and not several and supports(self.model, hooked):
            check_positions(", ".join(names), where, tokens.shape[1])
            wanted = LOGITS in names
            logits, activations = forward_at(self.model, tokens, where, hooked, logits=wanted)
            activations |= {} if logits is None else {LOGITS: logits}
        else:
            activations = self._hooked_forward(tokens, names, where)
        for name in names:
            if name not in activations:
                raise ParameterError(
                    f"hook {name}: it did not run; for attn.hook_result set model.use_attn_result"
                )
            masked = name.endswith("hook_attn_scores")  # -inf where a query may not look
            if name != LOGITS and not masked and not all_finite(activations[name]):
                raise MechintError(f"activation {name} is not finite")
        return {name: activations[name] for name in names}

    def _hooked_forward(
        self, tokens: Tensor, names: Collection[str], where: Positions
    ) -> dict[str, Tensor]:
        """Every position of every example, from which what is wanted is taken."""
        activations: dict[str, Tensor] = {}

        def keep(name: str, tensor: Tensor, hook: Any) -> None:
            # a later in-place edit must not reach it
            activations[name] = select(name, tensor.detach(), where).clone()

        hooks = [(self.check(name), partial(keep, name)) for name in names if name != LOGITS]
        with plain_arithmetic(tokens.device), torch.no_grad(), evaluating(self.model):
            logits = self.model.run_with_hooks(tokens, fwd_hooks=hooks)
            if LOGITS in names:
                activations[LOGITS] = select(LOGITS, logits, where)
        return activations


def slices(n: int, size: int) -> Iterator[slice]:
    """0 … n in pieces of `size`; one empty piece of nothing.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, max(n, 1), size):
        yield slice(start, min(start + size, n))


def _of(positions: Positions, part: slice) -> Positions:
    return positions[part] if isinstance(positions, Tensor) else positions


def residual_hooks(n_layers: int, known: Container[str]) -> dict[str, str]:
    """Name → hook of the residual stream from the embedding to the end, those that are `known`:
    "embedding", "L0 attention", "L0 MLP", …

    A block whose attention and MLP read the same residual stream is one step: "L0 block".
    """
    hooks = {"embedding": "blocks.0.hook_resid_pre"}
    for layer in range(n_layers):
        block = f"blocks.{layer}"
        last = f"{block}.hook_resid_post"
        attends = any(f"{block}.{one}" in known for one in ("hook_attn_out", "attn.hook_pattern"))
        if f"{block}.hook_resid_mid" in known:
            middle = "attention" if attends else "resid_mid"
            hooks[f"L{layer} {middle}"] = f"{block}.hook_resid_mid"
            hooks[f"L{layer} MLP"] = last
        else:
            alone = attends and f"{block}.hook_mlp_out" not in known
            hooks[f"L{layer} {'attention' if alone else 'block'}"] = last
    return {name: hook for name, hook in hooks.items() if hook in known}


# --- bounded memory -------------------------------------------------------------------------------
def model_version(model: Any) -> tuple[Any, ...]:
    """Version of `model`: another after torch saw an edit of a weight or buffer, and after forward
    hooks were added or removed. Cost: no value is read.

    >>> model = torch.nn.Linear(2, 2)
    >>> before = model_version(model)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> model_version(model) == before
    False
    """
    modules = list(model.modules())
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False)]
    hooks = [(*module._forward_pre_hooks, *module._forward_hooks) for module in modules]
    return (
        *(version(tensor) for tensor in (*model.parameters(), *buffers)),
        *(added for added in hooks if added),  # torch gives every hook a number of its own
    )


def version(tensor: Shaped[Tensor, " ..."]) -> tuple[Any, ...]:
    """Address of the values, and how often torch saw them edited; None where it does not count."""
    where = tensor.data_ptr() if tensor.layout is torch.strided else id(tensor)
    return where, None if tensor.is_inference() else tensor._version


class BoundedCache:
    """Tensors by key, at most `memory` bytes of them; the least recently used go first.

    >>> cache = BoundedCache(memory=8)
    >>> cache.get("a", lambda: torch.zeros(2)).nbytes, cache.get("b", lambda: torch.ones(1)).nbytes
    (8, 4)
    >>> list(cache.tensors)
    ['b']
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self.tensors: OrderedDict[Any, Tensor] = OrderedDict()
        self._versions: dict[Any, tuple[Any, ...]] = {}
        self._source: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that are kept."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def keep_for(self, source: Any) -> None:
        """Forget everything unless `source`, the version of what the tensors are computed from,
        equals that of the last call.
        """
        if source != self._source:
            self.tensors.clear()
            self._source = source

    def find(self, key: Any) -> Shaped[Tensor, " ..."] | None:
        """Return the tensor kept under `key`; None where there is none, or it was edited since."""
        value = self.tensors.get(key)
        if value is None or version(value) != self._versions[key]:
            return None
        self.tensors.move_to_end(key)
        return value

    def get(self, key: Any, compute: Callable[[], Tensor]) -> Shaped[Tensor, " ..."]:
        """Return the tensor kept under `key`, computed now where `find` gives nothing."""
        value = self.find(key)
        return self.put(key, compute()) if value is None else value

    def put(self, key: Any, value: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
        """Keep `value`, where it fits, and return it."""
        if value.nbytes <= self.memory:
            self.tensors[key], self._versions[key] = value, version(value)
            self.tensors.move_to_end(key)
            while self.nbytes > self.memory:
                self.tensors.popitem(last=False)
        return value
