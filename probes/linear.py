"""Linear probes: which causal variables can be read off an activation by a linear map, and where.

Class probe: least squares onto one-hot values with the thresholds that suit it, that is the linear
discriminant: the class with the largest μᵀS⁻¹x − ½μᵀS⁻¹μ, S = covariance within classes + λI;
scored on held-out inputs. Its control task (Hewitt & Liang 2019) gives every input type, what
stands at the variable's positions, a random value: what is scored there is memorised, not computed.
Selectivity = score − control (0 where the control is below 0). Number probe: ridge regression w =
(XᵀX + λI)⁻¹Xᵀy onto the value as a number, scored by R² on held-out *values*: only a direction
along which values are ordered carries over to values never seen. Its control task deals every value
a random other one. λ is `ridge` times the mean variance of the coordinates; 0 is no penalty. All in
float64, in closed form.

Cost: one forward on `examples` inputs; one d × d factorisation a hook, examples × d × values
multiplications a sample of the null. Memory: `examples` activations of every hook at one position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from mechint import figures
from mechint.activations import residual_hooks
from mechint.config import setting
from mechint.errors import UnknownNameError
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import Variable, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Linear(Probe):
    """Which causal variables can be read off the residual stream linearly, and from which layer on?

    Detection: p ≤ 0.005, and selectivity at least half of what lies between chance and certainty,
    or R² at least one half.
    """

    name: ClassVar[str] = "linear"
    source: ClassVar[str] = (
        "Alain & Bengio 2016, Understanding intermediate layers using linear classifier "
        "probes; Hewitt & Liang 2019, control tasks"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS)

    variable: str | None = setting(
        None, "causal variable of the task; the first `variables` of them when none"
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
    ridge: float = setting(1e-3, "penalty, relative to the mean variance of the coordinates", low=0)
    examples: int = setting(2048, "inputs looked at, half of them held out", low=8)
    permutations: int = setting(199, "samples of the null", low=19)

    def unmet(self, subject: Subject) -> str | None:
        lacking = unmet_need(Need.RESIDUAL, subject)
        if self.hook is None and lacking:
            return f"{lacking}; name a hook"
        return None

    def detects(self, result: ProbeResult) -> bool:
        best = f"linear.{result.metrics['linear.best_variable']}.{self._score}"
        return result.metrics["linear.best_skill"] >= 0.5 and result.null[best].p_value <= 0.005

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
            settings={"variable": "2-hop of 0", "pos": 0},
        )
        order = Trial(
            "order direction",
            library.order,
            library.untrained(library.order) | library.lookup("comparison", n=20),
            lambda result, plant: library.angle_between(
                result.arrays["direction of rank of a"][:, None],
                plant.truth["subspaces"]["hook_embed"].numpy(),
            ),
            "degrees between direction found and planted",
            tolerance=1.0,
            settings={"kind": "number", "variable": "rank of a", "hook": "hook_embed", "pos": 0},
        )
        return Calibration((doubling, order), {"permutations": 19, "variables": 3})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        points = (
            {self.hook: subject.check_hook(self.hook)}
            if self.hook
            else residual_hooks(subject.n_layers, subject.hooks)
        )
        variables = self._variables(subject)
        order = rng("linear examples", seed).permutation(len(subject.data))[: self.examples]
        few = subject.with_data(subject.data[torch.from_numpy(order).to(subject.device)])
        activations = self._activations(few, points)
        rows, nulls, metrics, arrays = [], {}, {}, {}
        for variable in variables:
            scores, control, null = self._probe(few, variable, activations, seed)
            best = max(scores, key=lambda point: scores[point])
            metric = f"linear.{variable.name}.{self._score}"
            selectivity = {point: scores[point] - max(control[point], 0.0) for point in points}
            metrics |= {
                metric: scores[best],
                f"linear.{variable.name}.best_at": best,
                f"linear.{variable.name}.selectivity": selectivity[best],
            }
            nulls[metric] = Null.sampled(
                metric, scores[best], null, f"{self._control}; the best hook of each shuffle"
            )
            if self.kind == "number":
                direction = Ridge(activations[best], self.ridge).weights(
                    variable.value_of(few.data.tokens).cpu().numpy()
                )
                arrays[f"direction of {variable.name}"] = direction / max(
                    np.linalg.norm(direction), 1e-300
                )
            rows += [
                (variable.name, point, scores[point], control[point], selectivity[point])
                for point in points
            ]
        columns = dict(
            zip(
                ("variable", "at", self._score, "control", "selectivity"),
                map(list, zip(*rows, strict=True)),
                strict=True,
            )
        )
        # 0 at chance, 1 at certainty
        certain = {
            variable.name: 1 - 1 / variable.n_values if self.kind == "class" else 1.0
            for variable in variables
        }
        skills = {name: metrics[f"linear.{name}.selectivity"] / certain[name] for name in certain}
        best = max(skills, key=lambda name: skills[name])
        metrics |= {"linear.best_variable": best, "linear.best_skill": skills[best]}
        key = f"linear.{best}.{self._score}"
        finding = (
            f"{best!r} is read best: {self._score} {metrics[key]:.3f} at "
            f"{metrics[f'linear.{best}.best_at']} "
            f"(selectivity {metrics[f'linear.{best}.selectivity']:.3f}, null "
            f"{nulls[key].mean:.3f}, p = {nulls[key].p_value:.2g})"
        )
        table = Table(columns, "a row is a variable at a hook, scored on what was held out")
        return self.result(
            metrics=metrics,
            finding=finding,
            null=nulls,
            tables={"scores": table},
            arrays=arrays,
            figures=self._figures(columns, list(points)),
        )

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
        assert subject.task is not None
        known = subject.task.variables
        if self.variable is None:
            return list(known.values())[: self.variables]
        if self.variable not in known:
            raise UnknownNameError.of("variable", self.variable, known)
        return [known[self.variable]]

    def _activations(self, subject: Subject, points: dict[str, str]) -> dict[str, np.ndarray]:
        """Point → (example, features) in float64."""
        at = "answer" if self.pos is None else self.pos
        parts: dict[str, list[np.ndarray]] = {point: [] for point in points}
        for _, found in subject.stream(list(points.values()), at):
            for point, hook in points.items():
                parts[point].append(found[hook].flatten(1).double().cpu().numpy())
        return {point: np.concatenate(part) for point, part in parts.items()}

    def _probe(
        self, subject: Subject, variable: Variable, activations: dict[str, np.ndarray], seed: int
    ) -> tuple[dict[str, float], dict[str, float], np.ndarray]:
        """Score at every point, score of the control task there, and the null's maxima over
        points.
        """
        tokens = subject.data.tokens
        values = variable.value_of(tokens).cpu().numpy()
        draw = rng("linear", variable.name, seed)
        if self.kind == "class":
            types = np.unique(
                tokens[:, list(variable.positions)].cpu().numpy()
                if variable.positions
                else tokens.cpu().numpy(),
                axis=0,
                return_inverse=True,
            )[1].ravel()
            train = draw.permutation(len(values)) < len(values) // 2
            control = draw.choice(values, types.max() + 1)[types]
            shuffles = [draw.permutation(values) for _ in range(self.permutations)]
        else:
            present, inverse = np.unique(values, return_inverse=True)
            train = (draw.permutation(len(present)) < max(2, len(present) // 2))[inverse]
            control = draw.permutation(present)[inverse]
            shuffles = [draw.permutation(present)[inverse] for _ in range(self.permutations)]
        scores, controls, null = {}, {}, np.full(self.permutations, -np.inf)
        for point, x in activations.items():
            fitted = (Discriminant if self.kind == "class" else Ridge)(x[train], self.ridge)
            scores[point], controls[point] = (
                fitted.score(labels[train], x[~train], labels[~train])
                for labels in (values, control)
            )
            null = np.maximum(
                null,
                [fitted.score(labels[train], x[~train], labels[~train]) for labels in shuffles],
            )
        return scores, controls, null

    def _figures(self, columns: dict[str, list[Any]], points: list[str]) -> dict[str, Any]:
        names = list(dict.fromkeys(columns["variable"]))
        of = {
            name: [
                score
                for score, variable in zip(columns[self._score], columns["variable"], strict=True)
                if variable == name
            ]
            for name in names
        }
        text = (
            "held-out accuracy (0–1)"
            if self.kind == "class"
            else "R² on held-out values (1 is exact)"
        )
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


class Discriminant:
    """The linear discriminant of fixed inputs x (example, features), for any labelling of them."""

    def __init__(self, x: np.ndarray, penalty: float) -> None:
        self.mean = x.mean(0)
        self.x = x - self.mean
        self.gram = self.x.T @ self.x / len(x)
        self.penalty = _penalty(self.gram, penalty)

    def score(self, labels: np.ndarray, x: np.ndarray, held_out: np.ndarray) -> float:
        """Share of `held_out`, labels of new inputs x, that is predicted from the inputs' own
        `labels`.
        """
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        means = np.zeros((len(classes), self.x.shape[1]))
        np.add.at(means, index, self.x)
        means /= counts[:, None]
        within = self.gram - (means.T * (counts / len(labels))) @ means + self.penalty
        directions = _solve(within, means.T)  # (features, classes)
        said = (x - self.mean) @ directions - 0.5 * (means.T * directions).sum(0)
        return float((classes[said.argmax(1)] == held_out).mean())


class Ridge:
    """Ridge regression of numbers on fixed inputs x (example, features), for any targets.

    >>> fitted = Ridge(np.array([[0.0], [1.0], [2.0]]), penalty=0.0)
    >>> (fitted.weights(np.array([1, 3, 5])).round(12).tolist(),
    ...     fitted.score(np.array([1, 3, 5]), np.array([[7.0]]), np.array([15])))
    ([2.0], 1.0)
    """

    def __init__(self, x: np.ndarray, penalty: float) -> None:
        self.mean = x.mean(0)
        centred = x - self.mean
        gram = centred.T @ centred
        self.solve = _solve(gram + _penalty(gram, penalty), centred.T)

    def weights(self, labels: np.ndarray) -> np.ndarray:
        """(features,) of the targets `labels`."""
        return self.solve @ (labels - labels.mean())

    def score(self, labels: np.ndarray, x: np.ndarray, held_out: np.ndarray) -> float:
        """R² of the prediction of `held_out` at new inputs x, about the mean of `labels`; below 0
        when worse than that mean.
        """
        error = held_out - labels.mean() - (x - self.mean) @ self.weights(labels)
        return float(1 - (error**2).sum() / max(((held_out - labels.mean()) ** 2).sum(), 1e-300))


def _penalty(gram: np.ndarray, relative: float) -> np.ndarray:
    return relative * max(np.trace(gram) / len(gram), 1e-300) * np.eye(len(gram))


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix⁺ right; the pseudo-inverse where the matrix is singular, as with fewer inputs than
    coordinates.
    """
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(matrix, hermitian=True) @ right
