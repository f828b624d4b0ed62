"""A study: one paper, what is trained for it at each size, what is measured of a run, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mechint.config import Settings, TrainConfig
from mechint.probe.results import Figure
from mechint.registry import TASKS
from mechint.studies.claims import ClaimTest
from mechint.studies.rows import Rows
from mechint.training import Run, Spec, spec

if TYPE_CHECKING:
    from mechint.subject import Subject

SIZES = ("smoke", "laptop", "fresh", "overnight")
"""smoke: seconds, judges nothing; laptop: within an hour on two cores; fresh: seeds from FRESH on,
for the claims whose criterion was changed after the laptop's runs were seen; overnight: what a
study's `costs` say.
"""

FRESH = 5000
"""The first seed of the runs at size fresh: no run of a smaller seed judges what it suggested."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of the abstract, or of the hypothesis, and the claims that say it together.

    ids: of the claims, of which the first gives the numbers; regime: of the runs here, the study's
    where it is empty; cost: of what is not run, or would decide it; own: not the paper's.
    """

    says: str
    ids: tuple[str, ...] = ()
    regime: str = ""
    cost: str = ""
    own: bool = False


@dataclass(frozen=True)
class PlannedRun:
    """One run: its name (the directory), what is trained, and its labels, "arm" and "seed" among
    them. Runs of an earlier stage are trained before those of a later one.
    """

    name: str
    spec: Spec
    labels: Mapping[str, Any]
    stage: int = 0


def arm(
    name: str,
    task: str,
    seeds: Iterable[int],
    parameters: Mapping[str, Any] | None = None,
    model: Settings | Mapping[str, Any] | None = None,
    train: TrainConfig | Mapping[str, Any] | None = None,
    *,
    own: Iterable[str] = (),
    folder: str = "",
    stage: int = 0,
    **labels: Any,
) -> list[PlannedRun]:
    """The runs of an arm, one a seed. own: parameters of the task that are the seed's own; folder:
    the runs' directory names begin with it, `name` when empty. UnknownNameError: no such task, or
    it has no such parameter.

    >>> planned = arm("direct", "composition", [7], {"n": 3, "k": 2, "hops": (2,)},
    ...     {"d_model": 16}, {"steps": 5}, own=["perm_seed"], readout="last")
    >>> planned[0].name, dict(planned[0].labels)
    ('direct-7', {'arm': 'direct', 'seed': 7, 'readout': 'last'})
    """
    planned = []
    for seed in seeds:
        made = TASKS[task].from_dict({**(parameters or {}), **dict.fromkeys(own, seed)})
        named = f"{(folder or name).replace(' ', '-')}-{seed}"
        asked = {"arm": name, "seed": seed, **labels}
        planned.append(PlannedRun(named, spec(made, model, train, seed=seed), asked, stage))
    return planned


@dataclass(frozen=True, kw_only=True)
class Study:
    """One paper: an object that a package registers under its name.

    name: of the registry; paper: authors and title; summary: what it says; here, there: the regime
    of the runs, and the paper's; plan: size → the runs that are trained at it, names all different,
    none at size fresh where no criterion was changed; measure: the numbers that are kept of a
    trained run, JSON values; draw: the paper's figures, from the rows; costs: size → core-hours;
    before: of a study of ours, who has said it or its contrary before; sentences: what claims say
    together, at most six of the paper's.
    """

    name: str
    title: str
    paper: str
    summary: str
    here: str
    there: str
    plan: Callable[[str], list[PlannedRun]]
    measure: Callable[[Run, Mapping[str, Any]], dict[str, Any]]
    claims: tuple[ClaimTest, ...]
    costs: Mapping[str, float]
    draw: Callable[[Rows], dict[str, Figure]] = lambda _: {}
    before: str = ""
    sentences: tuple[Sentence, ...] = ()


def untrained(run: Run, **options: Any) -> Subject:
    """A run's model at its initial weights, as a Subject."""
    from mechint.models import build
    from mechint.subject import Subject

    model = build(run.spec.model, seed=run.spec.train.seed).eval()
    return Subject(model, run.spec.task, split_seed=run.spec.data_seed, **options)
