"""Programs of many seeds: the share of seeds that runs each, and the agreement of pairs of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint.decide import Evidence, Null, decide
from mechint.decide.null import multinomial
from mechint.decide.words import STANDS
from mechint.probe.results import Table
from mechint.report.page import Section
from mechint.run_table.page import settings_of
from mechint.task import rng

PERMUTATIONS = 1999
"""Permutations of the programs among the models."""


def programs_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The share of models that run each program, by their settings, and the agreement of pairs.

    Args:
        rows: one a model, of a table that is explained (`Runs.explain`).

    Returns:
        "shares": setting, program, its models of n, and the 95% interval of the share (Wilson).
        "pairs": number of pairs of runs that differ in nothing but the seed, share of them with
        one program, its mean where programs are permuted among all models, the p-value, and a
        verdict: "untested" where no permutation could change it, as of one setting. A program goes
        by its name without numbers ("addition by three frequencies"); models of which none stands
        agree with no other.

    >>> row = {"explain.standing": "stands"}
    >>> made = [{**row, "task": t, "explain.program": f"of {t}"} for t in "aaaaabbbbb"]
    >>> rows = [{**row, "seed": seed} for seed, row in enumerate(made)]
    >>> found = programs_of(rows)
    >>> [(one["program"], one["models"], one["n"]) for one in found["shares"]]
    [('of a', 5, 5), ('of b', 5, 5)]
    >>> found["pairs"]["share"], round(found["pairs"]["permuted"], 1), found["pairs"]["verdict"]
    (1.0, 0.4, 'yes')
    """
    settings = [name for name in settings_of(rows) if name not in ("seed", "step")]
    places = np.array([str([row.get(name) for name in settings]) for row in rows])
    none = np.array([row.get("explain.standing") not in STANDS for row in rows])
    names = np.array([str(row.get("explain.program")) for row in rows], dtype=object)
    names[none] = "none stands"
    shares = list[dict[str, Any]]()
    for place in dict.fromkeys(places):
        row = rows[int((places == place).argmax())]
        setting = row.get("task") or ", ".join(f"{name} = {row.get(name)}" for name in settings)
        for name, k in Counter(names[places == place]).most_common():
            n = int((places == place).sum())
            low, high = Evidence.share(k, n).interval
            told = {"setting": setting, "program": name, "models": k, "n": n}
            shares.append({**told, "low": low, "high": high})
    first, second = np.triu_indices(len(rows), 1)
    seeds = np.array([row.get("seed", -1) for row in rows])
    alike = (places[first] == places[second]) & (seeds[first] != seeds[second])
    first, second = first[alike], second[alike]

    def agreement(order: Any) -> float:
        same = (names[order][first] == names[order][second]) & ~none[order][first]
        return float(same.mean()) if len(same) else float("nan")

    draw, observed = rng("programs of seeds"), agreement(np.arange(len(rows)))
    permuted = [agreement(draw.permutation(len(rows))) for _ in range(PERMUTATIONS)]
    how, ways = "programs permuted among the models", multinomial(Counter(names).values())
    null = Null.sampled("agreement", observed, permuted, how, arrangements=ways)
    several = len({*places}) > 1 and len(first) > 0
    found = {"n": len(first), "share": observed, "permuted": null.mean, "p_value": null.p_value}
    decided = (
        decide(Evidence(value=observed, n=len(first)), null=null).verdict if several else "untested"
    )
    return {"shares": shares, "pairs": {**found, "verdict": decided}}


def programs_text(found: Mapping[str, Any]) -> str:
    """The shares, a line each, and whether pairs of seeds agree more than permuted ones."""
    rows, pairs = found["shares"], found["pairs"]
    wide = [max(len(str(one[name])) for one in rows) for name in ("setting", "program")]
    lines = [
        f"{one['setting']:<{wide[0]}}  {one['program']:<{wide[1]}}  {one['models']} of {one['n']} "
        f"({one['low']:.0%} to {one['high']:.0%})"
        for one in rows
    ]
    if not pairs["n"]:  # files that state no seed
        return "\n".join(lines)
    said = f"Of {pairs['n']:,} pairs that differ in the seed {pairs['share']:.0%} run one program"
    if pairs["verdict"] == "untested":
        return "\n".join([*lines, f"{said}; no permutation of one setting tells it from chance."])
    end = f"of permuted programs {pairs['permuted']:.0%} (p = {pairs['p_value']:.2g})"
    word = {"yes": "more", "no": "not shown to be more"}.get(pairs["verdict"], "unclear")
    return "\n".join([*lines, f"{said}, {end}: {word}."])


def section_of(found: Mapping[str, Any]) -> Section:
    """The shares and the agreement on a page."""
    rows = found["shares"]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    lead = programs_text(found).splitlines()[len(rows) :]
    return Section("programs", lead="".join(lead), tables={"programs": Table(columns)})
