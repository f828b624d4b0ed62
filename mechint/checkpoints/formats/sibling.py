"""Configurations beside a checkpoint, or in it: of the model, and of the task it was trained on.

People keep them as ``cfg.json``, ``config.json`` or ``config.yaml``, the model's fields at the top
or under "model", the task's under "dataset", "data" or "task", or at the top. Names that several
projects share are read; whatever else is there is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.reader import checked_seed, plain_values, read_sibling_config
from mechint.checkpoints.splits import SplitRule
from mechint.config import ModelConfig

NAMES = ("cfg.json", "config.json", "config.yaml", "config.yml", "cfg.yaml")
MODEL_PARTS = ("model", "model_config", "cfg")
TASK_PARTS = ("dataset", "data", "task", "train")
OPERATIONS = {
    "add": "add",
    "addition": "add",
    "+": "add",
    "subtract": "subtract",
    "subtraction": "subtract",
    "-": "subtract",
    "multiply": "multiply",
    "multiplication": "multiply",
    "*": "multiply",
    "x2y2": "x^2+y^2",
    "x2xyy2": "x^2+xy+y^2",
}
FRACTIONS = ("frac_train", "train_fraction", "train_frac", "fraction")


def configurations(path: Path) -> list[Mapping[str, Any]]:
    """The configurations beside `path`, the one named after it first."""
    places = (f"{path.stem}.json", f"{path.stem}.yaml", f"{path.stem}.yml", *NAMES)
    found = [read_sibling_config(path, name) for name in dict.fromkeys(places) if name != path.name]
    return [given for given in found if given is not None]


def model_config(path: Path, d_model: int) -> Mapping[str, Any]:
    """Fields of the model whose width is `d_model`, from a file beside `path`; none where there is
    no such file.
    """
    for given in configurations(path):
        parts = [given, *(given.get(name) for name in MODEL_PARTS)]
        for part in parts:
            if isinstance(part, Mapping) and part.get("d_model") == d_model:
                return part
    return {}


def task_of(path: Path, content: Any, config: ModelConfig) -> dict[str, Any]:
    """Task, parameters, seed, split and the configuration for showing, where a configuration in
    `content` or beside `path` names a modulus that fits the model's vocabulary; fields of
    `ParsedCheckpoint`.
    """
    inside = [content] if isinstance(content, Mapping) else []
    for given in [*inside, *configurations(path)]:
        for part in (*(given.get(name) for name in TASK_PARTS), given.get("config"), given):
            found = _task(part, given, config) if isinstance(part, Mapping) else None
            if found is not None:
                return found
    return {}


def _task(
    part: Mapping[str, Any], given: Mapping[str, Any], config: ModelConfig
) -> dict[str, Any] | None:
    modulus = part.get("modulus", part.get("p"))
    named = part.get("fn_name", part.get("operation", part.get("task")))
    operation = OPERATIONS.get(named) if isinstance(named, str) else None
    if not isinstance(modulus, int) or isinstance(modulus, bool) or operation is None:
        return None
    equals = config.n_ctx == 3
    if config.d_vocab != modulus + equals or config.n_ctx not in (2, 3):
        return None
    parameters: dict[str, Any] = {"p": modulus, "operation": operation, "equals": equals}
    fraction = next((part[name] for name in FRACTIONS if isinstance(part.get(name), float)), None)
    seed = checked_seed(part.get("seed", given.get("seed")))
    split = None
    if fraction is not None:
        parameters["train_fraction"] = fraction
        if seed is not None and part.get("dataset_type") == "modular_arithmetic":
            split = SplitRule("torch-randperm", seed, fraction)  # RIB's: random_split by this seed
    return {
        "task": "modular-arithmetic",
        "parameters": parameters,
        "seed": seed,
        "split": split,
        "extra": {"config": plain_values(part)},
    }
