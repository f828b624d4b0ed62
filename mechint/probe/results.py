"""The result of a probe: numbers beside their null, findings, tables, arrays and figures, as data.

The terminal table, the notebook view, the HTML report and the DataFrame are views of a ProbeResult.
"""

# pandas and plotly are untyped, and a value to show is of any type
# pyright: reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from rich.text import Text

from mechint.decide import Verdict
from mechint.decide.null import MIN_PRINTED_P, Null
from mechint.errors import ParameterError, percent
from mechint.figures.figure import Figure
from mechint.probe.text import rank, result_text
from mechint.system.files import csv_text, write_text
from mechint.system.jsonable import (
    Shown,
    as_html,
    decode_array,
    encode_array,
    from_jsonable,
    to_jsonable,
)

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 3
"""Version of the JSON form."""


@dataclass(frozen=True)
class Effect:
    """The size of what a finding claims, with the value that it stands against.

    value, baseline: in `unit`; label: what was measured ("loss without them"); baseline_label:
    what the baseline is ("without the others", "chance", "published clock"). interval: 95%; beside
    one no p-value is printed, which would be of another statistic.

    >>> print(Effect(5.5, "nats", "loss without them", -4e-17, "without the others"))
    loss without them 5.5 nats (without the others 0)
    >>> print(Effect(0.91, label="share of the energy", baseline=0.214, baseline_label="chance"))
    share of the energy 91% (chance 21%)
    """

    value: float
    unit: str = ""
    label: str = ""
    baseline: float | None = None
    baseline_label: str = "null"
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, null: Null, unit: str = "", label: str = "", than: str = "null") -> Effect:
        """An observation beside the mean of its null; than: what the latter is."""
        return cls(null.observed, unit, label, null.mean, than)

    def __str__(self) -> str:
        share = self.label.startswith(("share", "accuracy"))
        least = max(1e-12, 1e-6 * max(abs(self.value), abs(self.baseline or 0.0)))  # is rounding

        def text(value: float) -> str:
            return percent(value, 0) if share else "0" if abs(value) < least else f"{value:.3g}"

        ends = "[{}, {}]".format(*map(text, self.interval)) if self.interval else ""
        own = " ".join(filter(None, (self.label, text(self.value), ends, self.unit)))
        beside = "" if self.baseline is None else f" ({self.baseline_label} {text(self.baseline)})"
        return own + beside


@dataclass(frozen=True)
class Scope:
    """The inputs, answers and components that a finding was asked of. The default is: all inputs,
    the one answer, each component separately.

    drawn: inputs, where these are not all; inputs: their number and what they are, in words, where
    they were chosen, not drawn at random of all. answers: the one that was asked, of several.
    components: those asked, of how many there are; together: they were edited at once.

    >>> str(Scope(drawn=1500, answers="the units", components=(2, 8), together=True))
    'on 1,500 inputs drawn, the units alone, 2 of 8 components together'
    >>> str(Scope())
    ''
    """

    drawn: int | None = None
    answers: str = ""
    components: tuple[int, int] | None = None
    together: bool = False
    inputs: str = ""

    def __str__(self) -> str:
        """The scope as a clause; "" where it needs none."""
        asked = (
            "" if self.components is None else "{:,} of {:,} components".format(*self.components)
        )
        parts = (
            "" if self.drawn is None else f"on {self.inputs or f'{self.drawn:,} inputs drawn'}",
            f"{self.answers} alone" if self.answers else "",
            " ".join(filter(None, (asked, "together" if self.together else ""))),
        )
        return ", ".join(filter(None, parts))

    def beside(self, other: Scope) -> Scope:
        """The scope without the inputs and answers that `other` has said."""
        same = (self.drawn, self.inputs) == (other.drawn, other.inputs)
        drawn = None if same else self.drawn
        return replace(self, drawn=drawn, answers=self.answers * (self.answers != other.answers))

    def within(self, others: Iterable[Scope]) -> Scope:
        """The scope on the fewest inputs of all, and of the answer that any of them is of."""
        every = [self, *others]
        least = min(every, key=lambda one: math.inf if one.drawn is None else one.drawn)
        answers = next((one.answers for one in every if one.answers), "")
        return replace(self, drawn=least.drawn, inputs=least.inputs, answers=answers)


