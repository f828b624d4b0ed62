"""Models of Zhong et al. 2023, The Clock and the Pizza: a state dict, and beside it a JSON file
with its configuration.

``model_X.pt`` goes with ``config_X.json``. Attention is
``attn_coeff * softmax + (1 - attn_coeff)``, and every position sees every other whatever
"attention_dir" says: their code has no mask. Inputs are ``x y``, with a last token ``=`` when
"eqn_sign", the second operand with tokens of its own when "diff_vocab". "funcs" is Python text; it
is compared with the functions known here, never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.formats.transposed import is_left_facing, turn_round
from mechint.checkpoints.reader import Found, json_beside, plain_values, state_dict
from mechint.errors import CheckpointError

OPERATIONS = {
    "x[0]+x[1]": "add",
    "x[0]-x[1]": "subtract",
    "x[0]*x[1]": "multiply",
    "x[0]**2+x[1]**2": "x^2+y^2",
    "x[0]*x[0]+x[1]*x[1]": "x^2+y^2",
    "x[0]**2+x[0]*x[1]+x[1]**2": "x^2+xy+y^2",
}


def read(path: Path, content: Any) -> Found | None:
    """A transformer of the pizza code; its JSON file must be beside it."""
    state = state_dict(content)
    if state is None:
        return None
    given = _configuration(path)
    if not is_left_facing(state):
        if given is None:
            return None
        kind = (
            "a linear model"
            if "model_type" in given or given.get("use_linear")
            else "no transformer"
        )
        raise CheckpointError(f"{path}: {kind} of the pizza code; only its transformers are read")
    if given is None:
        wanted = " or ".join(place.name for place in _places(path))
        raise CheckpointError(
            f"{path}: weights of the pizza code without their configuration (attn_coeff); "
            f"expected {wanted} beside the file"
        )
    try:
        rate = float(given["attn_coeff"])
        config, weights = turn_round(
            path,
            state,
            str(given.get("act_fn", "relu")),
            attention_dir="bidirectional",
            attention_rate=rate,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path}: its configuration is not usable: "
            f"attn_coeff={given.get('attn_coeff')!r}, expected 0 to 1"
        ) from error
    parameters = _task(given)
    return Found(
        config=config,
        weights=weights,
        task="modular-arithmetic" if parameters else None,
        parameters=parameters,
        step=given.get("epoch") if isinstance(given.get("epoch"), int) else None,
        extra={"config": plain_values(given)},
    )


def _places(path: Path) -> list[Path]:
    """Where the configuration may lie."""
    own = path.with_name(f"config_{path.stem.removeprefix('model_')}.json")
    return [own, path.with_suffix(".json")]


def _configuration(path: Path) -> Mapping[str, Any] | None:
    for place in _places(path):
        found = json_beside(place)
        if isinstance(found, Mapping) and ("attn_coeff" in found or "runid" in found):
            return found
    return None


def _task(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of modular-arithmetic, or nothing when "funcs" is no function known here."""
    match = re.fullmatch(r"lambdax:\((.+)\)%(\d+)", re.sub(r"\s", "", str(given.get("funcs"))))
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
