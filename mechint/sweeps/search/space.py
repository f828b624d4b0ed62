"""The values that a search may give a setting."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from mechint.config.assign import parse_value
from mechint.config.settings import shown
from mechint.errors import ParameterError


@dataclass(frozen=True)
class Space:
    """The values that one setting is searched in: from `low` to `high`, or one of `choices`.

    log: the logarithm is drawn evenly; whole: integers.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Space:
        """The space of a ``--search``.

        Raises:
            ParameterError: it is none.

        >>> Space.parse("lr=1e-4..1e-2:log").log, Space.parse("d_mlp=32..64").whole
        (True, True)
        >>> Space.parse("optimizer=adamw,muon").choices
        ('adamw', 'muon')
        """
        where = f"--search {shown(text)}"
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values:
            raise ParameterError(f"{where}: expected name=low..high, name=low..high:log or a list")
        match = re.fullmatch(r"([^.,:]+(?:\.\d[^.,:]*)?)\.\.([^,:]+?)(:log)?", values)
        if match is None:
            choices = tuple(parse_value(part, where) for part in values.split(","))
            if len({json.dumps(choice) for choice in choices}) < max(2, len(choices)):
                raise ParameterError(f"{where}: expected two values or more, each once")
            return cls(name, choices=choices)
        low, high = (parse_value(part, where) for part in match.groups()[:2])
        numbers = all(isinstance(end, int | float) for end in (low, high))
        if not numbers or isinstance(low, bool) or not -math.inf < low < high < math.inf:
            raise ParameterError(f"{where}: expected two numbers, the smaller one first")
        if match[3] and low <= 0:
            raise ParameterError(f"{where}: expected ends above 0, since it is logarithmic")
        whole = isinstance(low, int) and isinstance(high, int)
        return cls(name, float(low), float(high), bool(match[3]), whole)

    def distribution(self) -> Any:
        """Optuna's object for it."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self.choices)
        if self.whole:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return distributions.FloatDistribution(self.low, self.high, log=self.log)
