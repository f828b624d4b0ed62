"""A figure as a file: drawn by Matplotlib for a paper, as a page that opens offline, or as numbers.

Kinds of traces that the builders of `mechint.figures` make are drawn: lines, points, areas, bars
and matrices, in panels, with named levels and bands.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint.errors import ParameterError
from mechint.figures.drawing import draw
from mechint.figures.markup import plain
from mechint.files import write_bytes, write_text
from mechint.jsonable import to_jsonable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Spec = Mapping[str, Any]
"""A figure as Plotly's dictionary, or an attention view under "view"."""


def save(spec: Spec, caption: str, path: Path, width: float, height: float | None) -> Path:
    """Write a figure to `path`, in the form that its ending names; see `Figure.save`."""
    writers: dict[str, Callable[[], None]] = {
        ".csv": lambda: write_text(path, numbers_of(_whole(spec))),
        ".json": lambda: write_text(path, json.dumps(to_jsonable(spec))),
        ".html": lambda: write_text(path, page(spec, caption)),
    }
    for ending in (".svg", ".pdf", ".png"):
        writers[ending] = lambda: write_bytes(path, drawn(spec, path.suffix[1:], width, height))
    if path.suffix not in writers:
        raise ParameterError(
            f"{path}: ending {path.suffix!r}: expected one of {', '.join(sorted(writers))}"
        )
    if not 1 <= width <= 40 or (height is not None and not 1 <= height <= 40):
        raise ParameterError(f"{path}: width={width}, height={height}: expected 1 to 40 inches")
    writers[path.suffix]()
    return path


def drawn(spec: Spec, form: str, width: float, height: float | None) -> bytes:
    """The bytes of a drawing: "svg", "pdf" or "png" (300 dots per inch); equal each time."""
    import matplotlib

    drawing: Drawing = draw(spec, width, height)
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[form]
    with matplotlib.rc_context({"svg.hashsalt": "mechint", "svg.fonttype": "none"}):
        held = io.BytesIO()
        drawing.savefig(held, format=form, dpi=300, metadata=stamp)
    return held.getvalue()


def page(spec: Spec, caption: str) -> str:
    """The figure as one HTML file that opens offline."""
    if "view" in spec:
        return _document(spec, caption, "view", spec["view"])
    from plotly.offline import get_plotlyjs

    return _document(spec, caption, "figure", plain(spec), get_plotlyjs())


COLORS = (
    ":root{--ink:#1b1f24;--quiet:#626b76;--rule:#dfe2e4;--panel:#f5f6f5;--accent:#00639c;"
    "--bad:#b3420a}@media screen and (prefers-color-scheme:dark){:root{--ink:#e4e7ea;"
    "--quiet:#9aa4af;--rule:#2f353b;--panel:#1b1f23;--accent:#6cb8ea;--bad:#f0915a}}"
    "html{color:var(--ink);font:14px/1.5 system-ui,sans-serif;color-scheme:light dark}"
)


def view_asset(name: str) -> str:
    """A script or a style of a figure that moves: "attention.js", "attention.css", "figure.js"."""
    return (Path(__file__).parent / "view" / name).read_text(encoding="utf-8")


def _document(spec: Spec, caption: str, kind: str, held: Any, *scripts: str) -> str:
    """A page with one figure of `kind`, "view" or "figure", made of what is `held`."""
    data = json.dumps(to_jsonable(held)).replace("<", "\\u003c")
    named = (spec.get("layout") or {}).get("title") or ""
    title = html.escape(named.get("text", "") if isinstance(named, Mapping) else str(named))
    style, script, heading = "", view_asset("figure.js"), ""
    if kind == "view":
        style, script = view_asset("attention.css"), view_asset("attention.js")
        heading = f"<h3>{title}</h3>"
    before = "".join(f"<script>{text}</script>" for text in scripts)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{COLORS}{style}</style>{before}</head><body>{heading}"
        f'<div class="{kind}" id="{kind}"></div><p id="caption">{html.escape(caption)}</p>'
        f'<script type="application/json" data-{kind}="{kind}">{data}</script>'
        f"<script>{script}</script></body></html>"
    )