EACH = Scope()
"""All inputs, the one answer, each component by itself."""


@dataclass(frozen=True, repr=False)
class Finding(Shown):
    """One answer of a probe: a verdict, a headline, and the numbers that decided it.

    headline: at most fifteen words, subject first. verdict: "yes" where the claim stands, "no"
    where it was tested and does not, "unclear" where this model, these data or this null cannot
    tell; `reason` then says why. effect: the size of the claim, which had to exceed `least`.
    p_value, null: of the null that decided, and what it is ("permuted classes, 499"); None where
    none did. details: label → value, for `--full` and folded tables. caveat: one clause. alpha,
    tested: the level, and the metrics whose nulls had to reach it. n: examples or pairs. causal:
    made by intervening. accuracy, chance: of the model, where the claim is about its answers.
    scope: what it was asked of.
    """

    headline: str
    verdict: Verdict
    effect: Effect | None = None
    p_value: float | None = None
    null: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    caveat: str = ""
    reason: str = ""
    alpha: float | None = None
    tested: tuple[str, ...] = ()
    least: float = 0.0
    n: int | None = None
    causal: bool = False
    accuracy: float | None = None
    chance: float | None = None
    scope: Scope = EACH

    @property
    def p_text(self) -> str:
        """The p-value that decided, as it is printed; empty where none did.

        >>> Finding("A.", "yes", p_value=0.002, null="shuffled labels, 499").p_text
        'p ≤ 0.002'
        """
        if self.p_value is None or (self.effect is not None and self.effect.interval):
            return ""
        if self.p_value < MIN_PRINTED_P:
            return f"p < {MIN_PRINTED_P:g}"
        samples = (self.null or "").rpartition(", ")[2]
        at_floor = samples.isdigit() and self.p_value * (1 + int(samples)) <= 1 + 1e-9
        return f"p {'≤' if at_floor else '='} {self.p_value:.2g}"

    def text(self, width: int = 100) -> Text:
        """The finding as one line: headline, effect, p-value, scope, caveat; of an unclear one the
        reason.

        >>> print(Finding("L0H1 copies.", "yes", Effect(0.9, label="share"), caveat="one head"))
        L0H1 copies (share 90%; one head).
        """
        more = (
            str(self.effect or ""),
            self.p_text,
            str(self.scope),
            self.caveat,
            self.reason.rstrip("."),
        )
        added = "; ".join(filter(None, more))
        return Text(f"{self.headline.rstrip('.')} ({added})." if added else self.headline)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From its fields as JSON values."""
        return from_jsonable(cls, data)


@dataclass(frozen=True, repr=False)
class PaperClaim(Shown):
    """One statement of a paper held against runs, with its verdict: "supported", "refuted",
    "inconclusive" or "not run".

    id: letter and number within the study; theirs, ours: the paper's number and the one measured
    here with its 95% interval, as text; value, interval, n: ours as numbers, from n independent
    runs; criterion: fixed before the runs; power: probability that the planned runs decide for the
    statement if it holds; control: outcome of the positive control; size: of the study; note: one
    sentence; late: the criterion was fixed after these runs were seen; own: a
    statement that the paper does not make; experiment: the arms whose runs were asked.
    """

    study: str
    id: str
    statement: str
    theirs: str = ""
    ours: str = ""
    verdict: str = "not run"
    value: float | None = None
    interval: tuple[float, float] | None = None
    n: int = 0
    criterion: str = ""
    power: float | None = None
    control: str = ""
    note: str = ""
    size: str = ""
    late: bool = False
    own: bool = False
    experiment: tuple[str, ...] = ()

    def text(self, width: int = 100) -> Text:
        """The claim with its verdict and number, and its positive control where that failed.

        >>> asked = "share above 0.4; control: every run learns the 1-hop"
        >>> of = {"verdict": "inconclusive", "ours": "0.5", "criterion": asked}
        >>> print(PaperClaim("s", "a", "It learns.", **of, control="failed: 3 of 8"))
        a   inconclusive  It learns.
                          0.5
                          control failed: 3 of 8; asked for: every run learns the 1-hop
        """
        text = f"{self.id:<3} {self.verdict:<13} {self.statement}\n{'':<18}{self.ours or self.note}"
        if self.control.startswith("failed"):
            asked = self.criterion.rpartition("; control: ")[2]
            text += f"\n{'':<18}control {self.control}; asked for: {asked}"
        return Text(text)


SHOWN = 20
"""Rows of a table, and figures of a result, that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Table:
    """Columns of equal length; `caption` says what a row is, `units` column → unit."""

    columns: Mapping[str, Sequence[Any]]
    caption: str = ""
    units: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_dict(self) -> dict[str, Any]:
        """Columns, caption and units as JSON values."""
        return {
            "columns": to_jsonable(self.columns),
            "caption": self.caption,
            "units": dict(self.units),
        }

    @property
    def titles(self) -> list[str]:
        """The names of the columns, with their units."""
        units = {name: f" ({unit})" for name, unit in self.units.items()}
        return [f"{name}{units.get(name, '')}" for name in self.columns]

    def to_frame(self) -> pd.DataFrame:
        """One column per column."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))

    def save(self, path: str | Path) -> None:
        """Write the table as CSV, with the units beside the names of columns.

        Raises:
            RunError: a file that cannot be written.

        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "heads.csv"
        >>> Table({"head": ["L0H1"], "score": [0.25]}, "One head", {"score": "nats"}).save(place)
        >>> place.read_text().splitlines()
        ['head,score (nats)', 'L0H1,0.25']
        """
        rows = zip(*self.columns.values(), strict=True)
        write_text(path, csv_text([dict(zip(self.titles, row, strict=True)) for row in rows]))

    def __len__(self) -> int:
        """The number of rows."""
        return max(map(len, self.columns.values()), default=0)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(map(str, self.columns))})"

    def _repr_html_(self) -> str:
        """The first rows, with units, and the caption above them."""
        rows = list(zip(*(column[:SHOWN] for column in self.columns.values()), strict=False))
        more = len(self) - len(rows)
        rest = f"<p>… and {more} more rows; to_frame() has all</p>" if more > 0 else ""
        return f"<p>{html.escape(self.caption)}</p>{as_html(self.titles, rows)}{rest}"


@dataclass(frozen=True, repr=False)
class ProbeResult(Shown):
    """The outcome of one probe on one subject.

    metrics: flat, "group.name" → number, text, list or dictionary of numbers; units: metric → unit,
    where it has one. null: metric → Null. findings: the answers, "yes" before "no" before
    "unclear". lead: the words that may become the verdict of an account, "" where the leading
    finding is not "yes"; lead_rank: how early it does, 0 to 100. hero: the name of the one figure
    to show first. not_asked: (question, reason) of questions that cannot arise for the subject.
    arrays: large numbers, with the tables. provenance: checkpoint, task, probe settings, seed.
    """

    probe: str
    question: str
    metrics: Mapping[str, Any]
    findings: tuple[Finding, ...]
    null: Mapping[str, Null] = field(default_factory=dict[str, Null])
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    figures: Mapping[str, Figure] = field(default_factory=dict[str, Figure])
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    units: Mapping[str, str] = field(default_factory=dict[str, str])
    lead: str = ""
    lead_rank: int = 0
    hero: str = ""
    not_asked: tuple[tuple[str, str], ...] = ()

    @property
    def verdict(self) -> Verdict:
        """ "yes" where any finding is, else "no" where any question was decided, else "unclear"."""
        if not self.findings:
            return "unclear"
        return min(self.findings, key=lambda one: rank(one.verdict)).verdict

    @property
    def headline(self) -> str:
        """Headline of the leading finding."""
        first = min(self.findings, key=lambda one: rank(one.verdict), default=None)
        return "" if first is None else first.headline

    @property
    def finding(self) -> str:
        """All findings in one text."""
        return " ".join(map(str, self.findings))

    def __eq__(self, other: object) -> bool:
        """Return whether all is the same, arrays bit for bit and figures too."""
        return isinstance(other, ProbeResult) and self.to_json() == other.to_json()

    def to_dict(self) -> dict[str, Any]:
        """JSON values without arrays and figures: what ``--json`` prints."""
        return {
            "schema": SCHEMA,
            "probe": self.probe,
            "question": self.question,
            "verdict": self.verdict,
            "lead": self.lead,
            "lead_rank": self.lead_rank,
            "hero": self.hero,
            "findings": [finding.to_dict() for finding in self.findings],
            "not_asked": [list(pair) for pair in self.not_asked],
            "metrics": to_jsonable(self.metrics),
            "units": dict(self.units),
            "null": {name: null.to_dict() for name, null in self.null.items()},
            "tables": {name: table.to_dict() for name, table in self.tables.items()},
            "provenance": to_jsonable(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProbeResult:
        """From the values of `to_dict` or `to_json`; ValueError for another schema."""
        fields = dict(data)
        if fields.pop("schema", None) != SCHEMA:
            raise ValueError(f"schema {data.get('schema')!r}; expected {SCHEMA}")
        arrays = fields.pop("arrays", {})
        made = from_jsonable(cls, fields)
        return replace(made, arrays={name: decode_array(one) for name, one in arrays.items()})

    def to_json(self) -> str:
        """Everything, arrays and figures too; `from_json` gives an equal result, keys as text."""
        arrays = {name: encode_array(array) for name, array in self.arrays.items()}
        figures = {name: figure.to_dict() for name, figure in self.figures.items()}
        return json.dumps({**self.to_dict(), "arrays": arrays, "figures": figures}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ProbeResult:
        """The result that `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def to_pyvene(self, model: Any) -> Any:
        """The subspace that `das` found as a pyvene ``IntervenableModel`` of `model`, which
        interchanges it; see `mechint.interventions.pyvene_bridge`.

        Raises:
            ParameterError: a result without a subspace, or no such hook in the model.
        """
        from mechint.interventions.pyvene_bridge import to_pyvene

        if "subspace" not in self.arrays:
            raise ParameterError(f"to_pyvene: {self.probe} found no subspace; das finds one")
        import torch

        columns = torch.tensor(self.arrays["subspace"])
        return to_pyvene(model, columns.to(next(model.parameters())), self.metrics["hook"])

    def to_frame(self) -> pd.DataFrame:
        """One row per metric: value, unit, null mean, z, p-value."""
        import pandas as pd

        rows = [
            {
                "metric": name,
                "value": value,
                "unit": self.units.get(name, ""),
                "null_mean": null and null.mean,
                "z": null and null.z,
                "p_value": null and null.p_value,
            }
            for name, value in self.metrics.items()
            for null in [self.null.get(name)]
        ]
        return pd.DataFrame(rows)

    def text(self, width: int = 100) -> Text:
        return result_text(self, width)

    def _repr_html_(self) -> str:
        """The text, the hero, every metric with its null, and the figures as drawings;
        ``result.figures[name]`` alone is interactive.
        """
        order = sorted(self.figures, key=lambda name: name != self.hero)
        drawings = [self.figures[name].drawing_html(name) for name in order[:SHOWN]]
        numbers = f"<details><summary>all numbers</summary>{self.to_frame().to_html()}</details>"  # pyright: ignore[reportUnknownMemberType]
        return "".join([super()._repr_html_(), *drawings[:1], numbers, *drawings[1:]])
