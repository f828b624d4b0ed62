"""What is searched for, as a sweep's folder keeps it."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.errors import ParameterError, RunError
from mechint.files import make_directory, parse_json, read_bytes, write_text
from mechint.sweeps.plan import make_spec, run_name
from mechint.sweeps.search.space import Space

if TYPE_CHECKING:
    from mechint.training import Spec

SEARCH = "search.json"
SAMPLERS = ("tpe", "random")


@dataclass(frozen=True)
class Search:
    """What is searched for.

    settings: ``name=value`` of every run; spaces: of the settings that are searched; over: name →
    values that every trial trains a run each for, the objective being their mean; objective: a
    metric of the last evaluation ("test.accuracy"), or PROBE.METRIC of a probe; at_once: trials
    that are asked for and trained together.
    """

    task: str
    settings: tuple[str, ...]
    spaces: tuple[Space, ...]
    over: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    objective: str = "test.accuracy"
    minimize: bool = False
    sampler: str = "tpe"
    seed: int = 0
    at_once: int = 8

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise ParameterError(f"--sampler {self.sampler}: expected {' or '.join(SAMPLERS)}")
        if not self.spaces:
            raise ParameterError("search: expected a space, such as --search lr=1e-4..1e-2:log")
        for space in self.spaces:  # a name or an end that does not fit is said before any training
            for value in space.choices or (space.low, space.high):
                first = {name: values[0] for name, values in self.over.items()}
                number = int(value) if space.whole else value
                make_spec(self.task, self.settings, {**first, space.name: number})

    def to_json(self) -> str:
        """The search as JSON text; `from_json` reads it back."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Search:
        """The inverse of `to_json`; KeyError or TypeError where it is none."""
        spaces = [Space(**{**one, "choices": tuple(one["choices"])}) for one in data["spaces"]]
        return cls(**{**data, "settings": tuple(data["settings"]), "spaces": tuple(spaces)})

    def specs(self, number: int, values: Mapping[str, Any], out: Path) -> list[Spec]:
        """The runs of a trial."""
        swept = [
            dict(zip(self.over, some, strict=True))
            for some in itertools.product(*self.over.values())
        ]
        place = out / f"trial={number:04d}"
        return [
            make_spec(
                self.task, self.settings, {**values, **one}, place / run_name(one) if one else place
            )
            for one in swept
        ]


def keep_search(search: Search, out: Path) -> None:
    """Write what is searched for into `out`; RunError if `out` holds something else."""
    file = make_directory(out) / SEARCH
    if file.exists():
        if read_search(out).to_json() != search.to_json():
            raise RunError(f"{out}: holds another search; choose another --out")
    elif any(path.name != ".lock" and not path.name.endswith(".part") for path in out.iterdir()):
        raise RunError(f"{out}: holds something else; choose an empty directory for the search")
    else:
        write_text(file, search.to_json())


def read_search(out: Path) -> Search:
    """The search in the directory `out`."""
    try:
        return Search.from_json(parse_json(read_bytes(out / SEARCH), out / SEARCH))
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{out}: holds no search: {error}") from error
