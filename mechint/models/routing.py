"""Route activations of a plain module through hook points, and refuse unfit ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mechint.errors import ParameterError


def logits_of(answer: Any) -> Tensor:
    """The logits in what a module returns: itself, its field or entry "logits", or the first entry
    of a tuple, as of (logits, loss).

    Raises:
        ParameterError: there are none.
    """
    found = getattr(answer, "logits", answer)
    if isinstance(found, Mapping):
        found = found.get("logits")
    if isinstance(found, tuple | list) and found:
        found = found[0]
    if not isinstance(found, Tensor):
        raise ParameterError(
            f"wrap: the module returns a {type(answer).__name__}; expected logits, a tuple that "
            "begins with them or a mapping that has them: pass call=function(module, tokens)"
        )
    return found


def register(
    submodule: nn.Module,
    takes_input: bool,
    name: str,
    point: nn.Module,
    tokens: Tensor,
) -> RemovableHandle:
    """A hook on `submodule` that passes its first output, or input, through `point`, once."""
    route = _once(name, partial(_through, point, name, tokens))
    if takes_input:
        return submodule.register_forward_pre_hook(
            partial(_route_input, name, route), with_kwargs=True
        )
    return submodule.register_forward_hook(lambda module, args, output: route(output))


def _once(name: str, route: Callable[[Any], Any]) -> Callable[[Any], Any]:
    calls: list[None] = []

    def routed(value: Any) -> Any:
        if calls:
            raise ParameterError(
                f"wrap: the submodule of hook {name} runs more than once in a forward, so that "
                "its activation is not one; hook submodules that run once"
            )
        calls.append(None)
        return route(value)

    return routed


def _route_input(
    name: str, route: Callable[[Any], Any], module: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The first argument through `route`, given by position or by keyword."""
    if args:
        return route(args), kwargs
    first = next(iter(inspect.signature(module.forward).parameters), "")
    if first not in kwargs:
        raise ParameterError(
            f"wrap: the module of hook {name} is called without its first argument {first}; hook "
            "the output of what makes its input"
        )
    return args, {**kwargs, first: route(kwargs[first])}


def _through(point: nn.Module, name: str, tokens: Tensor, value: Any) -> Any:
    """`value`, a tensor or a tuple or list that begins with one, with the tensor passed through
    `point`.
    """
    if isinstance(value, tuple | list) and value:
        rest = [_through(point, name, tokens, value[0]), *value[1:]]
        return getattr(value, "_make", type(value))(rest)
    if not isinstance(value, Tensor):
        raise ParameterError(
            f"wrap: the activation of hook {name} is a {type(value).__name__}; expected a tensor, "
            "or a tuple that begins with one: hook a submodule within that returns it"
        )
    check_batch(name, value, tokens)
    check_heads(name, value)
    # copies: what hooks keep is not what the module may write over, before or after
    if value.dim() != 2 or tokens.dim() != 2:
        return point(value.clone()).clone()
    # (batch, d) stands at the last position, zeros at the others
    return point(F.pad(value[:, None], (0, 0, tokens.shape[1] - 1, 0)))[:, -1].clone()


def check_batch(name: str, value: Shaped[Tensor, " ..."], tokens: Shaped[Tensor, " ..."]) -> None:
    """ParameterError where the first axis of `value` is not the batch."""
    if value.dim() == 0 or len(value) != len(tokens):
        raise ParameterError(
            f"wrap: {name} has shape {tuple(value.shape)} for tokens {tuple(tokens.shape)}; "
            "expected (batch, pos, …) or (batch, d): make its module with batch_first=True, or "
            "hook where the batch comes first"
        )


PATTERNS = ("hook_pattern", "hook_attn_scores")
PER_HEAD = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_result")


def check_heads(name: str, value: Shaped[Tensor, " ..."]) -> None:
    """ParameterError where the activation of an attention hook has no axis of heads."""
    if name.endswith(PATTERNS) and value.dim() != 4:
        raise ParameterError(
            f"wrap: hook {name} has shape {tuple(value.shape)}; expected (batch, head, query, "
            "key): nn.MultiheadAttention gives it when called with average_attn_weights=False"
        )
    if name.endswith(PER_HEAD) and value.dim() != 4:
        raise ParameterError(
            f"wrap: hook {name} has shape {tuple(value.shape)}; expected (batch, pos, head, "
            "d_head): hook a submodule that splits the heads"
        )


def sizes_of(activations: Mapping[str, Shaped[Tensor, " ..."]]) -> dict[str, tuple[str, int]]:
    """Field of a `ModelDescription` → the hook that shows it, and the size there."""
    found: dict[str, tuple[str, int]] = {}
    for name, value in activations.items():
        if name.endswith(("hook_embed", "_resid_pre", "_resid_mid", "_resid_post", "_out")):
            found.setdefault("d_model", (name, value.shape[-1]))
        elif name.endswith(PATTERNS):
            found.setdefault("n_heads", (name, value.shape[1]))
        elif name.endswith(PER_HEAD):
            found.setdefault("n_heads", (name, value.shape[2]))
        elif name.endswith("mlp.hook_post"):
            found.setdefault("d_mlp", (name, value.shape[-1]))
    return found
