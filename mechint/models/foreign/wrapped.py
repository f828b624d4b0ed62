"""A plain ``nn.Module`` under the field's hook names.

    model = mechint.wrap(
        module,
        hooks={"hook_embed": "embedding", "blocks.0.mlp.hook_post": "layers.0.act"},
        weights={"W_E": "embedding.weight"},
    )
    subject = mechint.Subject(model, task)

Every probe then works on it that needs no more than these hooks and weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mechint.errors import DataError, ParameterError, UnknownNameError
from mechint.models.foreign.untouched import evaluating
from mechint.models.hook_points import HookedRootModule, HookPoint
from mechint.models.parameters import HEAD_WEIGHTS
from mechint.models.protocol import Capability, ModelDescription, n_blocks, size_of

Place = str | Callable[[nn.Module], nn.Module]
"""A submodule: its dotted path, or a function that finds it; "path:input" is what it is given."""

Weight = str | Callable[[nn.Module], Tensor]
"""A weight: its dotted path, or a function that makes it of the module, e.g. a transpose."""

MISSING = {
    "embedding": 'weights={"W_E": "…"}',
    "residual": "hooks at blocks.0.hook_resid_pre and blocks.0.hook_resid_post",
    "attention": "a hook at blocks.0.attn.hook_pattern",
    "mlp": "a hook at blocks.0.mlp.hook_post",
    "reinitialize": "make=",
    "head_weights": "weights of W_Q, W_K, W_V and W_O",
}
"""A need of a probe → the argument of `wrap` that gives it."""

SHORT = 64
"""Up to so many positions a module is checked at its full length."""

WEIGHTS = ("W_E", "W_pos", "W_U", "b_U", *HEAD_WEIGHTS)


def wrap(
    module: nn.Module,
    hooks: Mapping[str, Place],
    *,
    weights: Mapping[str, Weight] | None = None,
    call: Callable[[nn.Module, Tensor], Any] | None = None,
    make: Callable[[], nn.Module] | None = None,
    **sizes: Any,
) -> WrappedModule:
    """`module` as a model that probes can be pointed at.

    An activation (batch, pos, …) stands under its hook as it is; one of two axes, (batch, d), is
    put at the last position. Of a submodule that returns a tuple or a list the first entry is
    meant, and so of a module that returns (logits, loss). Logits (batch, class) of a module that
    answers once per example are its answer at every position.

    Args:
        hooks: mechint's (TransformerLens's) hook name → the submodule whose output the activation
            is; "path:input" for its first argument. It runs once in a forward.
        weights: any of W_E (d_vocab, d_model), W_pos (n_ctx, d_model), W_U (d_model, d_vocab_out),
            b_U (d_vocab_out) → where it is; all of W_Q, W_K, W_V (layer, head, d_model, d_head)
            and W_O (layer, head, d_head, d_model) give it the capability HEAD_WEIGHTS.
        call: function(module, tokens) -> logits, where ``module(tokens)`` is not enough.
        make: makes the module anew with initial weights; without it the model lacks the capability
            REINITIALIZE.
        sizes: fields of `ModelDescription` that neither hooks nor weights nor a forward of a few
            tokens tell: n_ctx, attention_dir, ….

    Raises:
        ParameterError: not a module, a path without a submodule or weight, an unknown size or one
            that a forward contradicts; an activation or logits that are no tensor, whose first axis
            is not the batch, or without an axis of heads; a submodule that runs twice; a module
            that stays random in evaluation mode. Those of a forward are found here, where the
            module takes a few tokens 0, or in the first forward.

    Example:
        >>> import torch
        >>> module = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 3))
        >>> model = wrap(module, {"hook_embed": "0"}, weights={"W_E": "0.weight"}, d_vocab_out=3)
        >>> logits, cache = model.run_with_cache(torch.tensor([[1, 2], [0, 4]]))
        >>> tuple(logits.shape), tuple(cache["hook_embed"].shape), model.description.d_vocab
        ((2, 2, 3), (2, 2, 4), 5)
    """
    return WrappedModule(module, hooks, dict(weights or {}), call, make, sizes)


class WrappedModule(HookedRootModule):
    """A module whose named submodules pass their activations through hook points; see `wrap`."""

    missing = MISSING

    def __init__(
        self,
        module: nn.Module,
        hooks: Mapping[str, Place],
        weights: Mapping[str, Weight],
        call: Callable[[nn.Module, Tensor], Any] | None,
        make: Callable[[], nn.Module] | None,
        sizes: Mapping[str, Any],
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Module) or not isinstance(hooks, Mapping):
            raise ParameterError(
                f"wrap: got a {type(module).__name__} and hooks as a {type(hooks).__name__}; "
                "expected an nn.Module and {hook name: submodule path}"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise ParameterError(
                "wrap: got a module of TorchScript, which takes no hooks; expected the nn.Module "
                "that it was made of"
            )
        self.module = getattr(module, "_orig_mod", module)  # of torch.compile
        self.places, self.sources, self.call, self.make = dict(hooks), dict(weights), call, make
        for name in self.sources:
            if name not in WEIGHTS:
                raise UnknownNameError.of("weight", name, WEIGHTS)
            self._weight(name)
        for name in self.places:
            self._find(name)
            _add_point(self, name)
        self.setup()
        self.sizes = dict(sizes)
        known = [field.name for field in dataclasses.fields(ModelDescription)]
        for name in self.sizes:
            if name not in known:
                raise UnknownNameError.of("size", name, known)
        self._learned: dict[str, Any] = {}
        self.checked = False
        self._check_on_zeros()

    def _check_on_zeros(self) -> None:
        """`check_forward` on a few tokens 0, where the module takes them."""
        n_ctx = self.sizes.get("n_ctx") or size_of(self.W_pos, 0) or 3
        n = n_ctx if n_ctx <= SHORT else 3
        device = next((weight.device for weight in self.module.parameters()), None)
        tokens = torch.zeros(3 if n == 2 else 2, n, dtype=torch.int64, device=device)
        try:
            self.check_forward(tokens)
        except ParameterError:
            raise
        except Exception:  # another length, or vectors: the first examples tell
            return

    def check_forward(self, tokens: Shaped[Tensor, "batch ..."]) -> None:
        """Learn sizes from two forwards in evaluation mode, which have to be equal; of one example
        less, where that tells axes apart that are as long as each other.

        Raises:
            ParameterError: as of `wrap`, of a forward.
        """
        if len(tokens) == tokens.shape[-1]:
            tokens = tokens[1:] if len(tokens) > 1 else tokens.expand(2, *tokens.shape[1:])
        with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluating(self):
            logits, kept = self.run_with_cache(tokens)
            again = self(tokens)
        off = float((logits - again).abs().nan_to_num().max()) if logits.numel() else 0.0
        if off > 1e-4 * max(1.0, float(logits.abs().nan_to_num().max())):
            raise ParameterError(
                f"wrap: two forwards of the same tokens in evaluation mode differ by {off:.3g}, so "
                "that the module is no function of its input; where it is F.dropout(x, p), write "
                "F.dropout(x, p, self.training)"
            )
        sizes = sizes_of(kept) | {"d_vocab_out": ("logits", logits.shape[-1])}
        for size, (name, here) in sizes.items():
            if self.sizes.get(size, here) != here:
                raise ParameterError(
                    f"wrap: {name} shows {size}={here}, and wrap was given "
                    f"{size}={self.sizes[size]}; give {size}={here}, or hook another submodule"
                )
        self._learned, self.checked = {size: here for size, (_, here) in sizes.items()}, True

    @property
    def capabilities(self) -> frozenset[Capability]:
        """EDIT_WEIGHTS; REINITIALIZE with `make`; HEAD_WEIGHTS with all four weights."""
        drawn = {Capability.REINITIALIZE} if self.make is not None else set()
        heads = {Capability.HEAD_WEIGHTS} if set(HEAD_WEIGHTS) <= set(self.sources) else set()
        return frozenset({Capability.EDIT_WEIGHTS} | drawn | heads)

    @property
    def description(self) -> ModelDescription:
        """The shape, from hooks, weights, a forward and the given sizes."""
        embedding, unembedding = self.W_E, self.W_U
        attends = any(name.endswith("attn.hook_pattern") for name in self.places)
        learned = {"attention_dir": "causal" if attends else None, **self._learned}
        if not attends:
            learned.pop("n_heads", None)
        known: dict[str, Any] = {
            "n_layers": n_blocks(self.places),
            "d_model": size_of(embedding, -1),
            "d_vocab": size_of(embedding, 0),
            "d_vocab_out": size_of(unembedding, -1),
        }
        known = {name: value for name, value in known.items() if value is not None}
        return ModelDescription(**{**learned, **known, **self.sizes})

    def __getattr__(self, name: str) -> Any:
        """A weight of `WEIGHTS`, None where `wrap` was told of none; else a submodule."""
        return self._weight(name) if name in WEIGHTS else super().__getattr__(name)

    def reinitialized(self, seed: int) -> WrappedModule:
        """The module made anew with the initial weights of `seed`."""
        assert self.make is not None  # a caller asks for the capability first
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.make()
        return WrappedModule(
            module, self.places, self.sources, self.call, self.make, self.sizes
        ).eval()

    def forward(
        self, tokens: Shaped[Tensor, "batch ..."]
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits; those of a module that answers once per example stand at every position."""
        with _eager(), self._routed(tokens):
            try:
                call = self.call
                logits = self.module(tokens) if call is None else call(self.module, tokens)
            except IndexError as error:  # which torch does not explain
                given = f"tokens up to {int(tokens.max())} at {tokens.shape[-1]} positions"
                raise DataError(
                    f"the module takes no {given}: {error}; give a task of its own tokens, or a "
                    "call that takes those it knows"
                ) from error
        logits = logits_of(logits)
        check_batch("logits", logits, tokens)
        if logits.dim() != 2 or tokens.dim() != 2:
            return logits
        return logits[:, None].expand(-1, tokens.shape[1], -1)

    @contextlib.contextmanager
    def _routed(self, tokens: Tensor) -> Iterator[None]:
        """Inside, activations pass through the hook points."""
        routes, handles = [_Route(name, self.hook_dict[name], tokens) for name in self.places], []
        try:
            for route in routes:
                handles.append(route.on(*self._find(route.name)))
            yield
        finally:
            for handle in handles:
                handle.remove()
        for route in routes:
            if not route.ran:
                raise ParameterError(
                    f"wrap: the submodule of hook {route.name} did not run in a forward; hook one "
                    "that runs in every forward, as a module"
                )

    def _find(self, name: str) -> tuple[nn.Module, str]:
        """The submodule of hook `name`, and "input" where its input is meant."""
        place = self.places[name]
        if not isinstance(place, str):
            submodule = (
                None if isinstance(place, nn.Module) or not callable(place) else place(self.module)
            )
            if not isinstance(submodule, nn.Module):
                raise ParameterError(
                    f"hook {name}: its place is or gives no submodule; expected its path, "
                    "or a function that finds it in the module"
                )
            return submodule, ""
        path, _, side = place.partition(":")
        try:
            return self.module.get_submodule(path), side
        except AttributeError as error:
            paths = [path for path, _ in self.module.named_modules() if path]
            raise UnknownNameError.of(f"submodule (of hook {name})", path, paths) from error

    def _weight(self, name: str) -> Tensor | None:
        source = self.sources.get(name)
        if source is None or not isinstance(source, str):
            return None if source is None else source(self.module)
        owner, _, attribute = source.rpartition(".")
        try:
            return getattr(self.module.get_submodule(owner), attribute)
        except AttributeError as error:
            known = [path for path, _ in self.module.named_parameters()]
            raise UnknownNameError.of(f"weight (for {name})", source, known) from error


