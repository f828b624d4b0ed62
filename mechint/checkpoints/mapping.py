"""Mapping files: YAML that says how another project's checkpoint becomes one of mechint's.

    format: bau-lab                              # its name
    match: {layers.0.heads.0.W_Q.weight: d_head d_model}
    config: {normalization_type: null, act_fn: {from: activation, default: relu, why: …}}
    weights:
      embed.W_E: tok_embed.weight
      blocks.{layer}.attn.W_Q:
        {from: "layers.{layer}.heads.{head}.W_Q.weight", rearrange: head h d -> head d h}
    task: {name: max-of-list, n: {from: $d_vocab_out}}

`docs/checkpoint-formats.md` explains every key. A mapping computes nothing but what is listed
there, so a file from a stranger can be used.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mechint.checkpoints.configurations import configurations, place_of
from mechint.checkpoints.fitting import choose_task, fit
from mechint.checkpoints.group_answers import answers, group_table
from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    StateDict,
    TrackedStateDict,
    checked_seed,
    find_state,
    layer_count,
    plain_values,
    saved_states,
    settings,
    state_dict,
    training_metadata,
    unwrapped,
)
from mechint.checkpoints.renaming import MAX_CONSTANT, expanded, layers_of, listed, tensors_of
from mechint.checkpoints.splits import PERMUTATIONS, SplitRule
from mechint.checkpoints.weights import build_model, check_weights, fill_zeros
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, DataError, MechintError, first_line
from mechint.models.pair_config import PairNetworkConfig
from mechint.system.files import read_yaml

if TYPE_CHECKING:
    from mechint.subject import Subject

FILE = "mapping.yaml"
"""Beside a checkpoint, a mapping of this name is used for it."""

BUILTIN = Path(__file__).parent / "mappings"
KEYS = ("format", "about", "architecture", "match", "state", "beside", "strip", "ignore")
KEYS += ("config", "weights", "task", "split", "seed", "step", "metrics")
TENSOR_KEYS = ("from", "rearrange", "take", "scale", "constant", "optional")
VALUE_KEYS = ("from", "values", "contains", "format", "default", "unless", "why", "try")
AS_GOOD = 0.01
"""Accuracy by which another reading must exceed the stated one to replace it."""

SAME_LOSS = math.log(1.1)
"""A reading whose loss is at most this far from those that the file states is the file's own."""
TINY = 1e-300

WHOLE = 0.05
"""Distance from a whole number of training examples that the rounding of a loss makes."""

ANSWERED = 0.5
"""Accuracy from which several readings cannot be told apart by their answers."""

SHARED = ("attn.W_K", "attn.W_V", "attn.b_K", "attn.b_V")
"""Keys and values, which several heads may share (Ainslie et al. 2023)."""
QKV_BIASES = ("attn.b_Q", "attn.b_K", "attn.b_V")

MAX_ORDER = 1024
"""Elements of a group whose table is read off the model."""

UNSTATED, ANSWERS = object(), object()


