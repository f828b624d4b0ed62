"""Files of Nanda et al. 2023, Progress measures for grokking:
``{model, config, epoch, train_losses, …}``.

The configuration names the modulus (p) and the function (fn_name); models are causal, read
``x y =`` and answer over all p + 1 tokens. A file of a full run holds its snapshots too
(state_dicts, epochs).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.formats.transposed import is_left_facing, turn_round
from mechint.checkpoints.reader import Found, history, plain_values, record, state_dict

OPERATIONS = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "x2y2": "x^2+y^2",
    "x2xyy2": "x^2+xy+y^2",
}
"""fn_name → operation; "rand" draws new answers at every call and is no task."""


def read(path: Path, content: Any) -> Found | None:
    """A checkpoint of the progress-measures code, with its task where its configuration is in the
    file.
    """
    if not isinstance(content, Mapping):
        return None
    several = history(content)
    state = state_dict(content.get("model")) or next(reversed(several.values()), None)
    if state is None or not is_left_facing(state):
        return None
    given = content.get("config")
    given = given if isinstance(given, Mapping) else {}
    activation = str(given.get("act_type", "ReLU"))
    config, weights = turn_round(path, state, activation)
    step, metrics = record(content)
    operation = OPERATIONS.get(str(given.get("fn_name")))
    known = operation is not None and "p" in given
    parameters = (
        {"p": given["p"], "operation": operation, "equals": config.n_ctx == 3} if known else {}
    )
    if known and isinstance(given.get("frac_train"), float):
        parameters["train_fraction"] = given["frac_train"]
    return Found(
        config=config,
        weights=weights,
        task="modular-arithmetic" if known else None,
        parameters=parameters,
        step=step,
        metrics=metrics,
        series={
            at: lambda then=then: turn_round(path, then, activation)[1]
            for at, then in several.items()
        },
        extra={"config": plain_values(given)} if given else {"assumed": {"act_fn": "relu"}},
    )