def _eager() -> contextlib.AbstractContextManager[Any]:
    """Inside, what was compiled runs as it was written: compiled code takes no hooks."""
    if "torch._dynamo" not in sys.modules:  # nothing was compiled
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


def _add_point(root: nn.Module, name: str) -> None:
    """A hook point at the dotted `name`, with namespaces above it."""
    *path, last = name.split(".")
    if not last.startswith("hook_") or path[:1] == ["module"]:
        raise ParameterError(
            f"hook {name}: expected one of TransformerLens's names, e.g. blocks.0.hook_resid_post"
        )
    for part in path:
        if not hasattr(root, part):
            root.add_module(part, nn.Module())
        root = getattr(root, part)
    root.add_module(last, HookPoint())


# --- activations through hook points --------------------------------------------------------------
def logits_of(answer: Any) -> Tensor:
    """The logits in what a module returns: itself, its field or entry "logits", or the first entry
    of a tuple, as of (logits, loss).

    Raises:
        ParameterError: there are none.
    """
    logits = getattr(answer, "logits", answer)
    if isinstance(logits, Mapping):
        logits = logits.get("logits")
    if isinstance(logits, tuple | list) and logits:
        logits = logits[0]
    if not isinstance(logits, Tensor):
        raise ParameterError(
            f"wrap: the module returns a {type(answer).__name__}; expected logits, a tuple that "
            "begins with them or a mapping that has them: pass call=function(module, tokens)"
        )
    return logits


