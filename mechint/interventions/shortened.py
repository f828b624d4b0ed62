"""Forwards of a TransformerLens bridge that leave out what nobody asks for.

A bridge computes every block, since the library behind it runs from the tokens, and the logits of
every position. Under an intervention the blocks before it give what they gave without it, and
logits are read at the answers alone. `Shortened` gives the first block that can change what it was
given before, and unembeds only what is read. That this is the model's own forward is checked
against it, once for each block.
"""

# the modules of another library are untyped
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakMethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mechint.activations import select_positions
from mechint.interventions.sites import ResidSite
from mechint.models.bridge import two_tokens
from mechint.models.protocol import has_hooks_attached

_known: WeakKeyDictionary[Any, dict[int, bool]] = WeakKeyDictionary()
"""Bridge → block → whether a forward that begins there gives the logits of a whole one."""


class Shortened:
    """Forwards on copies of `tokens` (example, pos), read at `answer_positions` (example,).

    logits: (example, d_vocab_out) of a whole forward at the answers; residual: a method that
    gives the residual stream (example, pos, d_model) of that forward at a site.
    """

    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "example pos"],
        answer_positions: Int[Tensor, " example"],
        logits: Float[Tensor, "example d_vocab_out"],
        residual: Callable[[ResidSite], Tensor],
    ) -> None:
        self.model, self.tokens, self.answer_positions = model, tokens, answer_positions
        # weakly: whoever records has this beside it, and would be freed late as part of a circle
        self.base, self.residual = logits, WeakMethod(residual)
        is_bridge = hasattr(model, "original_model") and isinstance(
            getattr(model, "blocks", None), nn.ModuleList
        )
        self.possible = (  # hooks of the user see every block
            is_bridge and not has_hooks_attached(model) and self._begins_at(0)
        )
        """Whether the model gives the logits of a whole forward without those of the positions that
        nobody reads.
        """

    def logits(
        self, copies: int, hooks: Sequence[tuple[str, Any]], block: int
    ) -> Float[Tensor, "row d_vocab_out"]:
        """At the answers of so many copies of the tokens, one after the other, under `hooks`, all
        of them in blocks from `block` on.
        """
        return self._run(copies, hooks, block if block and self._begins_at(block) else 0)

    def _begins_at(self, block: int) -> bool:
        """Whether a forward from `block` on, which is given the stream recorded before it, gives
        the logits of the whole one.
        """
        known, logits = _known.setdefault(self.model, {}), self.base
        if block not in known:
            try:
                off = (self._run(1, [], block) - logits).abs().max()
            except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
                known[block] = False  # of another library, which asks for more than the stream
            else:
                close = 100 * torch.finfo(logits.dtype).eps * logits.abs().max()
                known[block] = bool(off <= close)
        return known[block]

    @cached_property
    def _forms(self) -> list[Callable[[Tensor], Any]]:
        """How each block gives back the stream: alone, or first of a tuple."""
        model, given = self.model, list[Any]()

        def keep(module: nn.Module, args: Any, output: Any) -> None:
            given.append(output)

        handles = [block.register_forward_hook(keep) for block in model.blocks]
        try:
            with torch.no_grad():
                model(two_tokens(model))
        finally:
            for handle in handles:
                handle.remove()
        return [_form(output) for output in given]

    def _run(self, copies: int, hooks: Sequence[tuple[str, Any]], block: int) -> Tensor:
        model, positions = self.model, self.answer_positions.repeat(copies)
        tokens = self.tokens.repeat(copies, 1)
        unembed = model.unembed.forward

        def answers_alone(hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
            return unembed(select_positions(hidden, positions)[:, None], *args, **kwargs)

        with contextlib.ExitStack() as swapped, torch.no_grad():
            if block:
                residual = self.residual()
                assert residual is not None
                stream = residual(ResidSite.pre(block)).repeat(copies, 1, 1)
                for one, form in zip(model.blocks[:block], self._forms[:block], strict=True):
                    swapped.enter_context(_replaced(one, _passing(form(stream))))
            swapped.enter_context(_replaced(model.unembed, answers_alone))
            return model.run_with_hooks(tokens, fwd_hooks=hooks)[:, 0]


@contextlib.contextmanager
def _replaced(module: nn.Module, forward: Callable[..., Any]) -> Generator[None]:
    """The forward of one module of the model replaced, and put back."""
    own = module.__dict__  # a bridge's module sets its attributes on the one that it stands for
    before = own.get("forward")
    own["forward"] = forward
    try:
        yield
    finally:
        del own["forward"]
        if before is not None:
            own["forward"] = before


def _passing(output: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: output


def _form(output: Any) -> Callable[[Tensor], Any]:
    if isinstance(output, Tensor):
        return lambda stream: stream
    first, *others = output
    if not isinstance(first, Tensor) or any(other is not None for other in others):
        raise TypeError("a block gives more than the residual stream")
    return lambda stream: (stream, *others)
