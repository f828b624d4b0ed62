"""What may be drawn: a page as JSON values is checked before any of it becomes HTML.

A page may come from a file that others wrote. Its structure, its sizes and its figures are checked
here; what is text is escaped where it is drawn, and a Content-Security-Policy keeps the browser
from running or fetching anything that the page does not bring.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from mechint.errors import DataError
from mechint.results import Claim, Null

TRACES = frozenset(
    {"scatter", "bar", "heatmap", "histogram", "box", "violin", "contour", "scatterpolar"}
)
"""Kinds of Plotly traces that need no network, no WebGL and no map."""
FILE_NAME = re.compile(r"[\w-][\w.-]{0,120}")
"""A file beside the page: no folder, no scheme."""
HEIGHTS = (60, 6000)
MAX_TEXT, MAX_DEPTH, MAX_LEAVES = 20_000, 40, 5_000_000


def check_page(data: Any) -> None:
    """Raise DataError where `data` is not the JSON of a page, naming the field."""
    _check_size(data)
    page = _fields(
        data,
        "page",
        {"title": str, "sections": list},
        {
            "kicker": str,
            "abstract": str,
            "command": str,
            "schema": int,
            "task": str,
            "probes": list,
            "date": str,
            "downloads": dict,
            "scores": dict,
            "facts": dict,
            "figures": dict,
            "next_steps": dict,
            "provenance": dict,
        },
    )
    if not page["title"].strip():
        raise DataError("page.title: it is empty")
    for name in ("scores", "facts", "next_steps", "downloads"):
        _texts(page.get(name, {}), f"page.{name}")
    for name in page.get("downloads", {}):
        if not FILE_NAME.fullmatch(name):
            raise DataError(f"page.downloads: got {name[:60]!r}, expected the name of a file")
    for index, name in enumerate(page.get("probes", [])):
        _is(name, str, f"page.probes[{index}]")
    for name, figure in page.get("figures", {}).items():
        check_figure(figure, f"page.figures.{name[:60]}")
    for index, section in enumerate(page["sections"]):
        _check_section(section, f"page.sections[{index}]")


def _check_section(data: Any, where: str) -> None:
    section = _fields(
        data,
        where,
        {"title": str},
        {
            "lead": str,
            "question": str,
            "status": str,
            "findings": list,
            "paragraphs": list,
            "code": str,
            "output": str,
            "command": str,
            "links": dict,
            "claims": list,
            "nulls": list,
            "metrics": dict,
            "figures": dict,
            "tables": dict,
            "provenance": dict,
        },
    )
    for index, text in enumerate(section.get("paragraphs", [])):
        _is(text, str, f"{where}.paragraphs[{index}]")
    for index, finding in enumerate(section.get("findings", [])):
        _is(finding, list, f"{where}.findings[{index}]")
        if len(finding) != 2 or not all(isinstance(part, str) for part in finding):
            raise DataError(f"{where}.findings[{index}]: expected a status and a sentence")
    _texts(section.get("links", {}), f"{where}.links")
    for address in section.get("links", {}).values():
        if not FILE_NAME.fullmatch(address):
            raise DataError(f"{where}.links: got {address[:60]!r}, expected a file beside the page")
    for index, claim in enumerate(section.get("claims", [])):
        _check_dataclass(claim, Claim, f"{where}.claims[{index}]")
    for index, null in enumerate(section.get("nulls", [])):
        _check_dataclass(null, Null, f"{where}.nulls[{index}]", extra={"z"})
    for name, table in section.get("tables", {}).items():
        _check_table(table, f"{where}.tables.{name[:60]}")
    for name, figure in section.get("figures", {}).items():
        check_figure(figure, f"{where}.figures.{name[:60]}")


def check_figure(data: Any, where: str = "figure") -> None:
    """Raise DataError where `data` is not a figure ("spec", "caption") that may be drawn."""
    figure = _fields(data, where, {"spec": dict, "caption": str}, {})
    kinds: dict[str, type] = {"data": list, "layout": dict, "frames": list}
    spec = _fields(figure["spec"], f"{where}.spec", {}, kinds, open_=True)
    _check_traces(spec.get("data", []), f"{where}.spec.data")
    for index, frame in enumerate(spec.get("frames", [])):
        place = f"{where}.spec.frames[{index}]"
        _fields(frame, place, {"name": str}, {"data": list, "layout": dict, "caption": str})
        _check_traces(frame.get("data", []), f"{place}.data")
        own = {name: value for name, value in frame.get("layout", {}).items() if value is not None}
        _check_layout(own, f"{place}.layout")
    if "view" in spec:
        check_view(spec["view"], f"{where}.spec.view")
    _check_layout(spec.get("layout", {}), f"{where}.spec.layout")


def _check_traces(traces: Any, where: str) -> None:
    for index, trace in enumerate(traces):
        _is(trace, dict, f"{where}[{index}]")
        kind = trace.get("type", "scatter")
        if not isinstance(kind, str) or kind not in TRACES:
            raise DataError(
                f"{where}[{index}].type: got {str(kind)[:40]!r}, "
                f"expected one of {', '.join(sorted(TRACES))}"
            )


def _check_layout(layout: Mapping[str, Any], where: str) -> None:
    height = layout.get("height", 380)
    if isinstance(height, bool) or not isinstance(height, int | float):
        raise DataError(f"{where}.height: expected a number of pixels")
    if not HEIGHTS[0] <= height <= HEIGHTS[1]:
        raise DataError(f"{where}.height: got {height:g}, expected 60 to 6000")
    if layout.get("images"):
        raise DataError(f"{where}.images: pictures from elsewhere are not drawn")


def check_view(data: Any, where: str) -> None:
    """Raise DataError where `data` is not an attention view: heads, examples, steps and patterns
    of the shapes that they name.
    """
    view = _fields(
        data,
        where,
        {"kind": str, "heads": list, "examples": list, "frames": list},
        {"steps": list, "unit": str},
    )
    for number, frame in enumerate(view["frames"]):
        _is(frame, list, f"{where}.frames[{number}]")
        if len(frame) != len(view["examples"]):
            raise DataError(f"{where}.frames[{number}]: expected one entry per example")
        for index, (example, heads) in enumerate(zip(view["examples"], frame, strict=True)):
            _is(example, dict, f"{where}.examples[{index}]")
            tokens = example.get("tokens")
            _is(tokens, list, f"{where}.examples[{index}].tokens")
            flat = isinstance(heads, list) and len(heads) == len(view["heads"])
            size = len(tokens) ** 2
            if not flat or any(not isinstance(h, list) or len(h) != size for h in heads):
                raise DataError(
                    f"{where}.frames[{number}][{index}]: expected {len(view['heads'])} heads of "
                    f"{size} weights each"
                )


def _check_table(data: Any, where: str) -> None:
    table = _fields(data, where, {"columns": dict}, {"caption": str, "units": dict})
    lengths = set()
    for name, column in table["columns"].items():
        _is(column, list, f"{where}.columns.{name[:60]}")
        lengths.add(len(column))
    if len(lengths) > 1:
        raise DataError(f"{where}: columns of different lengths {sorted(lengths)}")
    _texts(table.get("units", {}), f"{where}.units")


def _check_dataclass(data: Any, kind: Any, where: str, extra: set[str] | None = None) -> None:
    """The fields of a Claim or a Null: all that have no default, none that it does not have."""
    _is(data, dict, where)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in data:
        if name not in fields and name not in (extra or set()):
            raise DataError(f"{where}: unknown field {str(name)[:60]!r}")
    for name, field in fields.items():
        optional = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if name not in data and not optional:
            raise DataError(f"{where}: field {name!r} is missing")
        if name not in data:
            continue
        if field.type == "str":
            _is(data[name], str, f"{where}.{name}")
        if field.type in ("float", "int"):
            _number(data[name], f"{where}.{name}")


def _number(value: Any, where: str) -> None:
    """A number, or the text of one that JSON cannot hold ("nan", "inf", "-inf")."""
    if isinstance(value, str):
        try:
            if not math.isfinite(float(value)):
                return
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: expected a number")


def _fields(
    data: Any,
    where: str,
    required: Mapping[str, type],
    optional: Mapping[str, type],
    open_: bool = False,
) -> Mapping[str, Any]:
    """`data` as a mapping with these fields; `open_`: others are let through."""
    _is(data, dict, where)
    for name in required:
        if name not in data:
            raise DataError(f"{where}: field {name!r} is missing")
    expected = {**required, **optional}
    for name, value in data.items():
        if name in expected:
            _is(value, expected[name], f"{where}.{name}")
        elif not open_:
            raise DataError(f"{where}: unknown field {str(name)[:60]!r}")
    return data


_WORDS = {dict: "an object", list: "a list", str: "text"}


def _is(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind):
        raise DataError(f"{where}: got {type(value).__name__}, expected {_WORDS[kind]}")


def _texts(data: Mapping[str, Any], where: str) -> None:
    for name, value in data.items():
        _is(value, str, f"{where}.{name[:60]}")


def _check_size(data: Any) -> None:
    """Bounded depth, number of values and length of texts, without recursion."""
    leaves, stack = 0, [(data, 0)]
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise DataError(f"page: nested more than {MAX_DEPTH} deep")
        if isinstance(value, Mapping):
            stack += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            stack += [(item, depth + 1) for item in value if not isinstance(item, float | int)]
            leaves += len(value)
        elif isinstance(value, str) and len(value) > MAX_TEXT:
            raise DataError(f"page: a text of {len(value)} characters, expected up to {MAX_TEXT}")
        leaves += 1
        if leaves > MAX_LEAVES:
            raise DataError(f"page: more than {MAX_LEAVES} values")
