"""The calibration table as ``calibration.json``, to compute with, and ``.md``, to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint import __version__
from mechint.errors import RunError
from mechint.figures import COLORS, Axis, Figure, Layer, Plot
from mechint.figures.static import drawing
from mechint.probe.results import Table, to_jsonable
from mechint.system.files import make_directory, write_bytes, write_text
from mechint.system.locks import locked
from mechint.training.run_directory import manifest

Chosen = Mapping[str, Sequence[Mapping[str, Any]]]
"""Probe → with which settings it is calibrated, as `mechint.calibration.engine.settings_of` has
them.
"""


def write(table: Table, size: str, settings: Mapping[str, Any], out: Path, chosen: Chosen) -> None:
    """``calibration.json`` (data), ``calibration.md`` (to read) and ``calibration.svg`` (its
    picture) in the directory `out`.

    settings: of the size, as `Size` has them; chosen: the settings of the table's probes.

    Raises:
        RunError: the directory cannot be written.
    """
    command = f"mechint calibrate --size {size} --out {out.name}"
    with locked(out, wait=True):  # another process may add the rows of its probe
        kept, earlier, commits = _kept(out / "calibration.json")
        chosen = {**earlier, **chosen}
        commits = {**commits, **dict.fromkeys(table.columns["probe"], manifest()["commit"])}
        table = _beside(table, kept)
        data = {
            "command": command,
            "mechint": __version__,
            "size": to_jsonable(settings),
            "settings": to_jsonable(dict(sorted(chosen.items()))),
            "commits": dict(sorted(commits.items())),
            "columns": to_jsonable(table.columns),
            "caption": table.caption,
        }
        text = markdown(table, command, data["settings"])
        write_text(out / "calibration.json", json.dumps(data, indent=1) + "\n")
        write_text(out / "calibration.md", text)
        drawn = picture(table)
        height = 1.2 + 0.24 * len(drawn.plots[0].y.names or ())
        write_bytes(out / "calibration.svg", drawing(drawn, "svg", 7.0, height))


def check_place(out: Path) -> None:
    """RunError, before hours of work, where `out` holds another's file under our names, or is no
    directory that can be made.
    """
    data, text = out / "calibration.json", out / "calibration.md"
    _kept(data)
    if text.exists() and not data.exists():
        raise RunError(f"calibrate: {text} is not a calibration table; move it away")
    make_directory(out)


def _kept(path: Path) -> tuple[dict[str, list[Any]], dict[str, Any], dict[str, Any]]:
    """The columns of the table in the file at `path`, and settings and commits of its probes where
    it tells them; all empty where there is no file.
    """
    if not path.is_file():
        return {}, {}, {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        columns = data["columns"]
        (length,) = {len(values) for values in columns.values()}
        settings, commits = (dict(data.get(name) or {}) for name in ("settings", "commits"))
        return {"probe": [None] * length} | columns, settings, commits
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"calibrate: {path} is not a calibration table; move it away") from error


def _beside(table: Table, kept: Mapping[str, list[Any]]) -> Table:
    """The table with the rows of `kept`, columns by name, for probes that it lacks, by probe."""
    rows = list(zip(*table.columns.values(), strict=True))
    if kept:
        unknown = [None] * len(kept["probe"])  # of a column that an earlier table lacks
        earlier = [kept.get(column, unknown) for column in table.columns]
        rows += [row for row in zip(*earlier, strict=True) if row[0] not in table.columns["probe"]]
    rows.sort(key=lambda row: row[0])
    return Table(
        dict(zip(table.columns, map(list, zip(*rows, strict=True)), strict=True)),
        table.caption,
        table.units,
    )


def markdown(table: Table, command: str, chosen: Chosen) -> str:
    """The table as Markdown, with what its columns mean and the settings of the probes."""
    shown = [column for column in table.columns if column not in ("low", "high", "seconds")]
    columns = {**table.columns, "detected": detected(table)}
    for name in ("refused", "abstained"):
        columns[name] = ["not counted" if n is None else n for n in table.columns[name]]
    lines = [
        "# Calibration",
        "",
        answer(table),
        "",
        "![Per probe, the share of plants and of controls that it detects](calibration.svg)",
        "",
        (
            f"{table.caption} Made by `{command}` on the date of each row. What probes find in "
            "models that training made hold their variables: `docs/trained-truth.md`."
        ),
        "",
        (
            "`detected` is the power on a plant and the rate of false positives on a control, with "
            "its 95% Clopper–Pearson interval; noise is relative to the root mean square of every "
            "weight;"
        ),
        (
            "`wrong` is the share of plants whose estimate misses the planted truth; `error` and "
            "`worst_error` are the median and the largest error of"
        ),
        (
            "what stands under `estimate`. A control has no truth to miss. `refused` counts the "
            "runs in which the probe did not apply: on a plant that is a miss, and any other "
            "subject that is refused tests nothing, so that the share and its interval are over "
            "the rest, – where nothing is left. `abstained` counts those in which it ran and said "
            "that it cannot tell: there the gate was silent, and no null was put to the test. Rows "
            "that say `not counted` were measured before either was counted, and their shares are "
            "over all runs."
        ),
        (
            "A half-trained model may have learned a part of the true rule, so that to detect it "
            "there is not a false positive: `wrong` is the share of these models on which the "
            "probe names something"
        ),
        "that is not needed when it is taken out, which another computation than its own decides.",
        *_settings(chosen),
        "",
        "",
    ]
    return "\n".join(lines) + markdown_table({name: columns[name] for name in shown})


def answer(table: Table) -> str:
    """The rows of plants without noise that are nearly always detected, and those of controls that
    hardly ever are, in a sentence.
    """
    columns = (table.columns[name] for name in ("subject", "noise", "detected"))
    rows = [row for row in zip(*columns, strict=True) if row[2] is not None]
    plants = [
        share for subject, noise, share in rows if subject.startswith("planted") and not noise
    ]
    controls = [share for subject, _, share in rows if subject.startswith("control")]
    return (
        f"{sum(one >= OFTEN for one in plants)} of {len(plants)} plants without noise are detected "
        f"in at least {OFTEN:.0%} of the models, and {sum(one <= RARELY for one in controls)} of "
        f"{len(controls)} controls are taken for one in at most {RARELY:.0%}."
    )


OFTEN, RARELY = 0.95, 0.05
"""Shares of models that the first sentence of the page counts by."""


def detected(table: Table) -> list[str]:
    """The share that each row detects, with its interval."""
    shares = zip(*(table.columns[name] for name in ("detected", "low", "high")), strict=True)
    return [
        "–" if share is None else f"{share:.3g} ({low:.3g}–{high:.3g})"
        for share, low, high in shares
    ]


KINDS = {
    "control": "controls: false positives",
    "half-trained": "half-trained models",
    "planted": "plants: power",
}
"""First word of a row's subject → its name in the picture."""


