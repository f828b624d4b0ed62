"""Subject: a model with its task, its data and its cached activations; what a probe is given.

    subject = mechint.load("ckpt.pt")
    subject.activation("blocks.0.mlp.hook_post", pos=-1)      # (example, d_mlp), cached
    subject.grid(...)                                         # (p, p, d_mlp) on an input grid of p
    x p

Activations are computed in chunks of `chunk` examples and cached up to `memory` bytes, least
recently used out first; no hook is left behind. Cost: one forward a chunk and request that is not
cached.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.task import IGNORE, Batch, FiniteTask, Task

Hooks = Sequence[tuple[str, Callable[..., Any]]]


class Subject:
    """A model under study.

    Args:
        model: a HookedTransformer, a student, or a TransformerBridge; anything with ``hook_dict``
            and `hooks`.
        task: what it was trained on; None for a language model without a task of ours.
        data: the examples probes look at; all inputs of a finite task, `n_examples` of a generated
            one when None.
        provenance: where the model comes from: "path", "format", "step", "metrics" and more, as
            JSON values.
        series: step → function that gives the Subject's weights at that step (checkpoints of one
            run), ascending.
        split_seed: seed of the train/test split the model was trained with.
        memory: bytes of cached activations; chunk: examples a forward.
    """

    def __init__(
        self,
        model: Any,
        task: Task | None,
        *,
        data: Batch | None = None,
        provenance: Mapping[str, Any] | None = None,
        series: Mapping[int, Callable[[], Mapping[str, Tensor]]] | None = None,
        split_seed: int = 0,
        n_examples: int = 1024,
        memory: int = 1 << 29,
        chunk: int = 4096,
    ) -> None:
        self.model, self.task, self.split_seed, self.memory, self.chunk = (
            model,
            task,
            split_seed,
            memory,
            chunk,
        )
        if data is None:
            if task is None:
                data = Batch(
                    torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, 1, 1, dtype=torch.int64)
                )
            else:
                data = (
                    task.examples()
                    if isinstance(task, FiniteTask)
                    else task.sample(n_examples, seed=split_seed, split=task.probe_split)
                )
        self.data = data.to(self.device)
        self._provenance = dict(provenance or {})
        self.series = dict(series or {})
        self._cache: OrderedDict[tuple[str, int | None], Tensor] = OrderedDict()

    # --- what it is -------------------------------------------------------------------------------
    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def n_layers(self) -> int:
        """Blocks passed through, repeated passes counted."""
        return getattr(self.model.cfg, "depth", None) or self.model.cfg.n_layers

    @property
    def provenance(self) -> dict[str, Any]:
        """Checkpoint, task and versions, as JSON values."""
        import mechint

        task = (
            None
            if self.task is None
            else {"name": self.task.name, "parameters": self.task.to_dict()}
        )
        return {
            "checkpoint": self._provenance,
            "task": task,
            "mechint": mechint.__version__,
            "torch": torch.__version__,
        }

    def describe(self) -> str:
        """The subject in a few words, for messages."""
        return (
            f"{self._provenance.get('path', type(self.model).__name__)} on "
            f"{self.task.name if self.task else 'no task'}"
        )

    # --- answers ----------------------------------------------------------------------------------
    @property
    def read(self) -> int:
        """The position at which the answer is read, counted from 0: the last one of several."""
        return self.data.reads[-1]

    @property
    def targets(self) -> Tensor:
        """(example, output) classes at the read position, IGNORE where none is read."""
        return self.data.targets[:, self.read]

    def logits(
        self, data: Batch | None = None, hooks: Hooks = (), pos: int | None = None
    ) -> Tensor:
        """Logits (example, d_vocab_out) at `pos` (the read position when None), under `hooks` if
        any.

        hooks: (hook name, function(activation, hook)) pairs as TransformerLens's; plain answers on
        the subject's own data are cached.
        """
        pos = self.read if pos is None else pos
        if data is None and not hooks:
            return self._cached(
                "logits",
                pos,
                lambda: self._forward(self.data.tokens, (), lambda logits: logits[:, pos]),
            )
        return self._forward((data or self.data).tokens, hooks, lambda logits: logits[:, pos])

    def all_logits(self, data: Batch | None = None, hooks: Hooks = ()) -> Tensor:
        """Logits (example, pos, d_vocab_out) at every position; the caller bounds the memory by
        `data`.
        """
        return self._forward((data or self.data).tokens, hooks, lambda logits: logits)

    def _forward(self, tokens: Tensor, hooks: Hooks, keep: Callable[[Tensor], Tensor]) -> Tensor:
        for name, _ in hooks:
            self.check_hook(name)
        with torch.no_grad():
            return torch.cat(
                [
                    keep(self.model.run_with_hooks(part, fwd_hooks=list(hooks)))
                    for part in tokens.split(self.chunk)
                ]
            )

    def correct(self, logits: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
        """(example, output) bool: whether the arg-max class of every output is the target."""
        assert self.task is not None
        logits, targets = (
            self.logits() if logits is None else logits,
            self.targets if targets is None else targets,
        )
        answers = [logits[..., part].argmax(-1) for part in self.task.output_slices.values()]
        return torch.stack(answers, -1) == targets

    def accuracy(
        self, logits: Tensor | None = None, targets: Tensor | None = None
    ) -> dict[str, float]:
        """Output → share of read examples answered correctly."""
        assert self.task is not None
        targets = self.targets if targets is None else targets
        correct, read = self.correct(logits, targets), targets != IGNORE
        return {
            output.name: float(correct[read[:, i], i].double().mean())
            for i, output in enumerate(self.task.outputs)
        }

    def loss(self, logits: Tensor | None = None, targets: Tensor | None = None) -> dict[str, float]:
        """Output → mean cross-entropy in nats, in float64."""
        assert self.task is not None
        logits, targets = (
            self.logits() if logits is None else logits,
            self.targets if targets is None else targets,
        )
        parts = self.task.output_slices.items()
        return {
            name: float(
                F.cross_entropy(logits[:, part].double(), targets[:, i], ignore_index=IGNORE)
            )
            for i, (name, part) in enumerate(parts)
        }

    # --- activations ------------------------------------------------------------------------------
    def check_hook(self, name: str) -> str:
        """`name` if the model has that hook; UnknownNameError with the nearest one if not."""
        if name not in self.model.hook_dict:
            raise UnknownNameError.of("hook", name, self.model.hook_dict)
        return name

    def activation(self, name: str, pos: int | None = None, data: Batch | None = None) -> Tensor:
        """The activation at hook `name`: (example, pos, …), or (example, …) at one position.

        Attention patterns and scores have the query at axis 2: `pos` picks the query. Non-finite
        values are an error.
        """
        self.check_hook(name)
        if data is not None:
            return self._record(name, pos, data.tokens)
        return self._cached(name, pos, lambda: self._record(name, pos, self.data.tokens))

    def _record(self, name: str, pos: int | None, tokens: Tensor) -> Tensor:
        axis = 2 if name.endswith(("hook_pattern", "hook_attn_scores")) else 1
        parts: list[Tensor] = []

        def keep(tensor: Tensor, hook: Any) -> None:
            parts.append(
                tensor.detach().clone()
                if pos is None
                else tensor.detach().select(axis, pos).clone()
            )

        with torch.no_grad():
            for part in tokens.split(self.chunk):
                self.model.run_with_hooks(part, fwd_hooks=[(name, keep)])
        if not parts:
            raise ParameterError(
                f"hook {name}: it did not run; for attn.hook_result set model.use_attn_result"
            )
        result = torch.cat(parts)
        if not name.endswith("hook_attn_scores") and not bool(torch.isfinite(result).all()):
            raise MechintError(f"activation {name} of {self.describe()} is not finite")
        return result

    def _cached(self, name: str, pos: int | None, compute: Callable[[], Tensor]) -> Tensor:
        key = (name, pos)
        if key not in self._cache:
            value = compute()
            if value.nbytes > self.memory:
                return value
            self._cache[key] = value
            while sum(tensor.nbytes for tensor in self._cache.values()) > self.memory:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key]

    def grid(self, activation: Tensor) -> Tensor:
        """(example, …) reshaped to the task's input grid, e.g. (p, p, …)."""
        assert isinstance(self.task, FiniteTask)
        return activation.reshape(*self.task.grid, *activation.shape[1:])

    # --- other subjects ---------------------------------------------------------------------------
    def like(self, model: Any, **provenance: Any) -> Subject:
        """The same task, data and limits with another model."""
        return Subject(
            model,
            self.task,
            data=self.data,
            provenance={**self._provenance, **provenance},
            split_seed=self.split_seed,
            memory=self.memory,
            chunk=self.chunk,
        )

    def untrained(self, seed: int = 0) -> Subject:
        """The same architecture with initial weights: the control on which no mechanism can be."""
        model = type(self.model)(self.model.config, seed=seed).to(
            device=self.device, dtype=next(self.model.parameters()).dtype
        )
        return self.like(model, path=f"untrained, seed {seed}")

    def at(self, step: int) -> Subject:
        """The subject at another checkpoint of its run; `series` lists the steps."""
        if step not in self.series:
            raise ParameterError(
                f"step {step}: {self.describe()} has checkpoints at "
                f"{', '.join(map(str, self.series)) or 'no other step'}"
            )
        model = copy.deepcopy(self.model)
        model.load_state_dict(dict(self.series[step]()))
        return self.like(model, step=step)

    # --- hygiene ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Evaluation mode inside; mode, gradients, hooks and RNG state as before afterwards, after
        an error too.
        """
        training = {module: module.training for module in self.model.modules()}
        grads = {
            parameter: (parameter.requires_grad, parameter.grad)
            for parameter in self.model.parameters()
        }
        hooks = {
            point: (list(point.fwd_hooks), list(point.bwd_hooks))
            for point in self.model.hook_dict.values()
        }
        devices = [self.device] if self.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices=devices):
                self.model.eval()
                yield
        finally:
            for module, mode in training.items():
                module.training = mode
            for parameter, (requires_grad, grad) in grads.items():
                parameter.requires_grad_(requires_grad)
                parameter.grad = grad
            for point, (forward, backward) in hooks.items():
                for handle in [
                    handle
                    for handle in point.fwd_hooks + point.bwd_hooks
                    if handle not in forward + backward
                ]:
                    handle.hook.remove()
                point.fwd_hooks, point.bwd_hooks = forward, backward