@dataclass(frozen=True)
class Mapped:
    """A mapping file; called like a reader, ``mapping(path, content)``.

    Raises:
        CheckpointError: a key or entry that no mapping has.
    """

    source: str
    given: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        _check_keys(self.source, "a mapping", self.given, KEYS)
        if empty := next((key for key, value in self.given.items() if value is None), None):
            raise CheckpointError(f"{self.source}: {empty}: is empty; leave it out")
        weights = self.given.get("weights")
        if not isinstance(weights, Mapping) or not weights:
            raise CheckpointError(f"{self.source}: expected weights: our name → their name")
        for name, entry in weights.items():
            if isinstance(entry, Mapping):
                _check_keys(self.source, f"weights: {name}", entry, TENSOR_KEYS)
                if not isinstance(scale := entry.get("scale", 1.0), int | float):
                    raise CheckpointError(
                        f"{self.source}: weights: {name}: scale {scale!r}; expected a number"
                    )
            elif not isinstance(entry, str):
                raise CheckpointError(f"{self.source}: weights: {name}: expected a name of theirs")
        tasks = self.given.get("task", {})
        for one in tasks if isinstance(tasks, list) else [tasks]:
            if not isinstance(one, Mapping):
                raise CheckpointError(f"{self.source}: task: expected {{name: {one}, …}}")
        for part in ("config", "split", "metrics"):
            if not isinstance(self.given.get(part, {}), Mapping):
                raise CheckpointError(f"{self.source}: {part}: expected a mapping")

    @property
    def name(self) -> str:
        return str(self.given.get("format", "mapping"))

    def __call__(self, path: Path, content: Any) -> ParsedCheckpoint | None:
        """`content` of the file `path` under this mapping, None where it is not of the format."""
        lookup = self._lookup(path, content)
        state = self._state(content)
        if state is None or not self._matches(state, lookup):
            return None
        return _with_task_that_fits(path, self.apply(path, content, state, lookup))

    def forced(self, path: Path, content: Any) -> ParsedCheckpoint:
        """`content` under this mapping, without asking whether it matches.

        Raises:
            CheckpointError: a tensor is missing, of another shape, or has no place.
        """
        with _refusing(self.source):
            state = self._state(content)
            if state is None:
                raise CheckpointError(
                    f"{path}: holds no state dict for {self.source}; name its place as state: …"
                )
            return self.apply(path, content, state, self._lookup(path, content))

    # --- recognition ------------------------------------------------------------------------------
    def _state(self, content: Any) -> dict[str, Tensor] | None:
        if "state" in self.given:
            found = (state_dict(_walk(content, place)) for place in listed(self.given["state"]))
            state = next((one for one in found if one is not None), None)
        else:
            state = find_state(content)
        if state is None:
            return None
        state = unwrapped(state)
        for begin in listed(self.given.get("strip", [])):
            state = {name.removeprefix(begin): value for name, value in state.items()}
        return state

    def _lookup(self, path: Path, content: Any) -> Lookup:
        names = tuple(listed(self.given.get("beside", [])))
        return Lookup(path, names, content if isinstance(content, Mapping) else {})

    def _matches(self, state: StateDict, lookup: Lookup) -> bool:
        wanted = self.given.get("match")
        for choice in wanted if isinstance(wanted, list) else [wanted]:
            if not isinstance(choice, Mapping):
                continue
            tensors = {n: pattern for n, pattern in choice.items() if n not in ("stated", "absent")}
            stated, absent = choice.get("stated", []), choice.get("absent", [])
            if (
                all(n in state and _fits(state[n], pattern) for n, pattern in tensors.items())
                and all(lookup.find(name) is not UNSTATED for name in stated)
                and not any(fnmatch.filter(state, pattern) for pattern in absent)
            ):
                return True
        return False

    # --- reading ----------------------------------------------------------------------------------
    def apply(
        self, path: Path, content: Any, state: dict[str, Tensor], lookup: Lookup
    ) -> ParsedCheckpoint:
        """Weights, configuration, task and history of a file of this format."""
        name, stated, values = self._tried(lookup)
        if name is None:
            return self._read(path, content, state, lookup, {})
        fitting: dict[Any, ParsedCheckpoint] = {}
        problems: list[CheckpointError] = []
        for value in values:
            try:
                found = self._read(path, content, state, lookup, {name: value})
                check_weights(path, found.config, found.weights)
                fitting[value] = found
            except CheckpointError as error:
                problems.append(error)
        if not fitting:
            raise problems[0]
        if len(fitting) == 1:
            return next(iter(fitting.values()))
        best, why, clear = _choose(path, stated, fitting)
        if not why:
            return fitting[best]
        why = f"{self.given['config'][name].get('why', '')}; {why}"
        assumed = {**fitting[best].assumed, name: Assumption(best, why, not clear)}
        return replace(fitting[best], assumed=assumed)

    def _tried(self, lookup: Lookup) -> tuple[str | None, Any, list[Any]]:
        """The setting of which `try` lists candidates, its stated value, and the candidates."""
        for name, entry in self.given.get("config", {}).items():
            if isinstance(entry, Mapping) and "try" in entry:
                stated = lookup.value(self.source, name, entry, {})
                return str(name), stated, list(entry["try"])
        return None, UNSTATED, []

    def _read(
        self,
        path: Path,
        content: Any,
        state: dict[str, Tensor],
        lookup: Lookup,
        chosen: Mapping[str, Any],
    ) -> ParsedCheckpoint:
        assumed: dict[str, Assumption] = {}
        fields: dict[str, Any] = {}
        for name, entry in self.given.get("config", {}).items():
            if name in chosen:
                fields[name] = chosen[name]
                continue
            fields[name] = lookup.value(self.source, name, entry, assumed)
            if fields[name] is UNSTATED:
                asked = listed(entry.get("from", [])) if isinstance(entry, Mapping) else []
                wanted = listed(self.given.get("beside", "cfg.json"))
                raise CheckpointError(
                    f"{path}: nothing states {name} ({' or '.join(asked)}); expected it in the "
                    f"file or beside it, in {' or '.join(place_of(path, one) for one in wanted)}"
                )
        heads = fields.get("n_heads")
        weights = self.rename(path, state, fields)
        config = self._config(path, weights, fields)
        if getattr(config, "attn_only", False):
            assumed.pop("act_fn", None)
        made_up = [
            str(name)
            for name, entry in self.given["weights"].items()
            if isinstance(entry, Mapping) and "constant" in entry and re.search(r"\bln", str(name))
        ]
        if made_up:
            why = f"the mapping writes {', '.join(made_up)}; the file has no such norm"
            assumed["norms"] = Assumption("made up", why)
        lookup = replace(lookup, config=config, weights=weights)
        task, parameters = self._task(lookup, assumed)
        split = self._split(lookup) if task else None
        step, metrics = training_metadata(content)
        names = self.given.get("metrics", {})
        metrics |= {
            ours: value
            for ours, theirs in names.items()
            if isinstance(value := lookup.find(str(theirs)), int | float)
        }
        inside = {name: _walk(content, name) for name in ("config", "model_config", "data_config")}
        shown = {name: plain_values(v) for name, v in inside.items() if isinstance(v, Mapping)}
        if not shown and lookup.beside:
            shown = {"config": plain_values(lookup.beside[0])}
            if "model_type" in lookup.beside[0]:  # of transformers
                shown["model_type"] = lookup.beside[0]["model_type"]
        return ParsedCheckpoint(
            format=self.name,
            config=config,
            weights=weights,
            task=task,
            parameters=parameters,
            step=checked_seed(self._value("step", lookup)) if "step" in self.given else step,
            metrics=metrics,
            seed=split.seed if split else checked_seed(self._value("seed", lookup)),
            split=split,
            assumed=assumed,
            extra=shown,
            reshape=None
            if heads is None
            else lambda other: self._weights(path, state, {**fields, "n_heads": other.n_heads}),
            series={
                at: partial(self._weights, path, self._state(then) or {}, fields)
                for at, then in saved_states(content).items()
            },
        )

    def _value(self, name: str, lookup: Lookup) -> Any:
        return lookup.value(self.source, name, self.given.get(name, UNSTATED), {})

    def _weights(self, path: Path, state: StateDict, fields: Mapping[str, Any]) -> StateDict:
        with _refusing(self.source):
            weights = self.rename(path, state, fields)
            self._config(path, weights, fields)
            return weights

    def rename(self, path: Path, state: StateDict, fields: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of `state` under our names and in our shapes.

        fields: of the configuration; the number of heads and their width cut tensors apart.
        """
        tracked = TrackedStateDict(state)
        weights: dict[str, Tensor] = {}
        written = 0
        axes = {"head": fields.get("n_heads"), "d_head": fields.get("d_head"), "qkv": 3}
        entries = [
            list(expanded(str(ours), {"from": entry} if isinstance(entry, str) else entry))
            for ours, entry in self.given["weights"].items()
        ]
        layers = layers_of((one for some in entries for _, one in some), state)
        for some in entries:
            for name, one in some:
                weights |= tensors_of(path, tracked, name, one, axes, layers)
                written += weights[name].numel() if "constant" in one else 0
                if written > MAX_CONSTANT:
                    raise CheckpointError(
                        f"{self.source}: writes constants of more than {MAX_CONSTANT:,} numbers"
                    )
            queries = weights.get("blocks.0.attn.W_Q")
            if queries is not None and queries.dim() == 3:
                axes |= {"head": queries.shape[0], "d_head": queries.shape[2]}
        if not weights:
            raise CheckpointError(f"{path}: has none of the tensors that {self.source} names")
        for pattern in listed(self.given.get("ignore", [])):
            tracked.asked |= set(fnmatch.filter(state, pattern))
        tracked.refuse_the_rest(path, f"the mapping {self.source} has no place for")
        return weights

    def _config(self, path: Path, weights: dict[str, Tensor], fields: Mapping[str, Any]) -> Any:
        """The configuration that the tensors and `fields` describe; parameters that nothing names
        (biases, positions) are filled in with zeros.
        """
        kind = self.given.get("architecture", "transformer")
        shapes = {"transformer": transformer_config, "pair-network": _pair_network}
        if kind not in shapes:
            raise CheckpointError(
                f"{self.source}: architecture {kind!r}: expected {' or '.join(shapes)}"
            )
        try:
            return shapes[kind](path, weights, fields)
        except (KeyError, IndexError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{path}: {self.source} gives no {error}") from error

    # --- task -------------------------------------------------------------------------------------
    def _task(
        self, lookup: Lookup, assumed: dict[str, Assumption]
    ) -> tuple[str | None, dict[str, Any]]:
        """The first task whose fields are all stated, with its parameters."""
        given = self.given.get("task")
        for choice in given if isinstance(given, list) else [given]:
            if not isinstance(choice, Mapping):
                continue
            when = choice.get("when", {})
            if any(lookup.find(str(name)) != value for name, value in when.items()):
                continue
            taken: dict[str, Assumption] = {}
            try:
                values = {
                    str(name): lookup.value(self.source, f"task.{name}", entry, taken)
                    for name, entry in choice.items()
                    if name != "when"
                }
            except CheckpointError:  # a task that mechint does not have
                continue
            if UNSTATED in values.values() or not isinstance(values.get("name"), str):
                continue
            if ANSWERS in values.values():
                values, taken["task"] = _with_answers(values, lookup)
            # "task" stands for the task's name, and others for its parameters
            assumed |= {
                "task" if name == "task.name" else name.removeprefix("task."): item
                for name, item in taken.items()
            }
            values = {name: value for name, value in values.items() if value is not None}
            return values.pop("name", None), values
        return None, {}

    def _split(self, lookup: Lookup) -> SplitRule | None:
        given = self.given.get("split")
        if not given:
            return None
        rule, seed, fraction = (
            lookup.value(self.source, name, given.get(name), {})
            for name in ("rule", "seed", "fraction")
        )
        seed = checked_seed(seed)
        if rule not in PERMUTATIONS or seed is None or not isinstance(fraction, float):
            return None
        return SplitRule(rule, seed, fraction)


@contextlib.contextmanager
def _refusing(source: str) -> Iterator[None]:
    """CheckpointError where what a file from outside states breaks what carries it out, in one of
    many ways (a list where a name is meant is a TypeError, say).
    """
    try:
        yield
    except (MechintError, MemoryError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error, 120)}"
        raise CheckpointError(f"{source}: cannot be carried out: {said}") from error


def load_mapping(source: str | Path | Mapping[str, Any]) -> Mapped:
    """The mapping in a YAML file, or one given as a mapping.

    Raises:
        CheckpointError: the file is missing or damaged, or holds a key that no mapping has.
    """
    if isinstance(source, Mapping):
        return Mapped("the mapping", source)
    given = read_yaml(source, CheckpointError)
    if not isinstance(given, Mapping):
        got = "there is no such file" if given is None else f"holds a {type(given).__name__}"
        raise CheckpointError(f"{source}: {got}, expected a mapping file")
    with _refusing(str(source)):
        return Mapped(str(source), given)


def mapping_beside(path: Path) -> Mapped | None:
    """The mapping.yaml in the folder of `path`; None where there is none that names weights."""
    place = (path if path.is_dir() else path.parent) / FILE
    given = read_yaml(place, CheckpointError)
    named = isinstance(given, Mapping) and "weights" in given
    with _refusing(str(place)):
        return Mapped(str(place), given) if named else None


@cache
def builtin_mappings() -> tuple[Mapped, ...]:
    """The mappings that mechint brings, in the order of their names."""
    return tuple(
        Mapped(file.stem, load_mapping(file).given) for file in sorted(BUILTIN.glob("*.yaml"))
    )


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A checkpoint of one of the formats in ``mechint/checkpoints/mappings``."""
    if not isinstance(content, Mapping) or content.get("format") == "mechint":
        return None
    found = (mapping(path, content) for mapping in builtin_mappings())
    return next((parsed for parsed in found if parsed is not None), None)


def _with_task_that_fits(path: Path, parsed: ParsedCheckpoint) -> ParsedCheckpoint:
    """`parsed` without the task that its configuration names, where the model does not fit it."""
    if parsed.task is None:
        return parsed
    try:
        fit(path, parsed, choose_task(path, parsed, None, {}))
    except CheckpointError as error:
        said = str(error).removeprefix(f"{path}: ")
        why = f"what its configuration says does not fit: {said}"
        assumed = {**parsed.assumed, "task": Assumption(None, why)}
        return replace(parsed, task=None, parameters={}, split=None, assumed=assumed)
    return parsed


# --- values ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Lookup:
    """Values of the file, of the configurations beside it and, as ``$name``, of the model."""

    path: Path
    names: tuple[str, ...]
    content: Mapping[str, Any]
    config: Any = None
    weights: StateDict = field(default_factory=dict)

    @cached_property
    def beside(self) -> Sequence[Mapping[str, Any]]:
        """The configurations beside the file."""
        return configurations(self.path, self.names)

    def find(self, name: str) -> Any:
        """The value at the dotted `name`, `UNSTATED` where nothing has it."""
        if name == "$answers":
            return ANSWERS
        if name == "$path":
            return "/".join(self.path.parts[-2:])
        if name.startswith("$"):
            return getattr(self.config, name[1:], UNSTATED)
        for given in (self.content, *self.beside):
            value = _walk(given, name)
            if value is not UNSTATED and not isinstance(value, Tensor):
                return value
        return UNSTATED

    def value(self, source: str, name: str, entry: Any, assumed: dict[str, Assumption]) -> Any:
        """The value of an entry of `config`, `task` or `split`: itself, or looked up.

        A default that states its reason is added to `assumed`.
        """
        if not isinstance(entry, Mapping):
            return entry
        _check_keys(source, name, entry, VALUE_KEYS)
        for place in listed(entry.get("from", [])):
            stated = self.find(place)
            value = _translated(entry, stated)
            if value is not UNSTATED:
                return value
            if stated is not UNSTATED and stated is not None and "try" not in entry:
                known = entry.get("values") or entry.get("contains") or {}
                raise CheckpointError(
                    f"{self.path}: {name}={stated!r} is not served; expected one of "
                    f"{', '.join(map(str, known))}"
                )
        if "default" not in entry:
            return UNSTATED
        known = any(self.find(str(place)) is not UNSTATED for place in entry.get("unless", []))
        if "why" in entry and not known:
            assumed[name] = Assumption(entry["default"], str(entry["why"]))
        return entry["default"]


def _translated(entry: Mapping[str, Any], value: Any) -> Any:
    """A value found under the name of `entry` in our terms; `UNSTATED` where it has none there."""
    if value is UNSTATED or value is None:
        return UNSTATED
    if "values" in entry:
        known = {_key(theirs): ours for theirs, ours in dict(entry["values"]).items()}
        return known.get(_key(value), UNSTATED)
    if "contains" in entry:
        text = re.sub(r"\s", "", str(value)[:1000])
        return next((v for part, v in dict(entry["contains"]).items() if part in text), UNSTATED)
    if "format" in entry:
        return str(entry["format"]).replace("{}", str(value)[:100])
    return value


def _key(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)[:1000]


def _walk(value: Any, name: str) -> Any:
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return UNSTATED
        value = value[part]
    return value


def _with_answers(values: Mapping[str, Any], lookup: Lookup) -> tuple[dict[str, Any], Assumption]:
    """`values` with the multiplication table that the model answers with, for groups whose order
    of elements is recorded nowhere; no task where its answers are not a group's.
    """
    unknown = f"the order of the elements of {values.get('group')} is not recorded"
    n = lookup.config.d_vocab_out
    if n > MAX_ORDER:
        return {}, Assumption(None, f"{unknown}, and the group is too large to be read off")
    model = build_model(
        Path("the model"), ParsedCheckpoint(config=lookup.config, weights=lookup.weights)
    )
    last = lookup.config.d_vocab - 1 if lookup.config.n_ctx == 3 else None
    try:
        table, differing = group_table(answers(model.eval(), n, last))
    except DataError as error:
        return {}, Assumption(
            None, f"{unknown}, and the model's answers are not a group's ({error})"
        )
    noted = f"; {differing} of its answers are not that group's" if differing else ""
    given = {name: table if value is ANSWERS else value for name, value in values.items()}
    return given, Assumption(
        "the multiplication table that the model answers with", unknown + noted
    )


def _check_keys(source: str, what: str, given: Any, known: Sequence[str]) -> None:
    wrong = [str(key) for key in given if key not in known] if isinstance(given, Mapping) else []
    if wrong:
        raise CheckpointError(
            f"{source}: {what} has no {wrong[0]!r}; expected some of {', '.join(known)}"
        )


def _fits(value: Tensor, pattern: Any) -> bool:
    """Return whether a tensor has the axes of `pattern`: a name is any size, a number that size.

    >>> import torch
    >>> _fits(torch.zeros(2, 5), "2 d_model"), _fits(torch.zeros(3, 5), "2 d_model")
    (True, False)
    """
    axes = str(pattern).split()
    sizes = zip(axes, value.shape, strict=False)
    return len(axes) == value.dim() and all(
        not axis.isdigit() or int(axis) == size for axis, size in sizes
    )


# --- architectures --------------------------------------------------------------------------------
def transformer_config(
    path: Path, weights: dict[str, Tensor], fields: Mapping[str, Any]
) -> ModelConfig:
    """Sizes of a transformer from its tensors; positions and biases that lack become zero, and keys
    and values that several heads share are repeated for each of them.
    """
    d_vocab, d_model = weights["embed.W_E"].shape
    n_heads, _, d_head = weights["blocks.0.attn.W_Q"].shape
    for name in [name for name in weights if name.endswith(SHARED)]:
        shared = len(weights[name])
        if n_heads % max(shared, 1):
            raise CheckpointError(f"{path}: {shared} heads of {name} for {n_heads} heads of W_Q")
        if shared < n_heads:
            weights[name] = weights[name].repeat_interleave(n_heads // shared, 0)
    biases = [name for name in weights if re.search(r"\.(b|b_\w+)$", name)]
    mlp = next((value for name, value in weights.items() if name.endswith("mlp.W_in")), None)
    positions = weights.get("pos_embed.W_pos")
    sizes = {
        "n_layers": layer_count(weights),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": None if mlp is None else mlp.shape[1],
        "d_vocab": d_vocab,
        "d_vocab_out": weights["unembed.W_U"].shape[1],
        "attn_only": mlp is None,
        "normalization_type": "LN" if "blocks.0.ln1.w" in weights else None,
        "use_bias": not all(name.endswith(QKV_BIASES) for name in biases),
        "use_qk_norm": "blocks.0.attn.q_norm.w" in weights,
    }
    if biases and not sizes["use_bias"]:
        sizes["qkv_bias"] = True
    if positions is not None:
        sizes["n_ctx"] = positions.shape[0]
    elif "n_ctx" not in fields:
        raise CheckpointError(f"{path}: has no positions; state n_ctx in the mapping")
    config = settings(ModelConfig, {**sizes, **fields}, path)
    if config.normalization_type in ("LN", "RMS") and "ln_final.w" not in weights:
        raise CheckpointError(
            f"{path}: has no final norm (ln_final.w), and none is made up; a module without one, "
            "or with norms after its layers, is given by mechint.wrap (docs/pytorch-layers.md)"
        )
    fill_zeros(config, weights)
    return config


def _pair_network(
    path: Path, weights: dict[str, Tensor], fields: Mapping[str, Any]
) -> PairNetworkConfig:
    """Sizes of a network of two operands from its tensors."""
    embedding = weights["embed.W_E"]
    widths = []
    while (name := f"layers.{len(widths)}.W") in weights:
        widths.append(weights[name].shape[1])
    sizes = {
        "d_vocab": embedding.shape[0],
        "d_embed": embedding.shape[1],
        "d_vocab_out": weights["unembed.W_U"].shape[1],
        "widths": tuple(widths),
        "separate": "embed_y.W_E" in weights,
        "use_bias": "layers.0.b" in weights,
    }
    return settings(PairNetworkConfig, {**sizes, **fields}, path)


def _accuracy(path: Path, parsed: ParsedCheckpoint) -> float:
    """Accuracy on the task that the file names, by which one of several readings is chosen; 0 where
    it names none.

    Raises:
        CheckpointError: the weights do not fit the reading.
    """
    subject = _subject(path, parsed)
    return 0.0 if subject is None else min(subject.accuracy().values())


def _subject(path: Path, parsed: ParsedCheckpoint) -> Subject | None:
    """The model with the task that the file names; None where it names none."""
    from mechint.subject import Subject

    task = choose_task(path, parsed, None, {})
    model = build_model(path, fit(path, parsed, task))
    return None if task is None else Subject(model, task)


def _choose(
    path: Path, stated: Any, fitting: Mapping[Any, ParsedCheckpoint]
) -> tuple[Any, str, bool]:
    """The reading that gives the losses that the file states; else the stated one, unless it
    answers less than half; else the only one that answers more. Then why, in words ("" of what is
    stated), and whether that decides.
    """
    beside = {value: _beside_stated_losses(path, found) for value, found in fitting.items()}
    losses = {value: held for value, held in beside.items() if held is not None}
    least = min([SAME_LOSS, *(apart for _, apart, _ in losses.values())])
    near = [value for value, (_, apart, _) in losses.items() if apart == least]
    near = [value for value in near if len(near) == 1 or losses[value][2] < WHOLE] or near
    if len(near) == 1:
        shown = ", ".join(f"{ours:.3g} as {value}" for value, (ours, *_) in losses.items())
        return near[0], f"the losses that the file states are those of it: {shown}", True
    scores = {value: _accuracy(path, found) for value, found in fitting.items()}
    best = max(scores, key=lambda value: scores[value])
    if stated in scores and scores[stated] >= min(ANSWERED, scores[best] - AS_GOOD):
        return stated, "", True
    shown = ", ".join(f"{score:.0%} as {value}" for value, score in scores.items())
    return best, f"accuracy {shown}", sum(score >= ANSWERED for score in scores.values()) < 2


def _beside_stated_losses(
    path: Path, parsed: ParsedCheckpoint
) -> tuple[float, float, float] | None:
    """Loss on all examples; its distance from what lies between the losses that the file states
    for training and test examples, as a logarithm; and how far from a whole number the training
    examples are of which it is their mean. None where the file states none.
    """
    stated = [parsed.metrics.get(name) for name in ("train_loss", "test_loss")]
    train, test = (one if isinstance(one, float) else 0.0 for one in stated)
    subject = _subject(path, parsed) if min(train, test) > 0 else None
    if subject is None:
        return None
    ours = max(sum(subject.loss().values()), TINY)
    apart = max(0.0, math.log(min(train, test) / ours), math.log(ours / max(train, test)))
    count = len(subject.data) * (ours - test) / (train - test) if train != test else 0.0
    return ours, apart, abs(count - round(count))
