"""What a page says, before it looks like anything: sections of text, numbers with their null,
claims, tables, figures.

A `Page` is data (``to_dict``, ``from_dict``), so that a study can keep its page as JSON and a
gallery can draw it later.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mechint.config import assignment
from mechint.config.assign import set_options
from mechint.registry import PROBES, TASKS
from mechint.results import Claim, Figure, Null, ProbeResult, Table, to_jsonable

SCHEMA = 2
"""Version of the JSON form. 1 had no findings, code, output, links, task, probes or downloads."""
MAX_FACTS = 4
"""Parameters of the task that stand in the head; all of them stand under "Provenance"."""


@dataclass(frozen=True)
class Section:
    """One part of a page; what is empty is not drawn.

    question: what was asked; lead: the answer in a sentence; status: "yes", "no",
    "unclear" or "", shown as a mark; findings: (status, sentence) of each part of the answer, in
    place of the lead; paragraphs: text; code, output: of a step, and what it printed; claims:
    statements with verdicts; nulls: metrics that have a null; metrics: the other numbers; command:
    what makes the figures again; links: text → address of a page beside this one; provenance:
    nested settings, shown folded.
    """

    title: str
    lead: str = ""
    question: str = ""
    status: str = ""
    findings: Sequence[tuple[str, str]] = ()
    paragraphs: Sequence[str] = ()
    code: str = ""
    output: str = ""
    claims: Sequence[Claim] = ()
    nulls: Sequence[Null] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    command: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The first sentence that gives the section its status; the lead where there is none."""
        decided = [text for status, text in self.findings if status == self.status]
        return (decided or [self.lead])[0]


