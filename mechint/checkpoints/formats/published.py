"""Files of published grokking code, nanoGPT's and attention written as a module per head.

Each is a table of names and a function that looks up, in the file and in configurations beside it,
what the tensors do not show.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.configurations import OPERATIONS, configurations, place_of
from mechint.checkpoints.group_answers import answers, group_table
from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    SplitRule,
    StateDict,
    checked_seed,
    find_state,
    plain_values,
)
from mechint.checkpoints.renaming import (
    OUT,
    QKV,
    QKV_BIAS,
    ROWS,
    NameTable,
    Table,
    pair_config,
)
from mechint.checkpoints.weights import build_model, check_weights, choose_task, fit
from mechint.errors import CheckpointError, DataError
from mechint.subject import Subject

BESIDE = ("config_{id}.json", "{stem}.json", "cfg.json", "summary_metrics.json")
"""Configurations that these projects keep beside a checkpoint."""

AS_GOOD = 0.01
"""Accuracy by which another reading must exceed the stated one to replace it."""

SAME_LOSS = math.log(1.1)
"""A reading whose loss is at most this far from those that the file states is the file's own."""
TINY = 1e-300

WHOLE = 0.05
"""Distance from a whole number of training examples that the rounding of a loss makes."""

ANSWERED = 0.5
"""Accuracy from which several readings cannot be told apart by their answers."""

MAX_ONE_HOT = 8192
MAX_ORDER = 1024
"""Elements of a group whose table is read off the model."""

ACTIVATIONS = {"ReLU": "relu", "relu": "relu", "GeLU": "gelu", "GELU": "gelu", "gelu": "gelu"}
FLAG = {"0": False, "1": True}
MASKS = ["*.attn.mask"]
OPERATION_OF = {
    "(x[0]+x[1])%": "add",
    "(x[0]-x[1])%": "subtract",
    "(x[0]*x[1])%": "multiply",
    "(x[0]**2+x[1]**2)%": "x^2+y^2",
    "(x[0]*x[0]+x[1]*x[1])%": "x^2+y^2",
    "(x[0]**2+x[0]*x[1]+x[1]**2)%": "x^2+xy+y^2",
}
"""Part of the text of a function of the pizza code → operation."""

GROUPS = {"DihedralGroup": "D", "SymmetricGroup": "S", "AlternatingGroup": "A"}
REPEATS = {
    "distinct": Assumption(
        True,
        "the file does not say whether a token may recur in a piece; the published model is right "
        "more often where none does",
    ),
    "placement": Assumption(
        None,
        "random places without overlap among random tokens; the file gives the sizes of the "
        "repeats, not how they are placed",
    ),
}
UNKNOWN = object()
EQUALS = {3: True, 2: False}
"""Positions of a prompt → whether an equals sign ends it."""

NORMS = (("w", "weight"), ("b", "bias"))


def each(ours: str, theirs: str, pattern: str = "", names: Sequence[tuple[str, str]] = ()) -> Table:
    """One entry for each pair of `names`, which stand at * in ours and in theirs."""
    return {ours.replace("*", a): (theirs.replace("*", b), pattern) for a, b in names}


def same(*names: str) -> Table:
    """Entries of tensors with one name in both."""
    return {name: name for name in names}


SPLIT = tuple(zip("QKV", "QKV", strict=True))
LEFT: Table = {
    "embed.W_E": ("embed.W_E", "d_model d_vocab -> d_vocab d_model"),
    **each(
        "blocks.{layer}.attn.W_*",
        "blocks.{layer}.attn.W_*",
        "head d_head d_model -> head d_model d_head",
        SPLIT,
    ),
    "blocks.{layer}.attn.W_O": ("blocks.{layer}.attn.W_O", OUT),
    "blocks.{layer}.mlp.W_in": ("blocks.{layer}.mlp.W_in", ROWS),
    "blocks.{layer}.mlp.W_out": ("blocks.{layer}.mlp.W_out", ROWS),
    **same("pos_embed.W_pos", "blocks.{layer}.mlp.b_in", "blocks.{layer}.mlp.b_out", "unembed.W_U"),
}
"""Weights of the progress-measures and the pizza code, to the left of what they act on."""

