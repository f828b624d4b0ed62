"""What a page says, before it looks like anything: sections of text, numbers with their null,
claims, tables, figures.

A `Page` is data (``to_dict``, ``from_dict``), so that a study can keep its page as JSON and a
gallery can draw it later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mechint.results import Claim, Figure, Null, ProbeResult, Table, plain


@dataclass(frozen=True)
class Section:
    """One part of a page; what is empty is not drawn.

    question: what was asked; lead: the answer in a sentence; paragraphs: text; claims: statements
    with verdicts; nulls: metrics that have a null; metrics: the other numbers; provenance: nested
    settings, shown folded.
    """

    title: str
    lead: str = ""
    question: str = ""
    paragraphs: Sequence[str] = ()
    claims: Sequence[Claim] = ()
    nulls: Sequence[Null] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page: `kicker` stands above the title, `abstract` below it; `facts` are short name → value
    pairs under both.
    """

    title: str
    sections: Sequence[Section]
    kicker: str = "mechint report"
    abstract: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives an equal page."""
        return plain(asdict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Page:
        """The page that `to_dict` wrote."""
        return cls(**{**data, "sections": [_section(section) for section in data["sections"]]})


def _section(data: Mapping[str, Any]) -> Section:
    return Section(
        **{
            **data,
            "claims": [Claim(**claim) for claim in data.get("claims", ())],
            "nulls": [Null.from_dict(null) for null in data.get("nulls", ())],
            "figures": {name: Figure(**figure) for name, figure in data.get("figures", {}).items()},
            "tables": {name: Table(**table) for name, table in data.get("tables", {}).items()},
        }
    )


def page_of(results: Mapping[str, ProbeResult], title: str) -> Page:
    """The report page of probe results: name of the probe → its result, all of one subject."""
    first = next(iter(results.values())).provenance if results else {}
    shared = {name: value for name, value in plain(first).items() if name != "probe"}
    return Page(
        title,
        [section_of(name, result) for name, result in results.items()],
        facts=_facts(shared),
        provenance=shared,
    )


def section_of(name: str, result: ProbeResult) -> Section:
    """One probe's section: its question, finding, numbers with their null, figures, tables and
    settings.
    """
    others = {
        metric: value for metric, value in result.metrics.items() if metric not in result.null
    }
    return Section(
        title=name,
        lead=result.finding,
        question=result.question,
        nulls=list(result.null.values()),
        metrics=plain(others),
        figures=result.figures,
        tables=result.tables,
        provenance=plain(result.provenance.get("probe", {})),
    )


def _facts(provenance: Mapping[str, Any]) -> dict[str, str]:
    """What a reader wants to know first: which checkpoint, which task, how long trained."""
    checkpoint, task = provenance.get("checkpoint") or {}, provenance.get("task") or {}
    facts = {
        "checkpoint": checkpoint.get("path"),
        "format": checkpoint.get("format"),
        "step": checkpoint.get("step"),
    }
    parameters = ", ".join(
        f"{name}={value}"
        for name, value in (task.get("parameters") or {}).items()
        if value is not None
    )
    facts |= {
        "task": task.get("name"),
        "parameters": parameters or None,
        "mechint": provenance.get("mechint"),
        "torch": provenance.get("torch"),
    }
    return {name: str(value) for name, value in facts.items() if value is not None}
