"""Where the runs of an ensemble go on: at a step that all of them have.

The states of an ensemble are committed together, so its models hold a common commit whatever the
moment of a kill. Models that were done before it (finished, stopped, failed) stay done. Runs that
were in different ensembles before go on in ensembles of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mechint.errors import RunError
from mechint.training.run import DONE, Run
from mechint.training.run_directory import State


@dataclass(frozen=True)
class Group:
    """Runs that train as one ensemble from one step on.

    runs: those that are not done; states: what each goes on from, None at the start; ensemble:
    the identifier of the ensemble.
    """

    ensemble: str
    runs: list[Run]
    states: list[State | None]


def open_runs(runs: Sequence[Run], ensemble: str, resume: bool) -> list[Group]:
    """Open the directories of an ensemble's runs, whose locks the caller holds.

    Args:
        runs: the whole part, in the order of the plan; ensemble: its identifier.
        resume: whether a directory may hold its run already.

    Returns:
        What there is left to train.

    Raises:
        RunError: a directory holds something else, or is damaged; nothing was changed then.
    """
    known: list[list[State]] = []
    for run in runs:
        directory = run.directory
        there = directory is not None and directory.check(run.spec.to_dict(), resume)
        known.append(directory.states() if there and directory is not None else [])
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        directory = run.directory
        committed = directory is not None and directory.has_committed
        groups.setdefault(known[index][0]["ensemble"] if committed else ensemble, []).append(index)
    made = []
    for name, members in groups.items():
        chosen = _common([known[i] for i in members], name or ensemble)
        if chosen is None:  # states of an earlier version: every step for itself
            alone: dict[int, list[int]] = {}
            for i in members:
                alone.setdefault(known[i][0]["step"] if known[i] else -1, []).append(i)
            for some in alone.values():
                picked = [known[i][0] if known[i] else None for i in some]
                made.append(_adopt([runs[i] for i in some], picked, ensemble))
        else:
            made.append(_adopt([runs[i] for i in members], chosen, name or ensemble))
    return [group for group in made if group.runs]


def repair(run: Run) -> None:
    """Put the directory of a run that is done in order, where a kill or a damage left it otherwise
    and nothing is lost: its weights and its manifest, what is half-written, what came later.
    """
    directory = run.directory
    if directory is None:
        return
    weights = run.status in DONE[:2] and directory.lacks_weights()
    if weights or directory.untidy():
        with directory.lock():
            open_runs([run], "", resume=True)


def _common(known: Sequence[Sequence[State]], ensemble: str) -> list[State | None] | None:
    """The states of the latest commit that every run has, or was done before; None for no such."""
    # what another ensemble prepared and never committed is void
    own = [[state for state in states if state["ensemble"] in ("", ensemble)] for states in known]
    commits = {state["commit"] for states in own for state in states}
    for commit in (*sorted(commits, reverse=True), None):
        chosen = [_at(states, commit) for states in own]
        if all(found for found, _ in chosen):
            return [state for _, state in chosen]
    return None


def _at(states: Sequence[State], commit: int | None) -> tuple[bool, State | None]:
    """Whether a run can be at `commit` (None: at the start), and its state there."""
    if commit is None:
        started = any(state["file"] == "state.pt" for state in states)
        return not started, None
    for state in states:
        if state["commit"] == commit:
            return True, state
    for state in states:
        if state["status"] in DONE and state["commit"] <= commit:
            return True, state
    return False, None


def _adopt(runs: Sequence[Run], states: Sequence[State | None], ensemble: str) -> Group:
    """Make `states` what the directories hold; those that are not done are left to train."""
    members, other = {"id": ensemble, "models": len(runs)}, dict[str, Path | None]()
    for run, state in zip(runs, states, strict=True):
        directory = run.directory
        if directory is None:
            continue
        goes_on = state is not None and state["status"] not in DONE
        for name in directory.create(run.spec.to_dict(), members, state, goes_on):
            other.setdefault(name, run.path)
        directory.adopt(state)
        run.take(state)
        if state is not None and run.status in DONE[:2] and directory.lacks_weights():
            _rewrite_weights(run, state)
    if other:
        warnings.warn(
            f"{next(iter(other.values()))}: goes on with other {', '.join(other)} than before "
            "(manifest.json says which), so its bits may differ from those of the plan",
            stacklevel=2,
        )
    left = [(run, state) for run, state in zip(runs, states, strict=True) if run.status not in DONE]
    return Group(ensemble, [run for run, _ in left], [state for _, state in left])


def _rewrite_weights(run: Run, state: State) -> None:
    """Write the ckpt.pt of a run that is done again, from its state."""
    import torch

    from mechint.training.learners import learner_of
    from mechint.training.parameters import FlatParameters

    spec = run.spec
    learner = learner_of([spec.model], [spec.task], spec.train, torch.device("cpu"))
    parameters = FlatParameters([learner.initial(0, spec.train.seed)], dtype=state["values"].dtype)
    if parameters.values.shape[1:] != state["values"].shape:
        raise RunError(
            f"{run.path}/state.pt: damaged: got {state['values'].numel()} parameters, expected "
            f"{parameters.values.shape[1]}; delete it and --resume starts this run anew"
        )
    parameters.values.data[0] = state["values"]
    run.save_last(run.step, parameters.weights(0))