def picture(table: Table) -> Figure:
    """Power against false positives: a line per probe, a dot per row of the table."""
    columns = (table.columns[name] for name in ("probe", "subject", "detected"))
    rows = [(name, str(of), x) for name, of, x in zip(*columns, strict=True) if x is not None]
    probes = sorted({probe for probe, _, _ in rows})
    layers = []
    colors = [COLORS[i] for i in (1, 4, 0)]
    for color, (word, kind) in zip(colors, KINDS.items(), strict=True):
        own = [(share, probes.index(probe)) for probe, of, share in rows if of.startswith(word)]
        x, y = ([row[i] for row in own] for i in (0, 1))
        layers += [Layer("points", x, y, kind, color, lying=True)] if own else []
    share = Axis("share that the probe detects (0–1)", span=(-0.03, 1.03))
    plot = Plot(share, Axis("probe", names=probes, reverse=True), layers)
    caption = "A dot per row of the table; a probe that never errs has dots at 0 and at 1 alone."
    return Figure("dots", "Power and false positives", caption, [plot])


def markdown_table(columns: Mapping[str, Sequence[Any]]) -> str:
    """Columns of equal length as a Markdown table, – for None.

    >>> print(markdown_table({"probe": ["das", "lens"], "error": [0.12345, None]}), end="")
    | probe | error |
    | --- | --- |
    | das | 0.123 |
    | lens | – |
    """
    rows = [columns, ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


def _settings(chosen: Chosen) -> list[str]:
    """For every probe, with which settings its plants and its controls ran."""
    lines = [
        f"- `{probe}` ({', '.join(choice['mechanisms'])}): plants with "
        f"{_written(choice['plants'])}; controls with {_written(choice['controls'])}"
        for probe, choices in chosen.items()
        for choice in choices
        if choice["plants"] or choice["controls"]
    ]
    return ["", DIFFERENT, "", *lines] if lines else []


DIFFERENT = (
    "Thresholds are the defaults; other settings are not everywhere, so that hundreds of models "
    "can be asked. A probe asked with its defaults may search further, or draw more samples, than "
    "here, and where controls have settings of their own, false positives are those of another "
    "search than the power above them. Half-trained models are asked as controls are. Settings "
    "that are not a probe's defaults:"
)


def _written(settings: Mapping[str, Any]) -> str:
    """Settings as ``--set`` takes them.

    >>> _written({"dimensions": [1, 2], "hook": "hook_embed", "only_correct": False})
    '`dimensions=1,2`, `hook=hook_embed`, `only_correct=false`'
    """
    texts = {
        name: ",".join(map(str, value))
        if isinstance(value, list)
        else value
        if isinstance(value, str)
        else json.dumps(value)
        for name, value in settings.items()
    }
    return ", ".join(f"`{name}={text}`" for name, text in texts.items()) or "the defaults"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, ""):
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
