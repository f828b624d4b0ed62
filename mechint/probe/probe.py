"""Probe: a calibrated measurement on a subject.

A probe is one file: a frozen dataclass that derives from `Probe`, whose docstring's first line is
its question, and one line in ``pyproject.toml`` or an entry point of another distribution.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
import math
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch

from mechint.config import Settings, setting
from mechint.decide import Claim
from mechint.errors import MechintError, NotApplicableError
from mechint.figures import histogram
from mechint.models.protocol import Capability
from mechint.probe.report import Report as Report
from mechint.probe.results import Effect, ProbeResult
from mechint.registry import PROBES, reduced, summary
from mechint.subject import Subject, Which, check_subjects
from mechint.system.progress import counting_if
from mechint.task import FiniteTask

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


INITIAL = "the same architecture with initial weights"
"""The null of a probe by a function, in words."""


class Need(StrEnum):
    """A property that a probe needs of its subject; `unmet_need` says what each asks for."""

    TASK = "task"
    FINITE = "finite"
    GRID = "grid"
    SYMMETRY = "symmetry"
    VARIABLES = "variables"
    ANSWERS = "answers"
    ATTENTION = "attention"
    MLP = "mlp"
    EMBEDDING = "embedding"
    RESIDUAL = "residual"
    SERIES = "series"
    REINITIALIZE = "reinitialize"
    EDIT_WEIGHTS = "edit_weights"
    HEAD_WEIGHTS = "head_weights"


def _has_hook(subject: Subject, ending: str) -> bool:
    return any(name.endswith(ending) for name in subject.hooks)


def _capable(capability: Capability) -> tuple[Callable[[Subject], bool], str]:
    return (
        lambda subject: capability in subject.capabilities,
        f"its model cannot {capability.value}",
    )


def _has_grid(subject: Subject) -> bool:
    return isinstance(subject.task, FiniteTask) and len(subject.task.grid) >= 2


SEVERAL = {
    1: "some prompts have several right answers; ask heads, patching, ablation, attribution or "
    "circuits",
    2: "some answers are several tokens; ask heads",
}
"""`Task.several` → why a probe that does not read such answers is not asked."""

NEEDS: Mapping[Need, tuple[Callable[[Subject], bool], str]] = {
    Need.TASK: (lambda subject: subject.task is not None, "no task is known for it"),
    Need.FINITE: (
        lambda subject: isinstance(subject.task, FiniteTask),
        "its task's inputs cannot be enumerated",
    ),
    Need.GRID: (
        lambda subject: _has_grid(subject) and subject.on_grid,
        "its task has no input grid",
    ),
    Need.SYMMETRY: (
        lambda subject: subject.task is not None and subject.task.symmetry is not None,
        "its task has no symmetry group",
    ),
    Need.VARIABLES: (
        lambda subject: subject.task is not None and bool(subject.task.variables),
        "its task names no causal variables",
    ),
    Need.ANSWERS: (
        lambda subject: len(subject.answers) > 0,
        "its task reads no answer at a position",
    ),
    Need.ATTENTION: (
        lambda subject: _has_hook(subject, "attn.hook_pattern"),
        "the model shows no attention pattern",
    ),
    Need.MLP: (lambda subject: _has_hook(subject, "mlp.hook_post"), "the model has no MLP"),
    Need.EMBEDDING: (
        lambda subject: getattr(subject.model, "W_E", None) is not None,
        "the model has no token embedding",
    ),
    Need.RESIDUAL: (
        lambda subject: _has_hook(subject, "hook_resid_post"),
        "the model has no residual stream",
    ),
    Need.SERIES: (
        lambda subject: len(subject.series) > 1,
        "it is one checkpoint, not a run with several",
    ),
    Need.REINITIALIZE: _capable(Capability.REINITIALIZE),
    Need.EDIT_WEIGHTS: _capable(Capability.EDIT_WEIGHTS),
    Need.HEAD_WEIGHTS: _capable(Capability.HEAD_WEIGHTS),
}
"""Need → whether a subject meets it, and what is said where it does not."""

_NEED_A_TASK = {Need.FINITE, Need.GRID, Need.SYMMETRY, Need.VARIABLES, Need.ANSWERS}


def unmet_need(need: Need, subject: Subject) -> str | None:
    """The reason for which `subject` does not meet `need`, in one line; None where it does."""
    if subject.task is None and (need is Need.TASK or need in _NEED_A_TASK):
        return "no task is known for it; name one with --task and --set"
    meets, reason = NEEDS[need]
    if need is Need.VARIABLES and subject.task is not None:
        reason = subject.task.without_variables
    if need is Need.GRID and _has_grid(subject):
        reason = "its data are not all of its task's inputs, in the order of the grid"
    if meets(subject):
        return None
    argument = getattr(subject.model, "missing", {}).get(need.value)
    return f"{reason}: give wrap {argument}" if argument else reason


class Probe(Settings, abc.ABC):
    """Base of all probes; its fields are its settings.

    Class attributes:
        name: of the registry.
        topic: heading under which ``mechint probes`` lists it.
        source: the paper (section, equation) that the method is from.
        needs: what it asks of a subject, members of `Need`; checked when the class is made.
        lead_rank: how early its lead becomes the verdict of an account, 0 (last) to 100.
        quick: whether ``mechint analyze`` runs it unasked; for what answers in seconds.
        intervenes: whether it changes activations or weights; only then may it say "causal".
        several: of `Task.several`, what it reads: 1 answers of several right classes, 2 of several
            tokens, too.
        level: the p-value up to which a finding holds, of a probe without a setting `alpha`.
        question: the first line of the docstring.
    """

    name: ClassVar[str]
    topic: ClassVar[str] = "other"
    source: ClassVar[str]
    needs: ClassVar[tuple[Need, ...]] = ()
    quick: ClassVar[bool] = False
    lead_rank: ClassVar[int] = 0
    level: ClassVar[float] = 0.01
    intervenes: ClassVar[bool] = False
    several: ClassVar[int] = 0
    question: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.question = summary(inspect.getdoc(cls))
        needs = cast("tuple[object, ...]", cls.needs)  # whatever the author wrote
        strangers = [need for need in needs if not isinstance(need, Need)]
        if strangers:
            raise TypeError(
                f"probe {cls.__name__}: needs has {strangers[0]!r}; expected members of "
                f"mechint.Need: {', '.join(need.name for need in Need)}"
            )

    @staticmethod
    def of(
        *, question: str, null: Untrained, needs: Sequence[Need] = (), source: str = "a function"
    ) -> Callable[[Callable[[Subject], float]], Probe]:
        """A decorator that makes a probe of a function from a subject to a number, larger is more.

        Args:
            question: what the number answers; null: `untrained(199)`, the models whose numbers it
                has to exceed; needs: of the subject; source: of
                the method.

        >>> from mechint import planted
        >>> @Probe.of(question="Is the embedding large?", null=untrained(99))
        ... def length_of_embedding(subject):
        ...     return subject.model.W_E.norm()
        >>> subject = planted.modular_addition(11, (2, 3)).subject
        >>> length_of_embedding.run(subject).findings[0].headline
        'The length of embedding is larger than in the same architecture with initial weights.'
        """

        def made(function: Callable[[Subject], float]) -> Probe:
            told = {
                "__module__": function.__module__,
                "__doc__": question,
                "__annotations__": {"models": "int"},
                "name": function.__name__.replace("_", "-"),
                "source": source,
                "needs": (*needs, Need.REINITIALIZE),
                "function": staticmethod(function),
                "models": setting(null.models, f"models of the null: {INITIAL}", low=1),
            }
            return dataclasses.dataclass(frozen=True)(type("FunctionProbe", (_Function,), told))()

        return made

    # --- what a probe defines ---------------------------------------------------------------------
    @abc.abstractmethod
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        """The measurement itself, built with a `Report`; `run` guards it and adds provenance."""

    def unmet(self, subject: Subject) -> str | None:
        """The reason for which the probe cannot ask its question of `subject` beyond `needs`; None
        when it can.
        """
        return None

    @property
    def significance(self) -> float:
        """The level at which the probe decides: what the p-values of a finding may not exceed; the
        setting `alpha` where it has one.
        """
        return getattr(self, "alpha", self.level)

    @classmethod
    def calibration(cls) -> Calibration:
        """The plants it must find, the controls it must be silent on, and settings for tests.

        Import `mechint.planted` inside: listing the probes must not load it.
        """
        from mechint.planted.calibration import Calibration

        return Calibration()

    # --- what a probe is asked --------------------------------------------------------------------
    def applicable(self, subject: Subject) -> str | None:
        """None, or the reason why the probe does not apply to `subject`."""
        reasons = (unmet_need(need, subject) for need in self.needs)
        several = getattr(subject.task, "several", 0)
        told = "" if several <= self.several else SEVERAL[several]
        return next(filter(None, reasons), told) or self.unmet(subject)

    def require_applicable(self, subject: Subject) -> None:
        """Raise NotApplicableError with the reason `applicable` gives, where there is one."""
        if reason := self.applicable(subject):
            raise NotApplicableError(
                f"probe {self.name} does not apply to {subject.describe()}: {reason}"
            )

    def run(
        self,
        subject: Subject,
        *,
        seed: int = 0,
        answer: Which | None = None,
        progress: bool = False,
    ) -> ProbeResult:
        """Measure `subject`.

        Leaves model, hooks, training mode and global RNG state as they were, after an error too.

        Args:
            answer: which answer of an example is asked about, as in `Subject.with_answer`; the
                subject's own choice when None.
            progress: whether to say on stderr how far what takes long is.

        Raises:
            NotApplicableError: with the reason `applicable` gives.
            ParameterError: no example has that answer, or `subject` is no Subject.
            MechintError: logits that overflow, where the probe asks about answers.
        """
        check_subjects(self.name, subject)
        if answer is not None:
            subject = subject.with_answer(answer)
        self.require_applicable(subject)
        with subject.untouched(), counting_if(progress, "probing") as told:
            told(0, 1, self.name)
            asked = {Need.ANSWERS, Need.VARIABLES} & set(self.needs) and len(subject.answers)
            if asked and not subject.finite:  # weights that are finite and too large
                raise MechintError(f"{subject.describe()}: its logits overflow: not finite")
            result = self.measure(subject, seed)
        made_by = {
            "name": self.name,
            "settings": self.to_dict(),
            "seed": seed,
            "answer": subject.answer,
            "source": self.source,
        }
        provenance = {**subject.provenance, "probe": made_by, **result.provenance}
        return dataclasses.replace(result, provenance=provenance)

    def detects(self, result: ProbeResult) -> bool:
        """Return whether `result` counts as a finding; what calibration counts."""
        return result.verdict == "yes"

    def result(self, **parts: Any) -> ProbeResult:
        """A ProbeResult of this probe from its parts (metrics, finding, null, …)."""
        return ProbeResult(probe=self.name, question=self.question, **parts)


@dataclass(frozen=True)
class Untrained:
    """The null of a probe by a function: how many models of initial weights."""

    models: int


def untrained(models: int) -> Untrained:
    """Models of the same architecture with initial weights; p ≤ 0.01 takes 99."""
    return Untrained(models)


class _Function(Probe, abc.ABC):
    """A probe by a function, as `Probe.of` makes it."""

    function: ClassVar[Callable[[Subject], float]]
    models: int

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        report, words = Report(self, subject), self.name.replace("-", " ")
        drawn = (subject.untrained(seed + i) for i in range(self.models))
        value, *samples = (
            torch.as_tensor(type(self).function(one)).item() for one in (subject, *drawn)
        )
        report.metric(self.name, value, null=samples, how=INITIAL)
        report.finding(
            Claim(
                f"The {words} is larger than in {INITIAL}.",
                no=f"The {words} is no larger than in {INITIAL}.",
                at_chance=True,  # a comparison of models, whatever they answer
            ),
            Effect.of(report.nulls[self.name], label=words),
            least=-math.inf,
        )
        report.figure(
            "null",
            histogram(
                {INITIAL: samples},
                title=f"The {words} and its null",
                x_title=words,
                caption=self.question,
                marks={"observed": value},
                null=True,
            ),
        )
        return report.result()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduced(PROBES, self) or super().__reduce_ex__(protocol)


def run(
    name: str, subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
) -> ProbeResult:
    """Run the probe `name` with `settings` on `subject`, asked about `answer` (`Probe.run`).

    Raises:
        UnknownNameError, ParameterError, NotApplicableError.
    """
    return PROBES[name].from_dict(settings).run(subject, seed=seed, answer=answer)


def run_all(
    subject: Subject,
    names: Sequence[str | Probe] = (),
    settings: Mapping[str, Mapping[str, Any]] = {},
    *,
    seed: int = 0,
    on_probe: Callable[[int, int, str], None] = lambda done, of, name: None,
) -> tuple[dict[str, ProbeResult], list[MechintError]]:
    """Results by probe, and the error of each probe that could not run; one that fails does not
    lose the others.

    Args:
        names: of probes, or probes; all quick ones when there are none.
        settings: probe → its settings; on_probe: called before each one.
    """
    names = names or quick_probes(subject)
    made = make_probes(names, settings)
    results: dict[str, ProbeResult] = {}
    errors: list[MechintError] = []
    for done, (name, probe) in enumerate(made.items()):
        on_probe(done, len(made), name)
        try:
            results[name] = probe.run(subject, seed=seed)
        except MechintError as error:
            errors.append(error)
        except Exception as error:
            if name in PROBES.builtins:
                raise
            errors.append(_failure(name, type(probe), error))
    return results, errors


def make_probes(
    names: Sequence[str | Probe], settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, Probe]:
    """Name → probe with its settings; probes that were made before are as they are."""
    made = [
        PROBES[one].from_dict(settings.get(one, {})) if isinstance(one, str) else one
        for one in names
    ]
    return {one.name: one for one in made}


def _failure(name: str, kind: Any, error: Exception) -> MechintError:
    """The error of a probe that a plug-in brings, with the last line of its file that ran."""
    file = getattr(kind, "function", kind.measure).__code__.co_filename
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    place = f"{Path(file).name}, line {frames[-1].lineno}: " if frames else ""
    return MechintError(f"probe {name} failed: {place}{type(error).__name__}: {error}")


LANGUAGE = ("heads", "lens", "attention")
"""Quick probes of a language model with pairs: others read its tokens as numbers or all of them."""


def quick_probes(subject: Subject | None = None) -> list[str]:
    """Names of the probes that say `quick`, plug-ins included; one that is broken warns. Of a
    `subject` that the probe heads applies to, a language model with pairs, the built-in ones among
    LANGUAGE; of one with several outputs ablation, too: which component does each of them need?
    """
    if subject is not None and PROBES["heads"].from_dict({}).applicable(subject) is None:
        others = [name for name in quick_probes() if name not in PROBES.builtins]
        return [*LANGUAGE, *others]
    names: list[str] = []
    for name in PROBES:
        try:
            if PROBES[name].quick:
                names.append(name)
        except MechintError as error:
            warnings.warn(str(error), stacklevel=2)
    several = subject is not None and subject.task is not None and len(subject.task.outputs) > 1
    return [*names, *["ablation"] * several]
