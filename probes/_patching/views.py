"""The patching probe's table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from mechint import figures
from mechint.interventions import Site
from mechint.results import Table
from mechint.task import Variable


def named(component: Site, from_answer: bool) -> str:
    """The component as text, where its position may be counted from the answer, 0 itself.

    >>> named(Site.mlp(0, 2), False), named(Site.mlp(0, 0), True), named(Site.head(1, 3, -2), True)
    ('L0 MLP @ 2', 'L0 MLP @ answer', 'L1H3 @ answer-2')
    """
    if not from_answer:
        return str(component)
    return f"{replace(component, pos=None)} @ {_place(component.pos)}"


def carried(variable: Variable) -> str:
    """The name of what a component carries: the variable's name, of prompts in a file what they
    differ in.
    """
    return "the prompts' difference" if variable.is_example else variable.name


def _place(pos: object) -> str:
    """A position counted from the answer."""
    return f"answer{pos or ''}"


def components_table(
    components: Sequence[Site],
    recovered: Float[np.ndarray, " component"],
    flips: Float[np.ndarray, " component"],
    estimated: Float[np.ndarray, " component"],
    wrong: Float[np.ndarray, " component"],
    pairs: Int[np.ndarray, " component"] | None = None,
) -> Table:
    """A row per component: recovery, flips, attribution, and recovery from a wrong source; pairs:
    where positions are counted from the answer, how many pairs have each.
    """
    places = [one.pos if pairs is None else _place(one.pos) for one in components]
    columns: dict[str, Sequence[Any]] = {
        "kind": [component.kind for component in components],
        "layer": [component.layer for component in components],
        "pos": places,
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
    caption = (
        "One row per patched component; wrong_source patches in the activation of another "
        "pair's source."
    )
    if pairs is not None:
        columns["pairs"] = pairs.tolist()
        caption += (
            " Positions are counted from that of each pair's answer, and shares are over the pairs "
            "that have the position."
        )
    return Table(columns, caption, units)


MOST_ROWS = 40
"""Rows of one figure; where there are more, every kind of component has its own."""


def patching_figures(
    components: Sequence[Site],
    recovered: Float[np.ndarray, " component"],
    estimated: Float[np.ndarray, " component"],
    variable: str,
    names: Sequence[str] | None,
) -> dict[str, Any]:
    """Recovery by patching every component, under one scale; `names` of the positions, None
    where they are counted from the answer.
    """
    kinds = list(dict.fromkeys(component.kind for component in components))
    rows = list(dict.fromkeys(_row(component) for component in components))
    parts = {"recovered": kinds} if len(rows) <= MOST_ROWS else {kind: [kind] for kind in kinds}
    most = max(1.0, float(np.nanmax(np.abs(recovered), initial=0.0)))
    result = {}
    for name, shown in parts.items():
        members = [i for i, component in enumerate(components) if component.kind in shown]
        result[name] = _matrix(components, recovered, members, variable, names, most)
    result["attribution"] = figures.scatter(
        estimated,
        recovered,
        title="Attribution patching against activation patching",
        x_title="first-order estimate (share of the logit difference)",
        y_title="recovered by patching (share of the logit difference)",
        groups=[component.kind for component in components],
        text=[named(component, names is None) for component in components],
        caption=(
            "One point per component. Where the model is linear the points lie on the diagonal."
        ),
    )
    return result


def _row(component: Site) -> str:
    return str(replace(component, pos=None))


def _matrix(
    components: Sequence[Site],
    recovered: np.ndarray,
    members: Sequence[int],
    variable: str,
    names: Sequence[str] | None,
    most: float,
) -> Any:
    """Components as rows, positions as columns."""
    rows = list(dict.fromkeys(_row(components[i]) for i in members))
    positions = sorted(
        {components[i].pos for i in members},
        key=lambda pos: pos if isinstance(pos, int) else -1,  # every position has no index
    )
    z = np.full((len(rows), len(positions)), np.nan)
    for i in members:
        z[rows.index(_row(components[i])), positions.index(components[i].pos)] = recovered[i]
    if names is None:
        columns = [_place(pos) for pos in positions]
    else:
        columns = [
            names[pos] if isinstance(pos, int) and 0 <= pos < len(names) else str(pos)
            for pos in positions
        ]
    return figures.heatmap(
        z,
        x=columns,
        y=rows,
        title=f"Patching {variable}: what each activation carries",
        x_title="position (token)" if names is not None else "position, counted from the answer",
        y_title="component",
        z_title="logit difference recovered (0 base, 1 source)",
        diverging=True,
        limits=(-most, most),
        caption=(
            "How much of the source's answer each activation carries into the base run: 1 all of "
            "it, 0 none."
        ),
    )