@dataclass(frozen=True)
class Page:
    """A page: `kicker` stands above the title, `abstract` below it.

    scores: name → how well the model does, in large type ("accuracy" → "99.9%, chance 0.9%");
    facts: short name → value pairs below; figures: what stands before the findings, such as the
    training curve; next_steps: command → what it would show; command: what made the page; task,
    probes, date: by which a gallery sorts it; downloads: file name → text of files that belong to
    it, such as the script.
    """

    title: str
    sections: Sequence[Section]
    kicker: str = "mechint report"
    abstract: str = ""
    scores: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    next_steps: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    task: str = ""
    probes: Sequence[str] = ()
    date: str = ""
    downloads: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, as ``schemas/page.json`` has them; `from_dict` gives an equal page."""
        return {"schema": SCHEMA, **to_jsonable(asdict(self))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Page:
        """The page that `to_dict` wrote."""
        sections = [_section(section) for section in data["sections"]]
        fields = {name: value for name, value in data.items() if name != "schema"}
        return cls(**{**fields, "sections": sections, "figures": _figures(data)})


def clipped(text: str, longest: int) -> str:
    """`text`, cut after a word where it has more than `longest` letters.

    >>> clipped("three short words", 12)
    'three short …'
    """
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0]} …"


def _section(data: Mapping[str, Any]) -> Section:
    return Section(
        **{
            **data,
            "findings": [tuple(finding) for finding in data.get("findings", ())],
            "claims": [Claim(**claim) for claim in data.get("claims", ())],
            "nulls": [Null.from_dict(null) for null in data.get("nulls", ())],
            "figures": _figures(data),
            "tables": {name: Table(**table) for name, table in data.get("tables", {}).items()},
        }
    )


def _figures(data: Mapping[str, Any]) -> dict[str, Figure]:
    return {name: Figure(**figure) for name, figure in data.get("figures", {}).items()}


def page_of(
    results: Mapping[str, ProbeResult],
    title: str,
    *,
    commands: Mapping[str, str] | None = None,
    **head: Any,
) -> Page:
    """The report page of probe results: name of the probe → its result, all of one subject.

    commands: name → the command that ran that probe; where there is none, what its provenance
    says. head: more fields of `Page`: "scores", "figures", "next_steps", "command".
    """
    first = next(iter(results.values())).provenance if results else {}
    shared = {name: value for name, value in to_jsonable(first).items() if name != "probe"}
    found = {
        "task": (shared.get("task") or {}).get("name") or "",
        "probes": list(results),
        "facts": _facts(shared),
        "provenance": shared,
    }
    told = {name: command_of(name, to_jsonable(one.provenance)) for name, one in results.items()}
    told |= commands or {}
    sections = [section_of(name, result, told[name]) for name, result in results.items()]
    return Page(title, sections, **{**found, **head})


def section_of(name: str, result: ProbeResult, command: str = "") -> Section:
    """One probe's section: its question, finding, numbers with their null, figures, tables and
    settings; `command` makes them again.
    """
    others = {
        metric: value for metric, value in result.metrics.items() if metric not in result.null
    }
    return Section(
        title=name,
        lead=result.finding,
        status=result.verdict,
        findings=[(one.verdict, str(one)) for one in result.findings],
        question=result.question,
        command=command,
        nulls=list(result.null.values()),
        metrics=to_jsonable(others),
        figures=result.figures,
        tables=result.tables,
        provenance=to_jsonable(result.provenance.get("probe", {})),
    )


def command_of(probe: str, provenance: Mapping[str, Any]) -> str:
    """What runs the probe again; empty where the model came from no file.

    >>> made = {"checkpoint": {"path": "ckpt.pt", "format": "mechint"}, "probe": {"seed": 0}}
    >>> command_of("fourier", made)
    'mechint analyze ckpt.pt --probe fourier'
    """
    checkpoint, task = provenance.get("checkpoint") or {}, provenance.get("task") or {}
    if not checkpoint.get("path"):
        return ""
    words = ["mechint analyze", shlex.quote(str(checkpoint["path"]))]
    if checkpoint.get("format") != "mechint" and task.get("name"):
        changed = _changed(TASKS, task["name"], task.get("parameters") or {})
        words += ["--task", task["name"], *set_options(changed)]
    given = (checkpoint.get("extra") or {}).get("set") or {}  # of the model, by who opened it
    words += [f"--set {shlex.quote(assignment(f'model.{k}', v))}" for k, v in given.items()]
    asked = provenance.get("probe") or {}
    plain = probe.partition(".")[0]  # a run keeps "lens.answer-0" beside "lens"
    words += ["--probe", plain]
    settings = asked.get("settings") or {}
    words += set_options({f"{plain}.{k}": v for k, v in _changed(PROBES, plain, settings).items()})
    words += [f"--seed {asked['seed']}"] if asked.get("seed") else []
    words += [f"--answer {asked['answer']}"] if asked.get("answer", LAST) != LAST else []
    return " ".join(words)


LAST = -1
"""The answer that a probe is asked about unless told otherwise."""


def _changed(registry: Any, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not the defaults of a registered task or probe; all of another's."""
    if name not in registry:
        return dict(values)
    defaults = to_jsonable(registry[name]().to_dict())
    return {key: value for key, value in values.items() if defaults.get(key) != value}


def _facts(provenance: Mapping[str, Any]) -> dict[str, str]:
    """What the model is: which checkpoint, which task, how long trained, what was assumed."""
    checkpoint, task = provenance.get("checkpoint") or {}, provenance.get("task") or {}
    given = task.get("parameters") or {}
    changed = _changed(TASKS, str(task.get("name")), given)
    sizes = {name: value for name, value in given.items() if type(value) is int}
    parameters = {
        name: value
        for name, value in {**changed, **sizes}.items()
        if isinstance(value, int | float | str) and not name.endswith("seed")
    }
    shown = ", ".join(f"{name} = {value}" for name, value in list(parameters.items())[:MAX_FACTS])
    assumed = ", ".join(
        f"{name} = {_value(value)}" for name, value in (checkpoint.get("assumed") or {}).items()
    )
    facts = {
        "task": task.get("name") and f"{task['name']}{f' ({shown})' if shown else ''}",
        "step": checkpoint.get("step"),
        "checkpoint": checkpoint.get("path"),
        "format": checkpoint.get("format"),
        "assumed": assumed or None,
        "mechint": provenance.get("mechint"),
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _value(assumed: Any) -> Any:
    """The value of an assumption, with or without its reason."""
    return assumed.get("value") if isinstance(assumed, Mapping) else assumed