class _Route:
    """Passes the one activation of hook `name` in a forward through its hook point."""

    def __init__(self, name: str, point: nn.Module, tokens: Tensor) -> None:
        self.name, self.point, self.tokens, self.ran = name, point, tokens, False

    def on(self, submodule: nn.Module, side: str) -> RemovableHandle:
        """Route the first output of `submodule`, or its first argument where `side` is input."""
        if side == "input":
            return submodule.register_forward_pre_hook(self._argument, with_kwargs=True)
        return submodule.register_forward_hook(lambda module, args, output: self._once(output))

    def _once(self, value: Any) -> Any:
        if self.ran:
            raise ParameterError(
                f"wrap: the submodule of hook {self.name} runs more than once in a forward, so "
                "that its activation is not one; hook submodules that run once"
            )
        self.ran = True
        return self._through(value)

    def _argument(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        if args:
            return self._once(args), kwargs
        first = next(iter(inspect.signature(module.forward).parameters), "")
        if first not in kwargs:
            raise ParameterError(
                f"wrap: the module of hook {self.name} is called without its first argument "
                f"{first}; hook the output of what makes its input"
            )
        return args, {**kwargs, first: self._once(kwargs[first])}

    def _through(self, value: Any) -> Any:
        """`value`, a tensor or a tuple or list that begins with one, with the tensor passed."""
        if isinstance(value, tuple | list) and value:
            rest = [self._through(value[0]), *value[1:]]
            return getattr(value, "_make", type(value))(rest)
        if not isinstance(value, Tensor):
            raise ParameterError(
                f"wrap: the activation of hook {self.name} is a {type(value).__name__}; expected a "
                "tensor, or a tuple that begins with one: hook a submodule within that returns it"
            )
        check_batch(self.name, value, self.tokens)
        check_heads(self.name, value)
        # copies: what hooks keep is not what the module may write over, before or after
        if value.dim() != 2 or self.tokens.dim() != 2:
            return self.point(value.clone()).clone()
        # (batch, d) stands at the last position, zeros at the others
        before = self.tokens.shape[1] - 1
        return self.point(F.pad(value[:, None], (0, 0, before, 0)))[:, -1].clone()


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


def sizes_of(activations: Mapping[str, Shaped[Tensor, " ..."]]) -> dict[str, tuple[str, Any]]:
    """Field of a `ModelDescription` → the hook that shows it, and the size there."""
    sizes: dict[str, tuple[str, Any]] = {}
    for name, value in activations.items():
        if name.endswith(("hook_embed", "_resid_pre", "_resid_mid", "_resid_post", "_out")):
            sizes.setdefault("d_model", (name, value.shape[-1]))
        elif name.endswith(PATTERNS):
            sizes.setdefault("n_heads", (name, value.shape[1]))
            if name.endswith("hook_pattern") and bool(value.triu(1).any()):
                sizes["attention_dir"] = (name, "bidirectional")
        elif name.endswith(PER_HEAD):
            sizes.setdefault("n_heads", (name, value.shape[2]))
        elif name.endswith("mlp.hook_post"):
            sizes.setdefault("d_mlp", (name, value.shape[-1]))
    return sizes
