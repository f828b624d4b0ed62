"""Lines about a checkpoint itself: assumptions, its task, how well it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mechint.checkpoints import Checkpoint


def assumptions(opened: Checkpoint) -> list[str]:
    """One line per thing that the file does not state: what was assumed, why, how to set it."""
    lines = []
    fields = set(opened.config.to_dict()) if hasattr(opened.config, "to_dict") else set()
    for name, item in opened.assumed.items():
        shown = "none" if item.value is None else item.value
        settable = f"; --set model.{name}=… sets it" if name in fields else ""
        lines.append(f"assumed {name} = {shown}: {item.why}{settable}")
    return lines


def unknown_task(opened: Checkpoint) -> str:
    """The line on what an analysis without a task lacks, and the options that would name one."""
    line = (
        "no task is known, so only probes that need none apply; name it with --task and --set, or "
        "give a language model prompts with --data"
    )
    fitting = " or ".join(opened.proposals)
    return f"{line}: {fitting} fits the vocabulary" if fitting else line


def warnings_of(opened: Checkpoint) -> list[str]:
    """Lines to read before the numbers: how well it answers, what was assumed, no task."""
    said = opened.warnings()
    return [*said, *([unknown_task(opened)] if opened.task is None else []), *assumptions(opened)]
