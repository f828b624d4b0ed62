"""The linear probe: which causal variables an activation holds linearly, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import MaxNull, Null, groupings, orderings, why_undecidable
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.probe.results import EACH, Effect, Figure, ProbeResult, Scope
from mechint.probes._linear.estimators import (
    DEFAULT_RIDGE,
    Discriminant,
    Ridge,
    choose_penalty,
    unlearnable,
    varies,
)
from mechint.probes.words import in_words
from mechint.subject import Subject
from mechint.subject.activations import residual_hooks
from mechint.task import IGNORE, Variable, find_variable, first_of_each, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


SAME = 1e-6
"""As a share of the largest activation: smaller differences are rounding."""
MANY = 8
"""Different activations for a value, on average, that it takes where many examples have one."""
LEAST = 0.5
"""Least selectivity of what is called decodable, as a share of what certainty has."""


@dataclass(frozen=True)
class Linear(Probe):
    r"""Which causal variables can be decoded linearly from the residual stream, and from where on?

    Classes by the linear discriminant, argmax_k mu_k' S^-1 x - mu_k' S^-1 mu_k / 2, scored on
    held-out inputs; numbers by ridge regression, R^2 on held-out values. Selectivity is the score
    minus that of a control task (a random value per input, Hewitt & Liang 2019). Null: shuffled
    values, the best place and variable of each shuffle.

    Cost: one forward on `examples` inputs and a d × d factorization a hook.
    """

    name: ClassVar[str] = "linear"
    topic: ClassVar[str] = "causal variables"
    source: ClassVar[str] = (
        "Alain & Bengio 2016, Understanding intermediate layers using linear classifier "
        "probes; Hewitt & Liang 2019, control tasks"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS)
    lead_rank: ClassVar[int] = 8
    level: ClassVar[float] = 0.005

    variable: str | None = setting(
        None,
        "causal variable of the task; the first `variables`, the answer before others, when none",
    )
    variables: int = setting(6, "how many variables are probed where none is named", low=1)
    hook: str | None = setting(
        None, "activation to read from; the residual stream at every depth when none"
    )
    pos: int | None = setting(None, "position; where the answer is read when none", low=0)
    kind: str = setting(
        "class",
        "class: any value by its own direction; number: all values along one",
        choices=("class", "number"),
    )
    ridge: float | None = setting(
        None,
        "penalty, relative to the mean variance of the coordinates; by validation when none",
        low=0,
    )
    examples: int = setting(2048, "different inputs looked at, half of them held out", low=8)
    permutations: int = setting(199, "samples of the null", low=1)

    def unmet(self, subject: Subject) -> str | None:
        lacking = unmet_need(Need.RESIDUAL, subject)
        if self.hook is None and lacking:
            return f"{lacking}; name a hook"
        return unlearnable(subject, self._variables(subject), self.kind == "class")

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        doubling = Trial(
            "composition by doubling",
            library.pointer_doubling,
            library.untrained(library.pointer_doubling),
            library.misses(
                lambda result: [result.metrics["linear.2-hop of 0.best_at"]],
                lambda plant: [f"L{plant.truth['heads']['hop 2'][0]} attention"],
            ),
            "depths missed or made up",
            settings={"variable": "2-hop of 0", "pos": 0, "examples": 256},
        )
        order = Trial(
            "order direction",
            library.fine_order,
            library.untrained(library.fine_order)
            | library.lookup("comparison", n=2 * library.ORDERED),
            # the angle between readouts: 40 values do not determine the weights on coordinates
            # that hold nothing but noise, by which two directions may differ and read the same
            lambda result, plant: library.readout_angle(
                plant,
                "hook_embed",
                result.arrays["direction of rank of a"],
                plant.truth["subspaces"]["hook_embed"][:, 0].numpy(),
            ),
            "degrees between the readouts of the direction found and the planted one",
            tolerance=5.0,
            settings={"kind": "number", "variable": "rank of a", "hook": "hook_embed", "pos": 0},
        )
        return Calibration((doubling, order), {"permutations": 199, "variables": 2})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        points = (
            {self.hook: subject.check_hook(self.hook)}
            if self.hook
            else residual_hooks(subject.n_layers, subject.hooks)
        )
        subject = self._where_asked(subject)
        variables = self._variables(subject)
        order = rng("linear examples", seed).permutation(len(subject.data))
        drawn = subject.data[torch.from_numpy(order).to(subject.device)]
        few = subject.with_data(drawn[first_of_each(drawn.tokens)[: self.examples]])
        activations = self._activations(few, points)
        report, rows = Report(self, subject), []
        if all(np.ptp(x, 0).max(initial=0) <= SAME * np.abs(x).max() for x in activations.values()):
            same = "the activations there are the same in all inputs"
            report.unclear("Whether a variable can be decoded linearly is unclear.", same)
            return report.result()
        found: dict[str, Scored] = {}
        for variable in variables:
            found[variable.name] = self._probe(few, variable, activations, seed)
            rows += self._record(report, few, variable, activations, found[variable.name])
        names = ("variable", "at", self._score, "control", "selectivity", "ridge")
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        report.table(
            "scores", columns, "one row per variable and hook, scored on what was held out"
        )
        report.figures |= score_figures(self.kind, self._score, columns, list(points))
        report.hero("scores")
        said = {"score": self._score, "control": self._control}
        scope = Scope(answers=subject.asked * (self.pos is None))
        say(report, found, scope=scope, **said)
        return report.result()

    def _record(
        self,
        report: Report,
        subject: Subject,
        variable: Variable,
        activations: dict[str, np.ndarray],
        scored: Scored,
    ) -> list[tuple[Any, ...]]:
        """Records the variable's best score, which its null is the best of, its best place, and the
        first at which it is decoded; returns its rows of the table.
        """
        metric, best = f"linear.{variable.name}.{self._score}", scored.best
        how = f"{self._control}, the best place of each"
        score = max(scored.scores.values())
        null = Null.sampled(metric, score, scored.null, how, scored.arrangements)
        report.metric(metric, score, null=null)
        report.metric(f"linear.{variable.name}.first_at", next(iter(scored.decoded), None))
        report.metric(f"linear.{variable.name}.best_at", best)
        report.metric(f"linear.{variable.name}.selectivity", scored.selectivity(best))
        report.metric(f"linear.{variable.name}.ridge", scored.ridge[best])
        if self.kind == "number":
            values = variable.value_of(subject.data.tokens).cpu().numpy()[self._examples(subject)]
            direction = Ridge(activations[best], scored.ridge[best]).weights(values)
            length = max(float(np.linalg.norm(direction)), 1e-300)
            report.array(f"direction of {variable.name}", direction / length)
        return [
            (variable.name, p, s, scored.control[p], scored.selectivity(p), scored.ridge[p])
            for p, s in scored.scores.items()
        ]

    def _is_copied(self, subject: Subject, variable: Variable) -> bool:
        """Return whether the variable is one input token and the answer, read elsewhere than where
        that token stands: no control task separates its value from its token, and the question is
        whether it was moved.
        """
        alone = len(variable.positions) == 1 and _is_answer(subject, variable)
        return alone and bool((self._reads(subject) != variable.positions[0]).all())

    def _reads(self, subject: Subject) -> Int[Tensor, " row"]:
        """The positions that are read."""
        return subject.answer_positions if self.pos is None else torch.tensor([self.pos])

    @property
    def _score(self) -> str:
        return "accuracy" if self.kind == "class" else "r2"

    @property
    def _control(self) -> str:
        return (
            "values shuffled among the inputs"
            if self.kind == "class"
            else "every value replaced by a random other one"
        )

    def _variables(self, subject: Subject) -> list[Variable]:
        known = subject.known_task.variables
        if self.variable is None:  # of prompts what they say of themselves, where they do
            known = {
                name: variable for name, variable in known.items() if not variable.is_example
            } or known
            known = {
                name: variable for name, variable in known.items() if varies(subject, variable)
            } or known
            here = None if self.pos is not None or subject.answer == "all" else int(subject.answer)
            known = {  # not what the answer that is read cannot depend on
                name: variable
                for name, variable in known.items()
                if here is None
                or variable.answers is None
                or here % subject.known_task.n_answers in variable.answers
            } or known
            answers = [variable for variable in known.values() if _is_answer(subject, variable)]
            others = [variable for variable in known.values() if variable not in answers]
            return [*answers, *others][: self.variables]
        return [find_variable(subject.known_task, self.variable)]

    def _where_asked(self, subject: Subject) -> Subject:
        """The subject at the last answer that depends on any variable, where that is not its last
        one.
        """
        task = subject.known_task
        asked = [find_variable(task, self.variable)] if self.variable else task.variables.values()
        last = max((one.answers or range(task.n_answers))[-1] for one in asked)
        asks_last = self.pos is None and subject.answer == -1
        return subject.with_answer(last) if asks_last and last < task.n_answers - 1 else subject

    def _activations(self, subject: Subject, points: dict[str, str]) -> dict[str, np.ndarray]:
        """Point → (example, features) in float64."""
        at = "answer" if self.pos is None else self.pos
        found = subject.activations(list(points.values()), at)
        return {
            point: found[hook].flatten(1).double().cpu().numpy() for point, hook in points.items()
        }

    def _examples(self, subject: Subject) -> Int[np.ndarray, " row"]:
        """The example to which each row of the activations belongs."""
        if self.pos is None:
            return subject.answer_examples.cpu().numpy()
        return np.arange(len(subject.data))

    def _probe(
        self, subject: Subject, variable: Variable, activations: dict[str, np.ndarray], seed: int
    ) -> Scored:
        values, rows = variable.value_of(subject.data.tokens).cpu().numpy(), self._examples(subject)
        kept = new_rows(activations, values[rows])
        few = self.kind == "class" and MANY * len(np.unique(values)) > len(kept) < len(rows)
        rows, activations = rows[kept], {place: x[kept] for place, x in activations.items()}
        draw = rng("linear", variable.name, seed)
        # control and shuffles before the split of the training part: draws stay as they were
        if self.kind == "class":
            types = _input_types(subject, variable, self._reads(subject).cpu().numpy())
            train = draw.permutation(len(values)) < len(values) // 2
            names, n_types = np.unique(values), types.max() + 1
            # of a token another name, which is decoded as well as its own
            is_token = len(names) == n_types
            control = (draw.permutation(names) if is_token else draw.choice(values, n_types))[types]
            shuffles = [draw.permutation(values) for _ in range(self.permutations)]
            fit = draw.random(len(values)) < 0.75
            counts = np.unique(values[np.unique(rows)], return_counts=True)[1]
            arrangements = groupings(counts.tolist())
        else:
            present, inverse = np.unique(values, return_inverse=True)
            train = (draw.permutation(len(present)) < max(2, len(present) // 2))[inverse]
            control = draw.permutation(present)[inverse]
            shuffles = [draw.permutation(present)[inverse] for _ in range(self.permutations)]
            fit = (draw.permutation(len(present)) < 0.75 * len(present))[inverse]
            # a line is as straight backwards
            arrangements = orderings(len(present), alike=2)
        # all answers of an example are on one side of the split
        values, control, train, fit = values[rows], control[rows], train[rows], fit[rows]
        shuffles = [shuffle[rows] for shuffle in shuffles]
        null = np.full(self.permutations, -np.inf)
        scored = Scored(
            *({}, {}, {}, null, arrangements, int((~train).sum())),
            certain=1.0 if self.kind == "number" else 1 - 1 / variable.n_values,  # 0 at chance
            constant=0.0 if self.kind == "number" else most_frequent(values[train], values[~train]),
            selective=self.kind == "number" or not self._is_copied(subject, variable),
            doubt=f"only {len(kept)} different activations to learn from" * few,
        )
        kind = Discriminant if self.kind == "class" else Ridge
        for point, x in activations.items():
            for labels, into in ((values, scored.scores), (control, scored.control)):
                ridge = self._penalty(kind, x[train], labels[train], fit[train])
                fitted = kind(x[train], ridge)
                into[point] = fitted.score(labels[train], x[~train], labels[~train])
                if into is scored.scores:
                    scored.ridge[point], chosen = ridge, fitted
            null = [
                chosen.score(shuffle[train], x[~train], shuffle[~train]) for shuffle in shuffles
            ]
            scored.null[:] = np.maximum(scored.null, null)
        return scored

    def _penalty(self, kind: Any, x: np.ndarray, labels: np.ndarray, fit: np.ndarray) -> float:
        if self.ridge is not None:
            return self.ridge
        enough = fit.any() and not fit.all() and len(np.unique(labels[fit])) > 1
        return choose_penalty(kind, x, labels, fit) if enough else DEFAULT_RIDGE


def _input_types(
    subject: Subject, variable: Variable, reads: Int[np.ndarray, " row"]
) -> np.ndarray:
    """(example,) which of the distinct inputs stands at the variable's positions; where these are
    not stated, at the one before all `reads`, or at these themselves, that tells its value.
    """
    tokens, places = subject.data.tokens.cpu().numpy(), list(variable.positions)
    values = variable.value_of(subject.data.tokens).cpu().numpy()
    columns = [*tokens.T[: reads.min() + 1, :, None]]
    if len(reads) == len(tokens):
        columns.append(np.take_along_axis(tokens, reads[:, None], 1))
    for column in () if places else columns:
        both = np.unique(np.column_stack([column, values]), axis=0)
        if len(both) == len(np.unique(column)) < len(tokens):
            return np.unique(column, return_inverse=True)[1].ravel()
    tokens = tokens[:, places] if places else tokens
    return np.unique(tokens, axis=0, return_inverse=True)[1].ravel()


def new_rows(
    activations: Mapping[str, np.ndarray], values: Num[np.ndarray, " row"]
) -> Int[np.ndarray, " kept"]:
    """The rows whose activation none before has: a table of those fitted would be decoded where
    they are held out. All where there are fewer than two for a value, as of single tokens.
    """
    x = np.concatenate([*activations.values()], 1)
    rounded = np.round(x / max(np.abs(x).max(), 1e-300), 5)
    first = np.sort(np.unique(rounded, axis=0, return_index=True)[1])
    return first if 2 * len(np.unique(values)) <= len(first) else np.arange(len(x))


def most_frequent(fitted: Num[np.ndarray, " _"], held_out: Num[np.ndarray, " _"]) -> float:
    """Share of `held_out` with the most frequent value of `fitted`; 0 where either is empty.

    >>> most_frequent(np.array([1, 1, 2]), np.array([1, 2]))
    0.5
    """
    if not (len(fitted) and len(held_out)):
        return 0.0
    names, counts = np.unique(fitted, return_counts=True)
    return float((held_out == names[counts.argmax()]).mean())


def _is_answer(subject: Subject, variable: Variable) -> bool:
    """Return whether the variable has the value of an output's target in every example."""
    values = variable.value_of(subject.data.tokens).to(subject.data.tokens.device)
    targets = subject.answers.at(subject.answer if subject.answer != "all" else -1)[1]
    same = (targets == values[:, None].to(targets)) & (targets != IGNORE)
    return bool(same.all(0).any())


