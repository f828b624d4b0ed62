"""The model that a command opens: its ``--set`` texts sorted by owner, the command that opens it
again, and the lines that are read before its numbers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechint.cli.common import PLUGINS, answer_of
from mechint.config import assign, parse_assignment
from mechint.config._assign import set_options
from mechint.errors import CheckpointError, ParameterError, UnknownNameError
from mechint.registry import PROBES, TASKS

if TYPE_CHECKING:
    from mechint.checkpoints import Checkpoint
    from mechint.subject import Subject, Which


@dataclass(frozen=True)
class Opening:
    """A model, how it is opened, and the probes that it is asked by.

    settings: the ``--set`` texts; data: a file of prompts; answer: which one probes ask about, the
    last when None; plugins: ``--plugin`` texts; probes: those that run, whose settings may stand
    without their name.
    """

    path: Path
    task: str | None = None
    settings: Sequence[str] = ()
    device: str = "cpu"
    data: Path | None = None
    mapping: Path | None = None
    seed: int = 0
    answer: Which | None = None
    plugins: Sequence[str] = ()
    probes: Sequence[str] = ()

    @classmethod
    def of(cls, path: Path, given: Mapping[str, Any]) -> Opening:
        """The opening of a path by the options of a command."""
        return cls(
            path,
            given["task"],
            given["settings"],
            given["device"],
            given.get("data"),
            given.get("mapping"),
            given["seed"],
            answer_of(given["answer"]),
            click.get_current_context().meta.get(PLUGINS, ()),
            given.get("names", ()),
        )

    @cached_property
    def sorted(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]:
        """Settings of the task, of the model and of each probe; without a named task, what no probe
        has belongs to the task that the file names.
        """
        model, mine, parameters = dict[str, Any](), list[str](), dict[str, Any]()
        targets: dict[str, Any] = {name: PROBES[name] for name in self.probes}
        fields = {row["name"] for probe in targets.values() for row in probe.describe()}
        for text in self.settings:
            name, value = parse_assignment(text)
            if name.startswith("model."):
                model[name.removeprefix("model.")] = value
            elif self.task or name in fields or name.partition(".")[0] in targets:
                mine.append(text)
            else:
                parameters[name.removeprefix("task.")] = value
        if self.task is not None:
            targets["task"] = TASKS[self.task]
        options = assign(mine, targets)
        return parameters | options.pop("task", {}), model, options

    def load(self) -> Checkpoint:
        """The checkpoint, with the task's and the model's own settings."""
        from mechint.checkpoints import load_checkpoint

        return load_checkpoint(
            self.path,
            task=self.task,
            parameters=self.sorted[0],
            device=self.device,
            model=self.sorted[1],
            data=self.data,
            mapping=self.mapping,
        )

    def subject(self, opened: Checkpoint) -> Subject:
        """The checkpoint as probes are given it, asked about the answer that is meant."""
        subject = opened.subject()
        return subject if self.answer is None else subject.with_answer(self.answer)

    def command(
        self, *more: str, probes: Iterable[str] = (), places: str = "", verb: str = "analyze"
    ) -> str:
        """The command that opens the model again, with the settings of `probes` and `more` words.

        places: other paths, quoted for a shell.
        """
        parameters, model, options = self.sorted
        words = ["mechint", verb, places or shlex.quote(str(self.path))]
        words += ["--probe " + ",".join(probes)] if (probes := list(probes)) else []
        words += [f"--plugin {shlex.quote(text)}" for text in self.plugins]
        words += [f"--task {self.task}"] if self.task else []
        words += [f"--data {shlex.quote(str(self.data))}"] if self.data else []
        words += [f"--mapping {shlex.quote(str(self.mapping))}"] if self.mapping else []
        words += set_options(parameters)
        words += set_options({f"model.{name}": value for name, value in model.items()})
        for probe in probes:
            given = options.get(probe, {})
            words += set_options({f"{probe}.{name}": value for name, value in given.items()})
        words += [f"--device {self.device}"] if self.device != "cpu" else []
        words += [f"--answer {self.answer}"] if self.answer is not None else []
        words += [f"--seed {self.seed}"] if self.seed else []
        return " ".join([*words, *more])


def assumptions(opened: Checkpoint) -> list[str]:
    """One line per thing that the file does not state: what was assumed, why, how to set it."""
    lines = []
    fields = set(opened.config.to_dict()) if hasattr(opened.config, "to_dict") else set()
    for name, item in opened.assumed.items():
        shown = "none" if item.value is None else item.value
        settable = f"; --set model.{name}=… sets it" if name in fields else ""
        lines.append(f"assumed {name} = {shown}: {item.why}{settable}")
    return lines


def warnings_of(opened: Checkpoint) -> list[str]:
    """Lines to read before the numbers: how well it answers, and no task."""
    lines = list(opened.warnings())
    if opened.task is None:
        fitting = " or ".join(opened.proposals)
        lines.append(
            "no task is known, so only probes that need none apply; name it with --task and --set, "
            "or give a language model prompts with --data"
            + (f": {fitting} fits the vocabulary" if fitting else "")
        )
    return lines


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
            from mechint.checkpoints.hub import from_the_hub

            raise CheckpointError(f"{path}: there is no such file{from_the_hub(path)}")


def check_names(given: Mapping[str, Any]) -> None:
    """UnknownNameError of a probe or a task that is not there."""
    for registry, wanted in ((PROBES, given["names"]), (TASKS, filter(None, [given["task"]]))):
        for name in wanted:
            if name not in registry:
                raise UnknownNameError.of(registry.kind, name, registry)


def check_page(given: Mapping[str, Any]) -> None:
    """ParameterError or RunError where ``--out`` is no page, or another's file."""
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
