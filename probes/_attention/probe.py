"""The attention probe: which heads are of which kind, and what it says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mechint.config import setting
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes._attention.kinds import Rule, add_kind, add_target
from probes._attention.operands import operand_means, operand_positions, preference, swing
from probes._attention.patterns import Patterns, collect, kept_rows
from probes._attention.scores import SCORES
from probes._attention.views import heads_table, pattern_figures
from probes._fourier.spectra import Array, upper_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mechint.planted.calibration import Calibration, Planted, Trial

OPERAND_ALPHA = 0.01


@dataclass(frozen=True)
class Attention(Probe):
    """Where does each head look: from the answer's position to the operands, at the previous or an
    earlier equal token, at a target?

    With A[q, k] the attention of a head from query q to key k, averaged over the data:

    - `operand.attention`: A from the read position to every operand, on tasks with an input grid;
      as images over the grid;
    - `operand.preference`: (A_a − A_b)/(A_a + A_b) for the first two operands, −1 … 1 (remainders:
      heads attend to one digit each); null: the largest |preference| of any head in `untrained`
      models of the same architecture. `operand.swing` is the standard deviation over the inputs of
      the same, taken of every input alone;
    - `previous_token`, `same_token`, `induction`: mean attention on the key before the query, on
      earlier keys with the query's token, on the keys after those (Olsson et al. 2022), over the
      queries that have such a key and `examples` random examples; null: the largest of any head
      with every query's keys in random order. Where these keys have fewer orders than 1/`alpha`, or
      hardly a query has such a key, the probe abstains;
    - `same_token.by_content`, `induction.by_content`: the same less attention on the keys of an
      example drawn at random, for a head that always looks at the same places finds such keys
      wherever they always stand; null: the largest of any head with the keys dealt anew among the
      examples. Where the keys stand alike in all examples, random tokens are repeated at distances
      that vary; where none can be made, the probe abstains;
    - `target.mass`, `target.argmax`: mean attention on a stated key for every query, and the share
      of queries whose largest weight lies there (composition: (i, j) → (i, π_i(j))); null: the
      largest mass of any head with the targets dealt anew among queries that may look there. The
      probe abstains where these are fewer ways than 1/`alpha`.

    A head is of a kind when its scores exceed both nulls at family-wise level `alpha` (over all
    heads), that of random order by `least` in the mean of its own, too: soft heads as well. Where
    none does, but one would alone, the others reach as far at random, and the probe abstains. What
    heads write is not looked at. The preference is decided at 0.01. Cost:
    one forward over the data (several where one example's patterns do not fit the memory), one over
    32 examples of repeated tokens where they are made, and `untrained` forwards over 256 examples.
    Memory: a chunk of patterns, and `examples` examples.
    """

    name: ClassVar[str] = "attention"
    source: ClassVar[str] = (
        "Olsson et al. 2022, In-context Learning and Induction Heads; Elhage et al. 2021, A "
        "Mathematical Framework for Transformer Circuits"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.ATTENTION,)
    quick: ClassVar[bool] = True

    example: int = setting(0, "example that the attention view shows first", low=0)
    examples: int = setting(32, "examples that are kept whole, for the scores and the view", low=1)
    target: tuple[int, ...] | None = setting(
        None, "key each query is expected to look at, -1 for none; the task's own when none", low=-1
    )
    least: float = setting(
        0.1, "least score above the null's mean by which a head is of a kind", low=0, high=1
    )
    alpha: float = setting(0.002, "family-wise level against the nulls", low=1e-6, high=1)
    samples: int = setting(
        999, "samples of the nulls; 2/alpha of them, so that no single one decides", low=1
    )
    untrained: int = setting(
        99, "untrained models in the null of the preference; 0 for none", low=0
    )

    def unmet(self, subject: Subject) -> str | None:
        if len(subject.data) == 0:
            return (
                "it has no examples to attend over; name its task with --task and --set, or give "
                "tokens in Python as Subject(model, None, data=Batch(tokens, targets))"
            )
        ctx = subject.data.tokens.shape[1]
        if self.target is not None and (len(self.target) != ctx or max(self.target) >= ctx):
            return (
                f"attention.target has {len(self.target)} keys up to {max(self.target)}; expected "
                f"one for each of {ctx} positions"
            )
        if self.example >= min(len(subject.data), self.examples):
            return (
                f"attention.example={self.example}: there are "
                f"{min(len(subject.data), self.examples)} examples kept"
            )
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration

        addition = library.another("modular addition", library.addition)
        calibrated = (
            cls._trial(
                "induction head",
                library.induction,
                addition | {"head at a fixed distance": library.fixed_distance},
            ),
            cls._trial("soft induction head", library.soft_induction, {}),
        )
        return Calibration(calibrated, {"samples": 499})

    @staticmethod
    def _trial(
        name: str,
        plant: Callable[[float, int], Planted],
        controls: Mapping[str, Callable[[int], Subject]],
    ) -> Trial:
        from mechint.planted import library
        from mechint.planted.calibration import Trial

        return Trial(
            name,
            plant,
            library.untrained(plant) | dict(controls),
            library.misses(
                lambda result: [
                    (role, one)
                    for role in ("previous_token", "induction")
                    for one in result.metrics[f"{role}.heads"]
                ],
                lambda plant: [
                    ("previous_token", library.head("previous token")(plant)),
                    ("induction", library.head("induction")(plant)),
                ],
            ),
            "heads missed or made up",
            settings={
                "untrained": 0
            },  # the null as it is by default: one sample in 499 would decide
            detects=lambda result: bool(
                result.metrics["previous_token.heads"] and result.metrics["induction.heads"]
            ),
        )

    @property
    def significance(self) -> float:
        return self.alpha

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        operands = operand_positions(subject)
        rows = kept_rows(subject, self.examples, seed)
        patterns = collect(subject, operands, rows)
        report = Report(self, subject)
        rule = Rule(self.alpha, self.least, self.samples, seed)
        report.metric("heads", patterns.names)
        for kind in SCORES:
            add_kind(report, subject, patterns, kind, rule)
        if operands:
            self._operands(report, subject, patterns, operands, seed)
        target = self.target
        if target is None and subject.task is not None:
            target = subject.task.attention_target()
        if target is not None:
            add_target(report, patterns, list(target), rule)
        report.table("heads", heads_table(patterns, report.metrics))
        report.array("pattern", patterns.mean.astype(np.float32))
        drawn = pattern_figures(subject, patterns, operands, self.example, rows, report.metrics)
        for name, figure in drawn.items():
            report.figure(name, figure)
        return report.result()

    def _operands(
        self,
        report: Report,
        subject: Subject,
        patterns: Patterns,
        operands: list[int],
        seed: int,
    ) -> None:
        means = patterns.to_operand.astype(np.float64).mean(1)  # (heads, operand)
        names = patterns.names
        report.metric("operand.positions", operands)
        by_head = dict(zip(names, means.tolist(), strict=True))
        report.metric("operand.attention", by_head)
        if len(operands) < 2:
            return
        values = preference(means)
        report.metric("operand.preference", dict(zip(names, values.tolist(), strict=True)))
        report.metric("operand.swing", dict(zip(names, swing(patterns).tolist(), strict=True)))
        largest = float(np.abs(values).max())
        if not self.untrained or unmet_need(Need.REINITIALIZE, subject):
            report.metric("operand.largest_preference", largest)
            return
        null = self._untrained_preferences(subject, operands, seed)
        how = f"the largest of any head in {self.untrained} untrained models"
        report.metric("operand.largest_preference", largest, null=null, how=how)
        threshold = max(upper_quantile(null, OPERAND_ALPHA), null.mean() + self.least)
        called = {
            name: operands[0] if value > 0 else operands[1]
            for name, value in zip(names, values, strict=True)
            if abs(value) > threshold
        }
        report.metric("operand.heads", called)
        words = ", ".join(
            f"{name} looks at position {position} "
            f"(preference {report.metrics['operand.preference'][name]:+.2f})"
            for name, position in called.items()
        )
        report.finding(
            f"From the answer {words}",
            question="whether a head prefers one operand",
            otherwise=f"No head prefers one operand on average: at most {largest:.2f}",
            null="operand.largest_preference",
            alpha=OPERAND_ALPHA,
            effect=largest - float(null.mean()),
            least=self.least,
            at_chance=True,
        )

    def _untrained_preferences(self, subject: Subject, operands: list[int], seed: int) -> Array:
        part = subject.data[:: max(1, len(subject.data) // 256)]
        models = (subject.untrained(seed * self.untrained + i) for i in range(self.untrained))
        return np.array(
            [np.abs(preference(operand_means(model, part, operands))).max() for model in models]
        )
