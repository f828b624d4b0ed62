"""Pages of probes: what each measures, and what it found on every task whose page is kept."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Sequence

from mechint.errors import counted
from mechint.registry import PROBES
from mechint.report import Page, Section, slug
from mechint.results import Table

KICKER = "mechint probe"
TASK_KICKER = "mechint task"
ORDER = {"yes": 0, "no": 1, "unclear": 2}


def probe_pages(pages: Sequence[Page]) -> list[Page]:
    """A page per probe that ran on at least one of the tasks' `pages`."""
    tasks = [page for page in pages if page.kicker == TASK_KICKER]
    return [page for name in PROBES.names() if (page := _page(name, tasks)) is not None]


def _page(name: str, tasks: Sequence[Page]) -> Page | None:
    ran = [(page, section) for page in tasks for section in page.sections if section.title == name]
    if not ran:
        return None
    probe = PROBES[name]
    ran.sort(key=lambda one: (ORDER.get(one[1].status, 3), -_net(one[1])))
    _, shown = ran[0]
    outcomes = Counter(section.status for _, section in ran)
    counts = [f"{outcomes[status]} {status}" for status in ORDER if outcomes[status]]
    rows = {
        "task": [page.task for page, _ in ran],
        "what came out": [section.status for _, section in ran],
        "sentence": [_sentence(section) for _, section in ran],
    }
    method = inspect.getdoc(probe) or ""
    sections = [
        Section(
            "Over the tasks",
            lead=f"Of {counted(len(ran), 'model')}, one per task: {', '.join(counts)}.",
            tables={"models": Table(rows, "one row per model")},
            links={f"{page.task}: {s.status}": f"{slug(page.title)}.html" for page, s in ran},
        ),
        dataclasses.replace(shown, title=f"{name} on {ran[0][0].task}"),
        Section("Method", paragraphs=method.partition("\n\n")[2].split("\n\n")),
    ]
    return Page(
        f"Probe: {name}",
        sections,
        kicker=KICKER,
        abstract=probe.question,
        facts={"source": probe.source},
        command=f"mechint analyze CHECKPOINT --probe {name}",
        probes=[name],
        date=max((page.date for page, _ in ran), default=""),
    )


def _net(section: Section) -> int:
    """How many sentences of a section found what they looked for, less those that did not."""
    statuses = [status for status, _ in section.findings]
    return statuses.count("yes") - statuses.count("no")


def _sentence(section: Section) -> str:
    """The first sentence that decided the status."""
    for status, sentence in section.findings:
        if status == section.status:
            return sentence
    return section.lead
