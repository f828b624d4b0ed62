"""Configurations beside a checkpoint or in it: of the model and of the task it was trained on.

People keep them as ``cfg.json``, ``config.json`` or ``config.yaml``, the model's fields at the top
or under "model", the task's under "dataset", "data" or "task", or at the top. Names that several
projects share are read; everything else is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.checkpoints.reader import SplitRule, checked_seed, plain_values
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.system.files import read_json, read_yaml

NAMES = ("cfg.json", "config.json", "config.yaml", "config.yml", "cfg.yaml")
CONFIGS = ("config", "cfg", "model_config", "model_cfg", "hyper_parameters")
MODEL_PARTS = ("model", "model_config", "cfg")
MODEL_FIELDS = frozenset(
    {"d_model", "n_heads", "d_head", "n_ctx", "act_fn", "attention_dir", "normalization_type"}
    | {"attn_scale", "use_attn_scale", "positional_embedding_type"}
)
"""Fields by which a configuration inside a file is known to be a model's."""

OPTIMIZER_FIELDS = frozenset({"lr", "learning_rate", "betas", "weight_decay"})
"""Beside one of them `eps` may be the optimizer's and is not taken for layer norm's."""

TASK_PARTS = ("dataset", "data", "task", "train")
OPERATIONS = {
    **dict.fromkeys(("add", "addition", "+"), "add"),
    **dict.fromkeys(("subtract", "subtraction", "-"), "subtract"),
    **dict.fromkeys(("multiply", "multiplication", "*"), "multiply"),
    "x2y2": "x^2+y^2",
    "x2xyy2": "x^2+xy+y^2",
}
FRACTIONS = ("frac_train", "train_fraction", "train_frac", "fraction")


def configurations(path: Path, names: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """The configurations beside `path`, the one named after it first.

    names: of files that come before those, with the parts that `place_of` fills in.
    """
    folder = path if path.is_dir() else path.parent
    named_alike = [f"{path.stem}.{ending}" for ending in ("json", "yaml", "yml")]
    configs = []
    for name in dict.fromkeys((*(place_of(path, name) for name in names), *named_alike, *NAMES)):
        place = folder / name
        if place != path:
            read = read_json if place.suffix == ".json" else read_yaml
            given = read(place, CheckpointError)
            configs += [given] if isinstance(given, Mapping) else []
    return configs


def place_of(path: Path, name: str) -> str:
    """A file name with ``{stem}``, the checkpoint's own, and ``{id}``, that without "model_".

    >>> place_of(Path("model_x.pt"), "config_{id}.json")
    'config_x.json'
    """
    stem = path.stem
    return Path(name.replace("{stem}", stem).replace("{id}", stem.removeprefix("model_"))).name


def model_config(path: Path, content: Any, d_model: int) -> dict[str, Any]:
    """Fields of the model whose width is `d_model`, from `content` or from a file beside `path`;
    none where neither has them.
    """
    inside = [content.get(name) for name in CONFIGS] if isinstance(content, Mapping) else []
    fitting = [
        part
        for part in _parts(inside)
        if part.get("d_model", d_model) == d_model and not MODEL_FIELDS.isdisjoint(part)
    ]
    if not fitting:
        fitting = [part for part in _parts(configurations(path)) if part.get("d_model") == d_model]
    chosen = dict(fitting[0]) if fitting else {}
    if not OPTIMIZER_FIELDS.isdisjoint(chosen):
        chosen.pop("eps", None)
    return chosen


def _parts(configs: Iterable[Any]) -> list[Mapping[str, Any]]:
    """Configurations, each with the parts of it that may be the model's."""
    mappings = [given for given in configs if isinstance(given, Mapping)]
    parts = [
        part
        for config in mappings
        for part in (config, *(config.get(name) for name in MODEL_PARTS))
    ]
    return [part for part in parts if isinstance(part, Mapping)]


def task_of(path: Path, content: Any, config: ModelConfig) -> dict[str, Any]:
    """Task, parameters, seed, split and the configuration for showing, where a configuration in
    `content` or beside `path` names a modulus that fits the model's vocabulary; fields of
    `ParsedCheckpoint`.
    """
    inside = [content] if isinstance(content, Mapping) else []
    for given in [*inside, *configurations(path)]:
        for part in (*(given.get(name) for name in TASK_PARTS), given.get("config"), given):
            task = _task(part, given, config) if isinstance(part, Mapping) else None
            if task is not None:
                return task
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