# --- the figure -----------------------------------------------------------------------------------
def score_figures(
    kind: str, score: str, columns: dict[str, list[Any]], points: list[str]
) -> dict[str, Figure]:
    """Every variable's score by depth, or as bars where there is one hook."""
    names = list(dict.fromkeys(columns["variable"]))
    of = {
        name: [
            value
            for value, variable in zip(columns[score], columns["variable"], strict=True)
            if variable == name
        ]
        for name in names
    }
    text = "held-out accuracy (0–1)" if kind == "class" else "R² on held-out values (1 is exact)"
    caption = "Where each variable becomes readable by a linear map."
    if len(points) == 1:
        shown = figures.bars(
            names,
            {"score": [of[name][0] for name in names]},
            title=f"Linear probes at {points[0]}",
            x_title="variable",
            y_title=text,
            caption=caption,
        )
    else:
        shown = figures.lines(
            points,
            of,
            title="Linear probes by depth",
            x_title="residual stream after",
            y_title=text,
            markers=True,
            caption=caption,
        )
    return {"scores": shown}


# --- findings -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Scored:
    """Place → score of the variable, of its control task, and the penalty; null (sample,) the best
    place of each shuffle; arrangements: in how many ways the values can be shuffled; held_out: how
    many rows are scored; certain: the selectivity of certainty; constant: the score of the most
    frequent value; selective: whether the control task tells computing from memorizing, as for one
    input token it does not; doubt: the reason for which nothing can be said, "" without one.
    """

    scores: dict[str, float]
    control: dict[str, float]
    ridge: dict[str, float]
    null: Float[np.ndarray, " sample"]
    arrangements: float
    held_out: int
    certain: float = 1.0
    constant: float = 0.0
    selective: bool = True
    doubt: str = ""

    def selectivity(self, place: str) -> float:
        """The score less that of the control task, of which one below chance adds nothing."""
        return self.scores[place] - max(self.control[place], 0.0)

    def skill(self, place: str) -> float:
        """Selectivity over that of certainty, or the same beyond the most frequent value where that
        is less; the score above shuffles where the control task tells nothing.
        """
        beyond = (self.scores[place] - self.constant) / max(1 - self.constant, 1e-12)
        own = min(self.selectivity(place) / self.certain, beyond, 1.0)
        return own if self.selective else above_shuffled(self.scores[place], self.null)[0]

    @property
    def decoded(self) -> list[str]:
        """The places with more than the least skill, and a score above all shuffles."""
        above = (place for place, score in self.scores.items() if score > self.null.max())
        return [place for place in above if self.skill(place) > LEAST]

    @property
    def best(self) -> str:
        """The place with the largest score of those; of all where there are none."""
        return max(self.decoded or self.scores, key=self.scores.__getitem__)

    @property
    def is_moved(self) -> bool:
        """Return whether the control task, too, is decoded where the variable is not decoded much
        better: both are functions of tokens that were moved there.
        """
        told = self.decoded or not self.selective
        return not told and bool(self.control[self.best] > self.null.max())


