"""The options by which one model is opened and probed, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechint.checkpoints import Checkpoint
    from mechint.subject import Which


@dataclass(frozen=True)
class Opening:
    """The options that ``mechint analyze`` was given for one model.

    settings: the ``--set`` texts; data: a file of prompts; answer: which one probes ask about, the
    last when None; plugins: ``--plugin`` texts; probes: those that run, whose settings may stand
    without their name.
    """

    path: Path
    task: str | None = None
    settings: Sequence[str] = ()
    device: str = "cpu"
    data: Path | None = None
    seed: int = 0
    answer: Which | None = None
    plugins: Sequence[str] = ()
    probes: Sequence[str] = ()
    mapping: Path | None = None

    def load(self, parameters: dict[str, Any], model: dict[str, Any]) -> Checkpoint:
        """The checkpoint, with the task's and the model's own settings."""
        from mechint.checkpoints import load_checkpoint

        return load_checkpoint(
            self.path,
            task=self.task,
            parameters=parameters,
            device=self.device,
            model=model,
            data=self.data,
            mapping=self.mapping,
        )

    def options(self, probes: Iterable[str] | None = None) -> str:
        """Command-line options that reproduce this opening, with the settings of `probes` if
        given.
        """
        named = set(probes or ())
        kept = [text for text in self.settings if (of := self._owners(text)) is None or of & named]
        parts = [f"--plugin {text}" for text in map(shlex.quote, self.plugins)]
        parts += [f"--task {self.task}"] if self.task else []
        parts += [f"--data {shlex.quote(str(self.data))}"] if self.data else []
        parts += [f"--mapping {shlex.quote(str(self.mapping))}"] if self.mapping else []
        parts += [f"--set {shlex.quote(text)}" for text in kept]
        parts += [f"--device {self.device}"] if self.device != "cpu" else []
        parts += [f"--answer {self.answer}"] if self.answer is not None else []
        parts += [f"--seed {self.seed}"] if self.seed else []
        return "".join(f" {part}" for part in parts)

    def _owners(self, text: str) -> set[str] | None:
        """The probes that a ``--set`` text is for; None where it is the task's or the model's."""
        from mechint.registry import PROBES

        name = text.partition("=")[0].strip()
        if (first := name.partition(".")[0]) in PROBES:
            return {first}
        fields = {probe: [row["name"] for row in PROBES[probe].describe()] for probe in self.probes}
        return {probe for probe, names in fields.items() if name in names} or None

    def command(self, path: Path, probes: Sequence[str]) -> str:
        """The command that runs `probes` on the model in `path`."""
        asked = f"mechint analyze {shlex.quote(str(path))} --probe {','.join(probes)}"
        return f"{asked}{self.options(probes)}"