LENS: Table = same(
    *("embed.W_E", "pos_embed.W_pos", "unembed.W_U", "unembed.b_U"),
    *(f"blocks.{{layer}}.attn.{kind}_{part}" for kind in "Wb" for part in "QKVO"),
    *(f"blocks.{{layer}}.mlp.{kind}_{part}" for kind in "Wb" for part in ("in", "out")),
)
NANOGPT: Table = {
    "embed.W_E": "wte.weight",
    "pos_embed.W_pos": "wpe.weight",
    **each("blocks.{layer}.ln1.*", "h.{layer}.ln_1.*", names=NORMS),
    **each("blocks.{layer}.ln2.*", "h.{layer}.ln_2.*", names=NORMS),
    "blocks.{layer}.attn.W_QKV": ("h.{layer}.attn.c_attn.weight", QKV),
    "blocks.{layer}.attn.b_QKV": ("h.{layer}.attn.c_attn.bias", QKV_BIAS),
    "blocks.{layer}.attn.W_O": ("h.{layer}.attn.c_proj.weight", OUT),
    "blocks.{layer}.attn.b_O": "h.{layer}.attn.c_proj.bias",
    "blocks.{layer}.mlp.W_in": ("h.{layer}.mlp.c_fc.weight", ROWS),
    "blocks.{layer}.mlp.b_in": "h.{layer}.mlp.c_fc.bias",
    "blocks.{layer}.mlp.W_out": ("h.{layer}.mlp.c_proj.weight", ROWS),
    "blocks.{layer}.mlp.b_out": "h.{layer}.mlp.c_proj.bias",
    **each("ln_final.*", "ln_f.*", names=NORMS),
    "unembed.W_U": ("lm_head.weight", ROWS),
}
SEPARATE: Table = {
    "embed.W_E": "embed.weight",
    "pos_embed.W_pos": "pos_embed.weight",
    **each(
        "blocks.{layer}.attn.W_*",
        "layers.{layer}.heads.{head}.W_*.weight",
        "head d_head d_model -> head d_model d_head",
        SPLIT,
    ),
    **each("blocks.{layer}.attn.b_*", "layers.{layer}.heads.{head}.W_*.bias", names=SPLIT),
    "blocks.{layer}.attn.W_O": ("layers.{layer}.W_O.weight", OUT),
    "blocks.{layer}.attn.b_O": "layers.{layer}.W_O.bias",
    "unembed.W_U": ("unembed.weight", ROWS),
    "unembed.b_U": "unembed.bias",
}
LINEAR: Table = {
    "embed.W_E": "embed.weight",
    "embed_y.W_E": "embed2.weight",
    "layers.{layer}.W": ("l{layer}.weight", ROWS),
    "layers.{layer}.b": "l{layer}.bias",
    "unembed.W_U": ("unembed.weight", ROWS),
}
PAIRS: Table = {"embed.W_E": "W_x", "embed_y.W_E": "W_y", "layers.0.W": "W", "unembed.W_U": "W_U"}
ONE_HOT: Table = {
    "embed.W_E": "identity",
    "layers.0.W": ("mlp.W_in", ROWS),
    "unembed.W_U": ("mlp.W_out", ROWS),
}


