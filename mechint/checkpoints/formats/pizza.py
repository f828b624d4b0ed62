"""Models of Zhong et al. 2023, The Clock and the Pizza: a state dict, and beside it a JSON file
with its configuration.

``model_X.pt`` goes with ``config_X.json``. Attention is
``attn_coeff * softmax + (1 - attn_coeff)``, and every position sees every other whatever
"attention_dir" says: their code has no mask. Inputs are ``x y``, with a last token ``=`` when
"eqn_sign", the second operand with tokens of its own when "diff_vocab". "funcs" is Python text; it
is compared with the functions known here, never evaluated. The train/test split was drawn without
a seed, so it is not known. The linear models are read by `pizza_linear`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.formats import pizza_linear
from mechint.checkpoints.formats.transposed import (
    activation_of,
    is_transposed,
    transpose_weights,
)
from mechint.checkpoints.reader import (
    ParsedCheckpoint,
    StateDict,
    plain_values,
    read_sibling_json,
    state_dict,
)
from mechint.errors import CheckpointError

OPERATIONS = {
    "x[0]+x[1]": "add",
    "x[0]-x[1]": "subtract",
    "x[0]*x[1]": "multiply",
    "x[0]**2+x[1]**2": "x^2+y^2",
    "x[0]*x[0]+x[1]*x[1]": "x^2+y^2",
    "x[0]**2+x[0]*x[1]+x[1]**2": "x^2+xy+y^2",
}


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A model of the pizza code; a transformer's JSON file must be beside it."""
    state = state_dict(content)
    if state is None:
        return None
    given = _configuration(path)
    if pizza_linear.is_linear(state):
        return pizza_linear.read(path, state, given or {})
    if is_transposed(state):
        return _transformer(path, state, given)
    if given is None:
        return None
    raise CheckpointError(
        f"{path}: a model of the pizza code that is neither its transformer nor its linear model"
    )


def _transformer(
    path: Path, state: StateDict, given: Mapping[str, Any] | None
) -> ParsedCheckpoint | None:
    if given is None:
        if state.get("pos_embed.W_pos", state["embed.W_E"]).shape[0] != 2:
            return None  # that code's inputs without "=" have two positions; nobody else's have
        wanted = " or ".join(place.name for place in _places(path))
        raise CheckpointError(
            f"{path}: weights of the pizza code without their configuration (attn_coeff); "
            f"expected {wanted} beside the file"
        )
    rate = given.get("attn_coeff")
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 <= rate <= 1:
        raise CheckpointError(
            f"{path}: its configuration is not usable: attn_coeff={rate!r}, expected 0 to 1"
        )
    config, weights = transpose_weights(
        path,
        state,
        activation_of(given, "act_fn"),
        attention_dir="bidirectional",
        attention_rate=float(rate),
    )
    parameters = _task(given)
    epoch = given.get("epoch")
    return ParsedCheckpoint(
        config=config,
        weights=weights,
        task="modular-arithmetic" if parameters else None,
        parameters=parameters,
        step=epoch if isinstance(epoch, int) else None,
        extra={"config": plain_values(given)},
    )


def _places(path: Path) -> list[Path]:
    """Where the configuration may lie."""
    own = path.with_name(f"config_{path.stem.removeprefix('model_')}.json")
    return [own, path.with_suffix(".json")]


def _configuration(path: Path) -> Mapping[str, Any] | None:
    for place in _places(path):
        found = read_sibling_json(place)
        if isinstance(found, Mapping) and {"attn_coeff", "runid", "model_type"} & set(found):
            return found
    return None


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of modular-arithmetic, or nothing when "funcs" is not a function known here."""
    text = re.sub(r"\s", "", str(given.get("funcs")))
    match = re.fullmatch(r"lambdax:\((.{1,40})\)%(\d{1,6})", text)
    if match is None or match[1] not in OPERATIONS or int(match[2]) != given.get("C"):
        return {}
    shares = {"train_fraction": given["frac"]} if isinstance(given.get("frac"), float) else {}
    equals, separate = bool(given.get("eqn_sign")), bool(given.get("diff_vocab"))
    return {
        "p": given["C"],
        "operation": OPERATIONS[match[1]],
        "equals": equals,
        "separate_vocabulary": separate,
        **shares,
    }
