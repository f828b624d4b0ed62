"""The patching probe's table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.interventions import Site
from mechint.results import Table


def components_table(
    components: Sequence[Site],
    recovered: np.ndarray,
    flips: np.ndarray,
    estimated: np.ndarray,
    wrong: np.ndarray,
) -> Table:
    columns: dict[str, Sequence[Any]] = {
        "kind": [component.kind for component in components],
        "layer": [component.layer for component in components],
        "pos": [component.pos for component in components],
        "head": [component.units[0] if component.units else None for component in components],
        "recovered": recovered.tolist(),
        "flips": flips.tolist(),
        "attribution": estimated.tolist(),
        "wrong_source": wrong.tolist(),
    }
    units = {
        name: "share of the logit difference"
        for name in ("recovered", "attribution", "wrong_source")
    } | {"flips": "share of pairs"}
    return Table(
        columns,
        (
            "One row per patched component; wrong_source patches in the activation of another "
            "pair's source."
        ),
        units,
    )


def patching_figures(
    components: Sequence[Site], recovered: np.ndarray, estimated: np.ndarray, variable: str
) -> dict[str, Any]:
    result = {}
    for kind in dict.fromkeys(component.kind for component in components):
        members = [index for index, component in enumerate(components) if component.kind == kind]
        rows = [
            f"{components[i].layer}" + "".join(f".{head}" for head in components[i].units)
            for i in members
        ]
        names = list(dict.fromkeys(rows))
        positions = sorted(
            {components[i].pos for i in members},
            key=lambda pos: pos if isinstance(pos, int) else -1,  # every position has no index
        )
        z = np.full((len(names), len(positions)), np.nan)
        for row, i in zip(rows, members, strict=True):
            z[names.index(row), positions.index(components[i].pos)] = recovered[i]
        result[kind] = figures.heatmap(
            z,
            x=[str(pos) for pos in positions],
            y=names,
            title=f"Patching {kind}: {variable}",
            x_title="position (token index)",
            y_title="layer.head (index)" if kind == "head" else "layer (index)",
            z_title="logit difference recovered (0 base, 1 source)",
            diverging=True,
            caption=(
                "How much of the source's answer each activation carries into the base run: 1 all "
                "of it, 0 none."
            ),
        )
    result["attribution"] = figures.scatter(
        estimated,
        recovered,
        title="Attribution patching against activation patching",
        x_title="first-order estimate (share of the logit difference)",
        y_title="recovered by patching (share of the logit difference)",
        groups=[component.kind for component in components],
        text=[str(component) for component in components],
        caption=(
            "One point per component. Where the model is linear the points lie on the diagonal."
        ),
    )
    return result