class Stated:
    """Values that a file, or else a configuration beside it, states."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self.path, self.content = path, content

    @cached_property
    def beside(self) -> Sequence[Mapping[str, Any]]:
        """The configurations beside the file."""
        return configurations(self.path, BESIDE)

    def get(self, *names: str, default: Any = None) -> Any:
        """The first value under one of the dotted `names`, else `default`."""
        for name in names:
            for given in (self.content, *self.beside):
                value: Any = given
                for part in name.split("."):
                    value = value.get(part) if isinstance(value, Mapping) else None
                if value is not None and not isinstance(value, Tensor):
                    return value
        return default

    def ours(self, known: Mapping[Any, Any], *names: str, default: Any = UNKNOWN) -> Any:
        """Ours for the value under one of `names`: `UNKNOWN` where `known` has none, `default`
        where nothing states it.
        """
        value = self.get(*names)
        key = str(int(value)) if isinstance(value, bool) else str(value)[:1000]
        return default if value is None else known.get(key, UNKNOWN)

    def activation(self, *names: str) -> str:
        """The activation function under one of `names`, ReLU where nothing states it.

        Raises:
            CheckpointError: it is not one of `ACTIVATIONS`.
        """
        name = self.ours(ACTIVATIONS, *names, default="relu")
        if name is UNKNOWN:
            raise CheckpointError(
                f"{self.path}: act_fn={self.get(*names)!r} is not served; expected one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        return name


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A checkpoint of one of `FORMATS`."""
    state = find_state(content)
    if state is None or content.get("format") == "mechint":
        return None
    stated = Stated(path, content)
    for reader, name in FORMATS.items():
        parsed = reader(stated, state)
        if parsed is not None:
            inside = {part: content.get(part) for part in ("config", "model_config", "data_config")}
            shown = {part: plain_values(v) for part, v in inside.items() if isinstance(v, Mapping)}
            if not shown and stated.beside:
                shown = {"config": plain_values(stated.beside[0])}
            return _with_task_that_fits(path, replace(parsed, format=name, extra=shown))
    return None


def _with_task_that_fits(path: Path, parsed: ParsedCheckpoint) -> ParsedCheckpoint:
    """`parsed` without the task that its configuration names, where the model does not fit it."""
    try:
        fit(path, parsed, choose_task(path, parsed, None, {}))
    except CheckpointError as error:
        said = str(error).removeprefix(f"{path}: ")
        why = f"what its configuration says does not fit: {said}"
        assumed = {**parsed.assumed, "task": Assumption(None, why)}
        return replace(parsed, task=None, parameters={}, split=None, assumed=assumed)
    return parsed


def has_matrices(state: StateDict, *names: str) -> bool:
    """Return whether every one of `names` is a matrix of `state`."""
    return all(name in state and state[name].dim() == 2 for name in names)


def _with_task(
    parsed: ParsedCheckpoint,
    task: str,
    parameters: Mapping[str, Any],
    assumed: Mapping[str, Assumption] | None = None,
) -> ParsedCheckpoint:
    """`parsed` with a task; without one where a parameter is `UNKNOWN`. None is left out."""
    if UNKNOWN in parameters.values():
        return parsed
    known = {name: value for name, value in parameters.items() if value is not None}
    return replace(
        parsed, task=task, parameters=known, assumed={**parsed.assumed, **(assumed or {})}
    )


