"""Configurations: frozen dataclasses whose fields know their range, with JSON in and out.

A task, a probe, a model and a training run are all configured by `Settings`: fields declared with
`setting(...)`, checked when the object is made, listed by `describe`, changed by
``--set name=value`` (`assign`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from mechint.errors import ParameterError, UnknownNameError


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[Any] | None = None,
) -> Any:
    """A dataclass field with its help text and its range (both ends included) or its choices."""
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "choices": tuple(choices) if choices is not None else None,
    }
    return dataclasses.field(default=default, metadata=metadata)


def _fits(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether `value` is of type `hint`, and the value as that type (an int as a float, a list as a
    tuple).
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        # an exact member first, so that 3 stays an int in `int | float`
        for member in typing.get_args(hint):
            if type(value) is member:
                return True, value
        return next(
            (
                (True, fitted)
                for member in typing.get_args(hint)
                for ok, fitted in [_fits(value, member)]
                if ok
            ),
            (False, value),
        )
    if origin is tuple:
        members = typing.get_args(hint)
        if not isinstance(value, list | tuple):
            return False, value
        kinds = (
            [members[0]] * len(value)
            if len(members) == 2 and members[1] is Ellipsis
            else list(members)
        )
        fitted = [_fits(item, kind) for item, kind in zip(value, kinds, strict=False)]
        return len(kinds) == len(value) and all(ok for ok, _ in fitted), tuple(
            item for _, item in fitted
        )
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping), value
    if hint is Any:
        return True, value
    if hint is type(None):
        return value is None, value
    if hint is bool or isinstance(value, bool):
        return hint is bool and isinstance(value, bool), value
    if hint is float and isinstance(value, int):
        return True, float(value)
    return isinstance(value, hint), value


def _name(hint: Any) -> str:
    if hint is type(None):
        return "none"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_name(member) for member in typing.get_args(hint))
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("typing.", "")
    )


class Settings:
    """Base of frozen dataclasses whose fields are checked against type and range on creation.

    A subclass that checks more defines ``__post_init__``, calls ``super().__post_init__()`` first,
    and raises ParameterError through `reject`.
    """

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            ok, value = _fits(value, hints[field.name])
            if not ok:
                self.reject(field.name, _name(hints[field.name]))
            object.__setattr__(self, field.name, value)
            low, high, choices = (field.metadata.get(key) for key in ("low", "high", "choices"))
            if choices is not None and value is not None and value not in choices:
                self.reject(field.name, "one of " + ", ".join(map(str, choices)))
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int | float) and not isinstance(number, bool):
                    wrong = (
                        not math.isfinite(number)
                        or (low is not None and number < low)
                        or (high is not None and number > high)
                    )
                    if wrong:
                        self.reject(field.name, _range(low, high))

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what a task has computed and kept is not for another process."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def reject(self, name: str, expected: str) -> typing.NoReturn:
        """Raise the ParameterError for the field `name`: what was got, what was expected."""
        raise ParameterError(f"{self.label()}: {name}={getattr(self, name)!r}: expected {expected}")

    @classmethod
    def label(cls) -> str:
        """What an error message calls this object."""
        return getattr(cls, "name", cls.__name__)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values; `from_dict` is its inverse."""
        return json.loads(
            json.dumps(
                {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
            )
        )  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> typing.Self:
        """Make the object from `to_dict`'s output; UnknownNameError for a field that there is
        not.
        """
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for name in values:
            if name not in known:
                raise UnknownNameError.of(f"{cls.label()} parameter", name, known)
        return cls(**{name: _frozen(value) for name, value in values.items()})

    @classmethod
    def describe(cls) -> list[dict[str, str]]:
        """One row a field: name, type, default, range and help, as text."""
        hints = typing.get_type_hints(cls)
        rows = []
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            choices = field.metadata.get("choices")
            span = (
                ", ".join(map(str, choices))
                if choices
                else _range(field.metadata.get("low"), field.metadata.get("high"), short=True)
            )
            rows.append(
                {
                    "name": field.name,
                    "type": _name(hints[field.name]),
                    "default": json.dumps(field.default, default=str),
                    "range": span,
                    "help": field.metadata.get("help", ""),
                }
            )
        return rows


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _range(low: float | None, high: float | None, short: bool = False) -> str:
    if low is None and high is None:
        return "" if short else "a finite number"
    if low is not None and high is not None:
        return f"{low:g} … {high:g}" if short else f"{low:g} to {high:g}"
    return (
        (f"≥ {low:g}" if short else f"at least {low:g}")
        if low is not None
        else (f"≤ {high:g}" if short else f"at most {high:g}")
    )


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split ``name=value``; the value is read as JSON where it is JSON, as text otherwise.

    >>> (parse_assignment("lr=2e-3"), parse_assignment("task.operation=add"),
    ...     parse_assignment("betas=[0.9,0.98]"))
    (('lr', 0.002), ('task.operation', 'add'), ('betas', [0.9, 0.98]))
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ParameterError(f"--set {text!r}: expected name=value")
    try:
        return name.strip(), json.loads(value, parse_constant=lambda word: word)
    except json.JSONDecodeError:
        return name.strip(), {"none": None, "None": None, "True": True, "False": False}.get(
            value.strip(), value.strip()
        )


def assign(texts: Iterable[str], targets: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """Sort ``--set`` assignments by the configuration they reach.

    Args:
        texts: ``name=value`` or ``target.name=value`` each; the last one of a name wins.
        targets: name of the target ("task", "model", "train", a probe's name) → its Settings class.

    Returns:
        target → {field: value}, one entry a target.

    Raises:
        UnknownNameError: no target has the field.
        ParameterError: several targets have it and none is named.
    """
    fields = {
        target: {field.name for field in dataclasses.fields(cls)} for target, cls in targets.items()
    }  # type: ignore[arg-type]
    result: dict[str, dict[str, Any]] = {target: {} for target in targets}
    for text in texts:
        name, value = parse_assignment(text)
        target, _, rest = name.partition(".")
        if rest and target in fields:
            if rest not in fields[target]:
                raise UnknownNameError.of(f"{target} parameter", rest, fields[target])
            result[target][rest] = value
            continue
        owners = [target for target, names in fields.items() if name in names]
        if not owners:
            raise UnknownNameError.of(
                "parameter", name, {field for names in fields.values() for field in names}
            )
        if len(owners) > 1:
            raise ParameterError(
                f"--set {name}: several have it; write "
                + " or ".join(f"{owner}.{name}" for owner in owners)
            )
        result[owners[0]][name] = value
    return result


@dataclasses.dataclass(frozen=True)
class ModelConfig(Settings):
    """Shape of a HookedTransformer, in TransformerLens's field names, with what the papers need
    beyond it.

    `n_loops` applies the same blocks several times (weights tied); pass r of block l has the hooks
    of block ``r * n_layers + l``. `attention_rate` mixes softmax attention with constant attention
    (all ones) as ``rate * softmax + (1 - rate)`` (Zhong et al. 2023, Sec. 2). `d_vocab_out` counts
    the classes of all output groups together.
    """

    n_layers: int = setting(1, "blocks with weights of their own", low=1)
    d_model: int = setting(128, "width of the residual stream", low=1)
    n_heads: int = setting(4, "attention heads a block", low=1)
    d_head: int | None = setting(None, "width of a head; d_model / n_heads when none", low=1)
    d_mlp: int | None = setting(None, "neurons of a feed-forward layer; 4 d_model when none", low=1)
    n_ctx: int = setting(3, "positions", low=1)
    d_vocab: int = setting(114, "tokens read", low=1)
    d_vocab_out: int = setting(113, "classes answered, all output groups together", low=1)
    act_fn: str = setting(
        "relu", "activation of the feed-forward layer", choices=("relu", "gelu", "gelu_new", "silu")
    )
    normalization_type: str | None = setting(
        None, "layer norm: with weights, without, or none", choices=("LN", "LNPre")
    )
    attn_only: bool = setting(False, "no feed-forward layers")
    attention_dir: str = setting(
        "causal", "what a position may attend to", choices=("causal", "bidirectional")
    )
    use_bias: bool = setting(True, "biases in attention, feed-forward and unembedding")
    n_loops: int = setting(1, "how often the blocks are applied, weights tied", low=1)
    attention_rate: float = setting(
        1.0, "share of softmax attention in the mix with constant attention", low=0, high=1
    )
    dropout: float = setting(
        0.0,
        "dropout on the output of attention and feed-forward, in training only",
        low=0,
        high=0.999,
    )
    eps: float = setting(1e-5, "epsilon of layer norm", low=0)
    attn_scale: float | None = setting(
        None, "attention scores are divided by it; sqrt(d_head) when none", low=1e-6
    )
    init_mode: str = setting(
        "gpt2",
        (
            "gpt2: N(0, 0.8/sqrt(d_model)); d_model: N(0, 1/sqrt(d_model)); he: N(0, "
            "sqrt(2/fan_in)); normal: N(0, 0.02); torch: PyTorch's uniform"
        ),
        choices=("gpt2", "d_model", "he", "normal", "torch"),
    )
    initializer_range: float | None = setting(
        None, "standard deviation in place of init_mode's own", low=0
    )
    embed_std: float | None = setting(
        None,
        "standard deviation of token and position embeddings; init_mode's own when none",
        low=0,
    )
    output_sizes: tuple[int, ...] | None = setting(
        None, "classes of every output group; one group when none", low=1
    )
    read_layers: tuple[int, ...] | None = setting(
        None,
        "for every output group, after how many blocks it is read; all after the last when none",
        low=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise ParameterError(
                    f"model: d_model={self.d_model} does not divide into "
                    f"n_heads={self.n_heads}; set d_head or change one"
                )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.d_mlp is None:
            object.__setattr__(self, "d_mlp", 4 * self.d_model)
        if self.output_sizes is None:
            object.__setattr__(self, "output_sizes", (self.d_vocab_out,))
        if sum(self.output_sizes or ()) != self.d_vocab_out:
            self.reject("output_sizes", f"sizes that add up to d_vocab_out={self.d_vocab_out}")
        if self.read_layers is not None and (
            len(self.read_layers) != len(self.output_sizes or ())
            or max(self.read_layers) > self.depth
        ):
            self.reject(
                "read_layers",
                (
                    f"one number from 1 to {self.depth} for each of "
                    f"{len(self.output_sizes or ())} output groups"
                ),
            )

    @classmethod
    def label(cls) -> str:
        return "model"

    @property
    def depth(self) -> int:
        """Blocks passed through, repeated ones counted."""
        return self.n_layers * self.n_loops

    @property
    def scale(self) -> float:
        """What attention scores are divided by."""
        return math.sqrt(self.d_head) if self.attn_scale is None else self.attn_scale  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class TrainConfig(Settings):
    """How a model is trained.

    Grokfast (Lee et al. 2024): `ema` filters gradients with mu ← alpha mu + (1 - alpha) g, `ma`
    with a moving average over `grokfast_window` steps; the optimiser sees g + lamb mu.
    """

    steps: int = setting(5000, "optimiser steps", low=1)
    batch_size: int | None = setting(
        None, "examples a step; the whole training set when none", low=1
    )
    optimizer: str = setting(
        "adamw",
        "adamw decouples the decay, adam adds it to the gradient",
        choices=("adamw", "adam", "sgd"),
    )
    lr: float = setting(1e-3, "learning rate", low=0)
    betas: tuple[float, float] = setting((0.9, 0.98), "Adam's moments' decay", low=0, high=0.999999)
    eps: float = setting(1e-8, "Adam's epsilon", low=0)
    momentum: float = setting(0.0, "momentum of sgd", low=0, high=1)
    weight_decay: float = setting(1.0, "decay; weights only where decay_matrices_only", low=0)
    decay_matrices_only: bool = setting(False, "no decay on biases and norm weights")
    warmup: int = setting(10, "steps of linear warm-up", low=0)
    schedule: str = setting(
        "constant",
        "learning rate after warm-up",
        choices=("constant", "cosine", "inverse_sqrt", "linear"),
    )
    min_lr: float = setting(0.0, "where cosine and linear end", low=0)
    grokfast: str | None = setting(None, "gradient filter", choices=("ema", "ma"))
    grokfast_lamb: float = setting(2.0, "weight of the slow gradient", low=0)
    grokfast_alpha: float = setting(0.98, "memory of the slow gradient (ema)", low=0, high=1)
    grokfast_window: int = setting(100, "steps averaged (ma)", low=1)
    grokfast_start: str = setting(
        "first",
        "the slow gradient starts at the first gradient, or at zero",
        choices=("first", "zero"),
    )
    clip: float | None = setting(None, "largest L2 norm of the gradient", low=0)
    output_weights: str = setting(
        "equal", "loss: mean over outputs, or sum of CE_q / ln(classes)", choices=("equal", "log")
    )
    evaluate_every: int = setting(100, "steps between evaluations", low=1)
    eval_examples: int = setting(2000, "examples of a generated task that are evaluated", low=1)
    checkpoints: str = setting(
        "last", "which checkpoints are kept besides the last", choices=("last", "log", "linear")
    )
    n_checkpoints: int = setting(20, "how many of them", low=1)
    stop_accuracy: float | None = setting(
        None, "stop when test accuracy of every output is at least this", low=0, high=1
    )
    stop_patience: int | None = setting(
        None,
        "stop when the training loss changed less than stop_delta over so many evaluations",
        low=1,
    )
    stop_delta: float = setting(2.5e-4, "what counts as a change", low=0)
    stop_after: int = setting(0, "no early stop before this step", low=0)
    precision: str = setting(
        "float32", "arithmetic of the training step", choices=("float32", "tf32", "bf16", "float64")
    )
    seed: int = setting(0, "seed of weights, split, order and dropout", low=0)
    data_seed: int | None = setting(None, "seed of split and order in place of seed", low=0)

    @classmethod
    def label(cls) -> str:
        return "train"
