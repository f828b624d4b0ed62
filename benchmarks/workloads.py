"""The models that are timed: ours as ensembles ready to step, and the same shapes as the peer takes
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mechint.config import ModelConfig
from mechint.registry import TASKS
from mechint.training import spec
from mechint.training.run import Run
from mechint.training.trainer import Ensemble

TRAIN = {
    "optimizer": "adamw",
    "lr": 1e-3,
    "weight_decay": 1.0,
    "grokfast": None,
    "output_weights": "equal",
}
"""The optimizer of both sides."""


@dataclass(frozen=True)
class Workload:
    """One model on one task; `turn` steps are timed at a time, and the step is to be `target` times
    the peer's.

    A turn of a generated task is a block of its stream, so that generation is paid for where it
    falls; of a finite one it is several steps, since the first after the other's turn finds its
    threads still busy and the caches cold.
    """

    name: str
    task: str
    target: float
    turn: int
    parameters: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    precision: str = "float32"

    def ensemble(self, seeds: Iterable[int] = (0,), device: str = "cpu") -> Ensemble:
        """Models of these seeds, each with its own data, at step 0."""
        task = TASKS[self.task].from_dict(self.parameters)
        train = {**TRAIN, "precision": self.precision}
        runs = [Run(spec(task, self.model, train, seed=seed)) for seed in seeds]
        return Ensemble(runs, torch.device(device))

    def peer_shape(self, device: str = "cpu") -> dict[str, Any]:
        """The same model for HookedTransformerConfig. Where our contexts have 63 characters, the
        peer pads to 64.
        """
        run = self.ensemble().runs[0]
        config, size = run.spec.model, run.spec.train.batch_size
        assert isinstance(config, ModelConfig)
        names = (
            "n_layers",
            "d_model",
            "n_heads",
            "d_head",
            "d_mlp",
            "d_vocab",
            "act_fn",
            "normalization_type",
        )
        batch = size or len(next(run.spec.task.stream("train", 0, None)))
        generated = size is not None
        places = {
            "n_ctx": 64 if generated else config.n_ctx,
            "d_vocab_out": config.d_vocab_out,
            "read": "all" if generated else "last",
        }
        return {
            **{name: getattr(config, name) for name in names},
            **places,
            "batch": batch,
            "device": device,
            "precision": self.precision,
        }


def listops(width: int, layers: int, target: float) -> Workload:
    """ListOps with chain of thought in TransformerLens's LN and gelu, batches of 64 expressions."""
    return Workload(
        f"listops {width}×{layers}",
        "listops",
        target,
        64,
        {},
        {"n_layers": layers, "d_model": width, "n_heads": 1},
    )


ADDITION = Workload("addition-113", "modular-arithmetic", 3.5, 8, {"p": 113})
REMAINDERS = Workload(
    "remainders-113",
    "remainders",
    3.0,
    3,
    {"p": 113, "validation_fraction": 0.0},
    {"dropout": 0.0, "use_bias": True},
)
IN_BF16 = replace(ADDITION, name="addition-113 in bf16, the peer's too", precision="bf16")
"""On processors that multiply bfloat16; see docs/many-models.md."""
STEPS = (ADDITION, REMAINDERS, listops(48, 3, 2.3), listops(128, 3, 2.3))
