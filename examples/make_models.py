"""Train the small models that the examples open, and save them in examples/models/.

    python examples/make_models.py [NAME ...]

Each is one file below 2 MB. Presets are those that `mechint tasks TASK` prints.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mechint
import tasks
from mechint.checkpoints import save_checkpoint

MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # name → task, its settings, the model's, the training's; on top of the preset "fast"
    "clock": ("modular-arithmetic", {"p": 29}, {}, {}),
    "pizza": (
        "modular-arithmetic",
        {"p": 43, "train_fraction": 0.8},
        {"d_mlp": 256, "attention_rate": 0.0},
        {
            "steps": 2200,
            "lr": 2e-3,
            "schedule": "cosine",
            "stop_accuracy": None,
            "grokfast": None,
            "seed": 1,
        },
    ),
    "induction": ("repeated-tokens", {}, {}, {}),
    "maximum": ("max-of-list", {}, {}, {}),
    "digits": ("digit-sum", {}, {}, {}),
}


def make(name: str, folder: Path) -> Path:
    """Train the model `name` and write its checkpoint into `folder`."""
    task_name, parameters, model, train = MODELS[name]
    task = tasks.make(task_name, preset="fast", **parameters)
    (run,) = mechint.train(task, model, train, preset="fast")
    path = folder / f"{name}.pt"
    save_checkpoint(
        path,
        config=run.spec.model,
        weights=run.weights,
        task=task,
        step=run.step,
        metrics=run.final,
        train=run.spec.train,
        seed=run.spec.data_seed,
    )
    return path


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODELS:
        saved = make(chosen, Path(__file__).parent / "models")
        print(saved, f"{saved.stat().st_size / 1e6:.2f} MB", mechint.load(saved).accuracy())