def above_shuffled(
    score: float, null: Float[np.ndarray, " sample"]
) -> tuple[float, Float[np.ndarray, " sample"]]:
    """A score and its null on a scale that variables share: 0 at the median shuffle, 1 where the
    score is 1.

    >>> round(above_shuffled(0.8, np.array([0.1, 0.2, 0.6]))[0], 12)
    0.75
    """
    median = float(np.median(null))
    span = max(1 - median, 1e-12)
    return (score - median) / span, (null - median) / span


def say(
    report: Report, scored: Mapping[str, Scored], *, score: str, control: str, scope: Scope = EACH
) -> None:
    """Report the variable that is decoded best, tested against the best variable of each shuffle; a
    variable whose null or control task cannot decide is left out of both and named as not asked.

    Args:
        score: "accuracy" or "r2"; control: what was done to remove the mechanism, in words;
            scope: of the places that were read.
    """
    metrics, level = report.metrics, report.probe.significance
    keys = {name: f"linear.{name}.{score}" for name in scored}
    skills = {name: one.skill(one.best) for name, one in scored.items()}
    text = ("{:.0%}" if score == "accuracy" else "R² {:.3g}").format
    moved = [name for name, one in scored.items() if one.is_moved]
    unsaid = {name: why_undecidable([report.nulls[key]], level) for name, key in keys.items()}
    unsaid |= {name: one.doubt for name, one in scored.items() if one.doubt}
    unsaid |= dict.fromkeys(moved, "no control task separates it from a token that is moved there")
    told = [name for name in scored if unsaid[name] is None]
    pool = told or [max(skills, key=lambda name: np.nan_to_num(skills[name], nan=-np.inf))]
    scaled = [above_shuffled(metrics[keys[name]], scored[name].null) for name in pool]
    observed, null = np.array([one for one, _ in scaled]), np.stack([one for _, one in scaled])
    p_values = dict(zip(pool, MaxNull(observed, null.T).p_values, strict=True))
    decodable = {name: p_values[name] <= level and skills[name] > LEAST for name in pool}
    best = max(pool, key=lambda name: (decodable[name], skills[name]))
    report.update({"linear.best_variable": best, "linear.best_skill": skills[best]})
    metric, top = "linear.best_above_shuffled", float(observed[pool.index(best)])
    # any of the shuffled variables may reach what a perfect one reaches
    reached = sum(1 / scored[name].arrangements for name in pool)
    arrangements = 1 / reached if reached else math.inf
    how = f"{control}, the best place{' and variable' * (len(pool) > 1)} of each"
    report.metric(metric, top, null=Null.sampled(metric, top, null.max(0), how, arrangements))
    own = scored[best]
    at, first = own.best, next(iter(own.decoded), own.best)
    stays = own.decoded == [*own.scores][[*own.scores].index(first) :] != [first]
    where = f"from {first} on" if stays else f"after {first}"
    if first != at:
        where += f" ({text(own.scores[first])}; {text(own.scores[at])} after {at})"
    earlier = [*own.scores.values()][: [*own.scores].index(first)]
    if max(earlier, default=-math.inf) > own.constant:  # which takes no activation
        where += f", {text(max(earlier))} before"
    task, called = report.subject.task, repr(best)
    if task and getattr(task, "labels", "true") == "shuffled":  # these are no "a < b"
        called = {output.name: "'shuffled labels'" for output in task.outputs}.get(best, called)
    nearest = f"; {called} comes nearest" * (len(pool) > 1)
    denied = f"None of {in_words(len(pool), 'variable')} is" if nearest else f"{called} is not"
    base = max(own.control[at], own.constant)
    beside = "its most frequent value" if base > own.control[at] else "its control task"
    partly = "decoded in part: {:.0%} of the way from its control to certainty"
    if decodable[best] or p_values[best] > level or skills[best] <= LEAST / 2:
        partly = ""
    report.metric("linear.decodable", [name for name in pool if decodable[name]])
    report.finding(
        Claim(
            f"{called} can be decoded linearly {where}.",
            no=f"{denied} decoded much better than its control or most frequent value{nearest}.",
            unclear=f"Whether {called} can be decoded linearly is unclear.",
            doubt=unsaid[best] or partly.format(skills[best]),
            caveat="" if own.selective else "an input token, moved there: no control task applies",
            at_chance=True,
        ),
        Effect(
            own.scores[at],
            "",
            f"{'accuracy' if score == 'accuracy' else 'R²'} on {own.held_out:,} held out",
            max(base, 0.0) if own.selective else float(np.median(own.null)),
            beside if own.selective else "shuffled",
        ),
        null=metric,
        least=-math.inf,
        holds=decodable[best],
        scope=scope,
    )
    for name, reason in unsaid.items():
        if told and reason is not None:
            other = scored[name]
            values = text(other.scores[other.best]), text(other.control[other.best])
            beside = " ({}, control task {})".format(*values) * (name in moved)
            report.not_asked(repr(name) + beside, reason)
