"""Measures of a run: energies of the frequencies over training, what becomes of them, and the steps
that training takes without some of them, from a step at which those that die are largest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from mechint.models import parameter_shapes
from mechint.studies.remainders.measures import energies, gram
from mechint.training import Run, train_many
from mechint.training.run import Start

LEARNED, HALF = 0.95, 0.5
STEPS = 600
"""Steps of a fork."""
ROSE, DIED = 2.0, 0.5
"""Energies over those of the initial weights: what dies was past ROSE while accuracy was below HALF
and ends below DIED; what wins ends past ROSE.
"""

FORK: Mapping[str, Any] = {
    "steps": STEPS,
    "evaluate_every": 5,
    "checkpoints": None,
    "stop_accuracy": LEARNED,
}
WEIGHT = "embed.W_E"


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Steps, accuracies and energies at the kept checkpoints; the frequencies by what becomes of
    them; where there are some of each kind, the step of the forks, and the steps that they take.
    """
    subject = run.subject()
    steps, p = sorted(subject.series), run.spec.task.to_dict()["p"]
    known = {int(row["step"]): float(row["test.accuracy"]) for row in run.metrics}
    models = [subject.at_step(step).model for step in steps]
    tokens = [model.get_parameter(WEIGHT)[:p].detach().double().numpy() for model in models]
    energy = np.array([energies(gram(one)) for one in tokens])
    early = next((i for i, step in enumerate(steps) if known[step] >= HALF), 0)
    fates = fates_of(energy, early)
    row = {"curve": [steps, [known[step] for step in steps]], "energy": energy.tolist()}
    if all(fates.values()):
        at = int(energy[:early, fates["losers"]].sum(1).argmax())
        taken = forks(run, models[at], tokens[at], fates)
        row |= {"fork": steps[at], "taken": taken}
    return row | {"fates": fates}


def fates_of(energy: Float[np.ndarray, "step frequency"], early: int) -> dict[str, list[int]]:
    """Places of the frequencies that rise in the first `early` steps and die, that win, and of the
    others.

    >>> fates_of(np.array([[1.0, 1, 1], [2, 1.9, 1], [0.1, 4, 0.2]]), 2)
    {'losers': [0], 'winners': [1], 'others': [2]}
    """
    grown = energy / energy[0]
    losers = (grown[:early].max(0, initial=0) >= ROSE) & (grown[-1] <= DIED)
    winners = grown[-1] >= ROSE
    found = {"losers": losers, "winners": winners, "others": ~(losers | winners)}
    return {name: np.flatnonzero(places).tolist() for name, places in found.items()}


def part_at(tokens: Float[np.ndarray, "p d"], places: Iterable[int]) -> Float[np.ndarray, "p d"]:
    """The part of rows at some frequencies, of which place 0 is frequency 1."""
    kept = np.zeros(len(tokens))
    kept[[sign * (place + 1) for place in places for sign in (1, -1)]] = 1
    return np.real(np.fft.ifft(np.fft.fft(tokens, axis=0) * kept[:, None], axis=0))


def forks(
    run: Run, model: Any, tokens: Float[np.ndarray, "p d"], fates: Mapping[str, list[int]]
) -> dict[str, float]:
    """Steps to LEARNED, infinite where it is not reached, from a model as it is and with the
    losers, the winners, and of the others as much as of the losers taken from its embedding;
    "share" is what there is of the others over the losers, by norm.
    """
    gone = {name: part_at(tokens, places) for name, places in fates.items()}
    share = float(np.linalg.norm(gone["others"]) / np.linalg.norm(gone["losers"]))
    gone["others"] /= max(1.0, share)
    train = dataclasses.replace(run.spec.train, **FORK)
    specs = []
    for part in (np.zeros_like(tokens), *gone.values()):
        names = parameter_shapes(run.spec.model)
        weights = {name: model.get_parameter(name).detach().clone() for name in names}
        weights[WEIGHT][: len(tokens)] -= torch.from_numpy(part).to(weights[WEIGHT])
        start = Start("in memory", weights)
        specs.append(dataclasses.replace(run.spec, train=train, out=None, start=start))
    ends = [
        one.step if one.final["test.accuracy"] >= LEARNED else math.inf for one in train_many(specs)
    ]
    return {**dict(zip(("none", *gone), map(float, ends), strict=True)), "share": share}
