"""One training step as a CUDA graph: recorded once, replayed without Python between its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.config import Settings, TrainConfig

WARM_UP = 3


def can_capture(train: TrainConfig, model: Settings) -> bool:
    """Whether every step does the same to tensors in the same places: on the whole training set,
    without a moving average of gradients, whose window turns in Python, and without decoders that
    are solved for, since the solver looks at its outcome on the CPU.

    >>> from mechint.config import ModelConfig
    >>> can_capture(TrainConfig(grokfast="ema"), ModelConfig())
    True
    >>> can_capture(TrainConfig(grokfast="ma"), ModelConfig())
    False
    """
    solved = getattr(model, "decoder", None) == "optimal"
    return train.batch_size is None and train.grokfast != "ma" and not solved


def current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Inside, `device` is the GPU that streams, graphs and names of GPUs are those of; without it
    that is the first one, whatever device the tensors are on.
    """
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


class Captured:
    """`body`, captured.

    Args:
        body: one step; it reads and writes tensors of fixed shape and place, and returns one.
        subject: what the capture is of; a caller captures anew when it works on another.
        generators: those that the body draws from.
        state: tensors that the body changes; the warm-up leaves them as they were.
        device: the GPU that the body computes on; a graph of another one would hold nothing.
    """

    def __init__(
        self,
        body: Callable[[], Tensor],
        subject: Any,
        generators: Sequence[torch.Generator],
        state: Sequence[Tensor],
        device: torch.device,
    ) -> None:
        self.subject, self.device = subject, device
        with current(device):
            self._capture(body, generators, state)

    def _capture(
        self,
        body: Callable[[], Tensor],
        generators: Sequence[torch.Generator],
        state: Sequence[Tensor],
    ) -> None:
        before = [tensor.detach().clone() for tensor in state]
        draws = [generator.get_state() for generator in generators]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                body()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)
        for generator, draw in zip(generators, draws, strict=True):
            generator.set_state(draw)
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        with torch.cuda.graph(self.graph):
            self.result = body()

    def replay(self) -> Float[Tensor, " ..."]:
        """One step; a copy of what the body returned."""
        with current(self.device):
            self.graph.replay()
        return self.result.clone()