def _whole(spec: Spec) -> Spec:
    """The specification with all weights of an attention view's last step, an example and head a
    trace; its drawing holds the first ones.

    >>> view = {"heads": ["L0H0"], "examples": [{"name": "a", "tokens": ["1", "="]}],
    ...     "frames": [[[[1.0, 0.0, 0.5, 0.5]]]]}
    >>> _whole({"view": view})
    {'data': [{'name': 'L0H0, a', 'z': [[1.0, 0.0], [0.5, 0.5]]}]}
    """
    if "view" not in spec:
        return spec
    view = spec["view"]
    traces = [
        {"name": f"{head}, {example['name']}", "z": np.reshape(weights, (n, n)).tolist()}
        for example, frame in zip(view["examples"], view["frames"][-1], strict=True)
        for n in [len(example["tokens"])]
        for head, weights in zip(view["heads"], frame, strict=True)
    ]
    return {"data": traces}


def numbers_of(spec: Spec) -> str:
    """The figure's numbers as CSV: one row per point, with the trace it belongs to; after x, y and
    z the color, text and half-lengths of the error bars, where the figure has them.

    >>> numbers_of({"data": [{"name": "a", "x": [1, 2], "y": [0.5, None]}]}).split()
    ['trace,x,y,z', 'a,1,0.5,', 'a,2,,']
    >>> numbers_of({"data": [{"x": [1], "y": [2], "marker": {"color": [0.5]}}]}).splitlines()
    ['trace,x,y,z,color', 'trace 0,1,2,,0.5']
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    traces = to_jsonable(spec).get("data", [])
    more = {name: [of(trace) for trace in traces] for name, of in MORE.items()}
    more = {name: held for name, held in more.items() if any(held)}
    rows.writerow(["trace", "x", "y", "z", *more])
    for index, trace in enumerate(traces):
        name = trace.get("name") or f"trace {index}"
        if "z" in trace:
            rows.writerows([*cell, *("" for _ in more)] for cell in _cells(name, trace))
            continue
        x, y = trace.get("x") or [], trace.get("y") or []
        for place in range(max(len(x), len(y))):
            beside = (_item(held[index], place) for held in more.values())
            rows.writerow([name, _item(x, place), _item(y, place), "", *beside])
    return text.getvalue()


def _shown(trace: Mapping[str, Any]) -> list[Any] | None:
    """The numbers that the colors of points show; None where a color is only a color."""
    values = (trace.get("marker") or {}).get("color")
    numeric = isinstance(values, list) and not any(isinstance(value, str) for value in values)
    return values if numeric else None


def _text(trace: Mapping[str, Any]) -> list[Any] | None:
    """The text of each point, which stands beside it or is shown on hover."""
    values = trace.get("text")
    return values if isinstance(values, list) and "z" not in trace else None


MORE: Mapping[str, Callable[[Mapping[str, Any]], list[Any] | None]] = {
    "color": _shown,
    "text": _text,
    "error_x": lambda trace: (trace.get("error_x") or {}).get("array"),
    "error_y": lambda trace: (trace.get("error_y") or {}).get("array"),
}
"""Columns of the CSV that not every figure has."""


def _cells(name: str, trace: Mapping[str, Any]) -> list[list[Any]]:
    """One row per cell of a matrix; columns and rows without names are counted from 0."""
    return [
        [name, _item(trace.get("x"), column, column), _item(trace.get("y"), row, row), value]
        for row, values in enumerate(trace["z"])
        for column, value in enumerate(values)
    ]


def _item(values: Any, place: int, otherwise: Any = "") -> Any:
    return values[place] if values and place < len(values) else otherwise
