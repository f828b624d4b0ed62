"""The model that a command opens: its ``--set`` texts sorted by owner, and the command that does
it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import PLUGINS, answer_of
from mechint.config import assign, parse_assignment
from mechint.config.settings import set_options
from mechint.errors import CheckpointError, ParameterError, UnknownNameError
from mechint.registry import PROBES, TASKS

if TYPE_CHECKING:
    from mechint.checkpoints import Checkpoint
    from mechint.subject import Subject, Which


OPENS = {"task": "", "data": "", "mapping": "", "device": "cpu", "answer": "", "seed": 0}
"""Options that decide what is opened and asked → their defaults."""


@dataclass(frozen=True)
class Opening:
    """A model by its path, the options of the command that opens it, by name, and the probes that
    run, whose settings may stand without their name.
    """

    path: Path
    given: Mapping[str, Any]
    probes: Sequence[str] = ()

    @cached_property
    def answer(self) -> Which | None:
        """The answer that probes ask about, the last when None."""
        return answer_of(self.given["answer"])

    @cached_property
    def owners_settings(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]:
        """Settings of the task, of the model and of each probe; without a named task, what no probe
        has belongs to the task that the file names.
        """
        model, mine, parameters = dict[str, Any](), list[str](), dict[str, Any]()
        targets: dict[str, Any] = {name: PROBES[name] for name in self.probes}
        fields = {row["name"] for probe in targets.values() for row in probe.describe()}
        for text in self.given["settings"]:
            name, value = parse_assignment(text)
            if name.startswith("model."):
                model[name.removeprefix("model.")] = value
            elif self.given["task"] or name in fields or name.partition(".")[0] in targets:
                mine.append(text)
            else:
                parameters[name.removeprefix("task.")] = value
        if self.given["task"]:
            targets["task"] = TASKS[self.given["task"]]
        options = assign(mine, targets)
        return parameters | options.pop("task", {}), model, options

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, with the task's and the model's own settings."""
        from mechint.checkpoints import load_checkpoint

        parameters, model, _ = self.owners_settings
        asked = {name: self.given.get(name) for name in ("task", "data", "mapping")}
        device = self.given.get("device", "cpu")
        return load_checkpoint(
            self.path, parameters=parameters, model=model, device=device, **asked
        )

    @cached_property
    def subject(self) -> Subject:
        """The checkpoint as probes are given it, asked about the answer that is meant."""
        subject = self.checkpoint.subject()
        return subject if self.answer is None else subject.with_answer(self.answer)

    def command(
        self, *more: str, probes: Sequence[str] = (), places: str = "", verb: str = "analyze"
    ) -> str:
        """The command that opens the model again, with the settings of `probes` and `more` words.

        places: other paths, quoted for a shell.
        """
        parameters, model, options = self.owners_settings
        words = ["mechint", verb, places or shlex.quote(str(self.path))]
        words += ["--probe " + ",".join(probes)] if probes else []
        plugins = click.get_current_context().meta.get(PLUGINS, ())
        words += [f"--plugin {shlex.quote(text)}" for text in plugins]
        for name, default in OPENS.items():
            if (value := self.given.get(name)) not in (None, default):
                words.append(f"--{name} {shlex.quote(str(value))}")
        owned = {"model": model, **{probe: options.get(probe, {}) for probe in probes}}
        words += set_options(parameters)
        for owner, values in owned.items():
            words += set_options({f"{owner}.{name}": value for name, value in values.items()})
        return " ".join([*words, *more])


def is_folder_of_runs(path: Path) -> bool:
    """Return whether a directory holds runs at any depth, and is none itself."""
    return (
        path.is_dir()
        and not (path / "config.json").is_file()
        and next(path.rglob("config.json"), None) is not None
    )


def one_model(paths: Sequence[Path], verb: str) -> Path:
    """The one path of a command on one model; ParameterError of several, or of a folder of runs."""
    if len(paths) > 1:
        two = "mechint compare A B puts two side by side"
        raise ParameterError(f"{verb}: is for one model; {two}, mechint table PATH… many")
    check_exist(paths)
    if is_folder_of_runs(paths[0]):
        raise ParameterError(
            f"{verb} {paths[0]}: holds several runs; mechint table PATH is a row of each"
        )
    return paths[0]


def check_exist(paths: Sequence[Path]) -> None:
    """CheckpointError of a path that is not there."""
    for path in paths:
        if not path.exists():
            from mechint.models.foreign.local import from_the_hub

            raise CheckpointError(f"{path}: there is no such file{from_the_hub(path)}")


def check_options(given: Mapping[str, Any]) -> None:
    """UnknownNameError of a probe or a task that is not there; ParameterError or RunError where
    ``--out`` is no page, or another's file.
    """
    asked = ((PROBES, given.get("names", ())), (TASKS, filter(None, [given["task"]])))
    for registry, wanted in asked:
        for name in wanted:
            if name not in registry:
                raise UnknownNameError.of(registry.kind, name, registry)
    if (out := given["out"]) is None:
        return
    if out.suffix in (".pdf", ".png", ".svg", ".json", ".csv", ".py"):
        raise ParameterError(
            f"--out {out}: a report is a page; expected NAME.html (a figure alone: "
            "result.figures[NAME].save(FILE) in Python)"
        )
    from mechint.report import check_writable

    check_writable(out, force=given["force"])
    if (csv := given.get("csv")) is not None and out.resolve() == csv.resolve():
        raise ParameterError(f"--out {out}: is the file of --csv too; expected two files")