# --- transformers ---------------------------------------------------------------------------------
def _nanogpt(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """nanoGPT's ckpt.pt; q, k and v are one matrix."""
    if not has_matrices(_nanogpt_names(state), "wte.weight") or "model_args" not in stated.content:
        return None
    heads = stated.get("model_args.n_head")
    if heads is None:
        raise CheckpointError(f"{stated.path}: nothing states n_heads (model_args.n_head)")
    fields = {"n_heads": heads, "normalization_type": "LN", "act_fn": "gelu"}
    fields["dropout"] = stated.get("model_args.dropout", default=0.0)
    parsed = NameTable(NANOGPT, adapt=_nanogpt_names).parsed(
        stated.path, stated.content, state, fields
    )
    why = "the exact GELU, nanoGPT's since June 2023; older files used gelu_new and do not say so"
    return replace(parsed, assumed={"act_fn": Assumption("gelu", why)})


def _nanogpt_names(state: StateDict) -> StateDict:
    names = {name.removeprefix("transformer."): value for name, value in state.items()}
    return {"lm_head.weight": names["wte.weight"], **names} if "wte.weight" in names else names


def _pizza(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Transformers of Zhong et al. 2023, The Clock and the Pizza, whose attention reads both ways,
    in part constantly.
    """
    if not has_matrices(state, "embed.W_E", "blocks.0.attn.W_O"):
        return None
    rate = stated.get("attn_coeff")
    two = has_matrices(state, "pos_embed.W_pos") and len(state["pos_embed.W_pos"]) == 2
    if rate is None and (not two or fnmatch.filter(state, "attn_blocks.*")):
        return None
    if rate is None:
        beside = " or ".join(place_of(stated.path, name) for name in BESIDE[:2])
        raise CheckpointError(
            f"{stated.path}: nothing states attention_rate (attn_coeff); expected it in the file "
            f"or beside it, in {beside}"
        )
    fields = {"attention_dir": "bidirectional", "attention_rate": rate}
    fields["act_fn"] = stated.activation("act_fn")
    parsed = NameTable(LEFT, ignore=MASKS).parsed(stated.path, stated.content, state, fields)
    funcs = re.sub(r"\s", "", str(stated.get("funcs"))[:1000])
    return _with_task(
        replace(parsed, step=checked_seed(stated.get("epoch"))),
        "modular-arithmetic",
        {
            "p": stated.get("C", default=UNKNOWN),
            "operation": next(
                (ours for part, ours in OPERATION_OF.items() if part in funcs), UNKNOWN
            ),
            "equals": stated.ours(FLAG, "eqn_sign", default=False),
            "separate_vocabulary": stated.ours(FLAG, "diff_vocab", default=False),
            "train_fraction": stated.get("frac"),
        },
    )


def _progress_measures(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Nanda et al. 2023, Progress measures for grokking; models of attention alone, too."""
    if not has_matrices(_of_blocks(state), "embed.W_E", "unembed.W_U", "blocks.0.attn.W_O"):
        return None
    assumed = {
        "act_fn": Assumption(
            "relu", "the file names no activation function; relu is the default of that code"
        ),
        "attention_dir": Assumption(
            "causal", "the file does not say; that code masks later positions"
        ),
    }
    fields = {
        "attention_dir": "causal",
        "act_fn": stated.activation("config.act_type", "model_config.act_type"),
    }
    layout = NameTable(LEFT, ignore=MASKS, adapt=_of_blocks)
    parsed = layout.parsed(stated.path, stated.content, state, fields)
    if parsed.config.attn_only:
        assumed.pop("act_fn")
    split = _split("python-shuffle", stated, "config.seed", "config.frac_train")
    parsed = replace(
        parsed,
        seed=checked_seed(stated.get("config.seed", "model_config.seed")),
        split=split,
        assumed={} if stated.get("config", "model_config") is not None else assumed,
    )
    if stated.get("config.p") is not None and stated.get("config.fn_name") is not None:
        parameters = {
            "p": stated.get("config.p"),
            "operation": stated.ours(OPERATIONS, "config.fn_name"),
            "equals": EQUALS.get(parsed.config.n_ctx, UNKNOWN),
            "train_fraction": stated.get("config.frac_train"),
        }
        return _with_task(parsed, "modular-arithmetic", parameters)
    names = {
        "n": "vocab_size",
        "length": "subseq_len",
        "copies": "num_repeats",
        "context": "seq_len",
    }
    sizes = {
        ours: stated.get(f"data_config.{theirs}", default=UNKNOWN) for ours, theirs in names.items()
    }
    return _with_task(
        parsed, "repeated-tokens", {**sizes, "held_out": False, "distinct": True}, REPEATS
    )


def _of_blocks(state: StateDict) -> StateDict:
    """`state` with the blocks of a model of attention alone under the names of others."""
    if any(name.startswith("blocks.") for name in state):
        return state
    return {re.sub(r"^attn_blocks\.", "blocks.", name): value for name, value in state.items()}


def _rep_theory(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Transformers of Chughtai et al. 2023, A Toy Model of Universality."""
    if not has_matrices(state, "x_embed", "y_embed", "embed.W_E"):
        return None
    fields = {"act_fn": "relu", "attention_dir": "causal"}
    layout = NameTable(LENS, ignore=["x_embed", "y_embed", "*.mask", "*.IGNORE"])
    return _of_group(stated, layout.parsed(stated.path, stated.content, state, fields))


def _separate_heads(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Attention written as one module per head, as in the Bau Lab's monthly puzzles of 2026."""
    if not has_matrices(state, "layers.0.heads.0.W_Q.weight", "layers.0.W_O.weight"):
        return None
    defaults = {"act_fn": "relu", "attention_dir": "causal"}
    fields = {name: stated.get(name, default=value) for name, value in defaults.items()}
    layout = NameTable(SEPARATE, adapt=_embedded)
    parsed = layout.parsed(stated.path, stated.content, state, fields)
    assumed = {
        name: Assumption(value, "the file does not say")
        for name, value in defaults.items()
        if stated.get(name) is None and not (name == "act_fn" and parsed.config.attn_only)
    }
    return replace(parsed, assumed=assumed)


def _embedded(state: StateDict) -> StateDict:
    """`state` with its embedding as ``embed.weight``; another keeps its name, and is refused."""
    names = ("tok_embed.weight", "token_embed.weight", "embed.weight", "embed1.weight")
    first = next((name for name in names if name in state), None)
    return {"embed.weight" if name == first else name: value for name, value in state.items()}


# --- networks of two operands ---------------------------------------------------------------------
def _linear(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Models without attention (alpha to delta) of The Clock and the Pizza."""
    if not has_matrices(_embedded(state), "embed.weight", "l1.weight", "unembed.weight"):
        return None
    layout = NameTable(LINEAR, pair_config, adapt=_embedded)
    step = checked_seed(stated.get("epoch"))
    why = "x + y modulo the number of tokens, the only function of that code's linear models"

    def reading(join: str) -> ParsedCheckpoint:
        parsed = layout.parsed(stated.path, stated.content, state, {"join": join})
        parameters = {"p": parsed.config.d_vocab, "operation": "add", "equals": False}
        parameters["train_fraction"] = stated.get("frac")
        known = stated.get("model_type") is not None
        assumed = {} if known else {"task": Assumption("modular-arithmetic", why)}
        return _with_task(replace(parsed, step=step), "modular-arithmetic", parameters, assumed)

    joins = dict(zip("ABCDGX", ("add", "add", "each", "concat", "each", "add"), strict=True))
    return best_reading(
        stated.path,
        "join",
        stated.ours(joins, "model_type"),
        ("add", "each", "multiply", "concat"),
        reading,
        "the type that the file states does not decide; this reading answers most of x + y",
    )


def _pairs(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Networks of two operands of A Toy Model of Universality."""
    if not has_matrices(state, "W_x", "W_y", "W_U"):
        return None
    layout = NameTable(PAIRS, pair_config)

    def reading(join: str) -> ParsedCheckpoint:
        return _of_group(stated, layout.parsed(stated.path, stated.content, state, {"join": join}))

    why = "the tensors do not say"
    return best_reading(stated.path, "join", UNKNOWN, ("concat", "multiply"), reading, why)


def _one_hot(stated: Stated, state: StateDict) -> ParsedCheckpoint | None:
    """Modular arithmetic by one hidden layer that reads the sum of two one-hot vectors (arXiv
    2602.16849).
    """
    if not has_matrices(state, "mlp.W_in", "mlp.W_out"):
        return None
    if fnmatch.filter(state, "embed*") or fnmatch.filter(state, "attn*"):
        return None
    if (n := state["mlp.W_in"].shape[1]) > MAX_ONE_HOT:
        raise CheckpointError(
            f"{stated.path}: mlp.W_in of {n:,} tokens; expected at most {MAX_ONE_HOT:,}"
        )
    identity = torch.eye(n)
    layout = NameTable({**ONE_HOT, "embed.W_E": identity}, pair_config, ["mlp.basis"])
    functions = ("data.fn_name", "fn_name")
    why = "x + y modulo the number of tokens; the file names no function"
    place = "/".join(stated.path.parts[-2:])
    named = {"relu": ("ReLU", "relu"), "square": ("Quad", "quad", "square")}
    said = (act for act, parts in named.items() if any(part in place for part in parts))

    def reading(act: str) -> ParsedCheckpoint:
        fields = {"join": "add", "act_fn": act}
        parsed = layout.parsed(stated.path, stated.content, state, fields)
        parsed = _with_figures(stated, parsed, "epoch")
        parameters = {"p": parsed.config.d_vocab, "equals": False}
        parameters["operation"] = stated.ours(OPERATIONS, *functions, default="add")
        known = stated.get(*functions) is not None
        assumed = {} if known else {"task": Assumption("modular-arithmetic", why)}
        return _with_task(parsed, "modular-arithmetic", parameters, assumed)

    return best_reading(
        stated.path, "act_fn", next(said, UNKNOWN), tuple(named), reading, "the tensors do not say"
    )


# --- what several share ---------------------------------------------------------------------------
def _with_figures(stated: Stated, parsed: ParsedCheckpoint, step: str) -> ParsedCheckpoint:
    """`parsed` with the losses, accuracies and step that the file or what is beside it states."""
    metrics = {
        name: value
        for name in ("train_loss", "test_loss", "train_acc", "test_acc")
        if isinstance(value := stated.get(name, f"{name}uracy"), int | float)
    }
    metrics = {**parsed.metrics, **metrics}
    return replace(parsed, step=checked_seed(stated.get(step)), metrics=metrics)


def _split(rule: str, stated: Stated, seed: str, fraction: str) -> SplitRule | None:
    number, share = checked_seed(stated.get(seed)), stated.get(fraction)
    return (
        None if number is None or not isinstance(share, float) else SplitRule(rule, number, share)
    )


def _of_group(stated: Stated, parsed: ParsedCheckpoint) -> ParsedCheckpoint:
    """A file of the representation-theory code with the group that its configuration names."""
    split = _split("torch-randperm-or-sorted", stated, "seed", "frac_train")
    parsed = _with_figures(stated, parsed, "num_epochs")
    kind, n = stated.get("group"), stated.get("group_parameter", default=UNKNOWN)
    parameters = {
        "equals": EQUALS.get(parsed.config.n_ctx, UNKNOWN),
        "train_fraction": stated.get("frac_train"),
    }
    assumed: dict[str, Assumption] = {}
    name = "groups"
    if kind == "CyclicGroup":
        name, parameters = "modular-arithmetic", {"p": n, **parameters}
    elif kind in GROUPS and n is not UNKNOWN:
        parameters["group"] = f"{GROUPS[kind]}{str(n)[:100]}"
        if kind != "DihedralGroup":
            parameters["table"], assumed["task"] = _answered(parameters["group"], parsed)
    else:
        return parsed
    with_group = _with_task(parsed, name, parameters, assumed)
    if with_group.task is None:
        return replace(parsed, assumed={**parsed.assumed, **assumed})
    return replace(with_group, split=split, seed=None if split is None else split.seed)


def _answered(group: str, parsed: ParsedCheckpoint) -> tuple[Any, Assumption]:
    """The multiplication table that the model answers with, for groups whose order of elements is
    recorded nowhere; `UNKNOWN` where its answers are not a group's.
    """
    unknown = f"the order of the elements of {group} is not recorded"
    n = parsed.config.d_vocab_out
    if n > MAX_ORDER:
        why = f"{unknown}, and the group is too large to be read off"
        return UNKNOWN, Assumption(None, why)
    last = parsed.config.d_vocab - 1 if parsed.config.n_ctx == 3 else None
    model = build_model(Path("the model"), parsed).eval()
    try:
        table, differing = group_table(answers(model, n, last))
    except DataError as error:
        why = f"{unknown}, and the model's answers are not a group's ({error})"
        return UNKNOWN, Assumption(None, why)
    noted = f"; {differing} of its answers are not that group's" if differing else ""
    return table, Assumption(
        "the multiplication table that the model answers with", unknown + noted
    )


# --- which reading --------------------------------------------------------------------------------
def best_reading(
    path: Path,
    name: str,
    stated: Any,
    values: Sequence[str],
    reading: Callable[[str], ParsedCheckpoint],
    why: str,
) -> ParsedCheckpoint:
    """The file with setting `name` as the one of `values` that its tensors fit; of several, the one
    that gives the losses that the file states; else the stated one, unless it answers less than
    half; else the only one that answers more, which is then assumed.

    Raises:
        CheckpointError: the weights fit no reading.
    """
    fitting: dict[str, ParsedCheckpoint] = {}
    problems: list[CheckpointError] = []
    for value in values:
        try:
            parsed = reading(value)
            check_weights(path, parsed.config, parsed.weights)
            fitting[value] = parsed
        except CheckpointError as error:
            problems.append(error)
    if len(fitting) < 2:
        if not fitting:
            raise problems[0]
        return next(iter(fitting.values()))
    best, decided, clear = _choose(path, stated, fitting)
    if not decided:
        return fitting[best]
    assumed = {name: Assumption(best, f"{why}; {decided}", not clear), **fitting[best].assumed}
    return replace(fitting[best], assumed=assumed)


def _accuracy(path: Path, parsed: ParsedCheckpoint) -> float:
    """Accuracy on the task that the file names, by which one of several readings is chosen; 0 where
    it names none.
    """
    subject = _subject(path, parsed)
    return 0.0 if subject is None else min(subject.accuracy().values())


def _subject(path: Path, parsed: ParsedCheckpoint) -> Subject | None:
    """The model with the task that the file names; None where it names none."""
    task = choose_task(path, parsed, None, {})
    model = build_model(path, fit(path, parsed, task))
    return None if task is None else Subject(model, task)


def _choose(
    path: Path, stated: Any, fitting: Mapping[str, ParsedCheckpoint]
) -> tuple[str, str, bool]:
    """The best reading; why, in words ("" of what is stated); and whether that decides."""
    beside = {value: _beside_stated_losses(path, parsed) for value, parsed in fitting.items()}
    losses = {value: distances for value, distances in beside.items() if distances is not None}
    least = min([SAME_LOSS, *(apart for _, apart, _ in losses.values())])
    near = [value for value, (_, apart, _) in losses.items() if apart == least]
    near = [value for value in near if len(near) == 1 or losses[value][2] < WHOLE] or near
    if len(near) == 1:
        shown = ", ".join(f"{ours:.3g} as {value}" for value, (ours, *_) in losses.items())
        return near[0], f"the losses that the file states are those of it: {shown}", True
    scores = {value: _accuracy(path, parsed) for value, parsed in fitting.items()}
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
    train, test = (loss if isinstance(loss, float) else 0.0 for loss in stated)
    subject = _subject(path, parsed) if min(train, test) > 0 else None
    if subject is None:
        return None
    ours = max(sum(subject.loss().values()), TINY)
    apart = max(0.0, math.log(min(train, test) / ours), math.log(ours / max(train, test)))
    count = len(subject.data) * (ours - test) / (train - test) if train != test else 0.0
    return ours, apart, abs(count - round(count))


FORMATS: Mapping[Callable[[Stated, StateDict], ParsedCheckpoint | None], str] = {
    _nanogpt: "nanogpt",
    _one_hot: "one-hot",
    _linear: "pizza",
    _pizza: "pizza",
    _progress_measures: "progress-measures",
    _pairs: "rep-theory",
    _rep_theory: "rep-theory",
    _separate_heads: "separate-heads",
}
"""Reader → format, in the order in which they are asked."""
