"""What the remainders study measures on its runs: one method a claim, and the numbers that its
figures share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from mechint.errors import DataError
from mechint.probe import run as probe
from mechint.results import ProbeResult
from mechint.studies.core.study import Finding, Runs, mean_and_spread
from mechint.subject import Subject
from mechint.training import Run

FIT = 0.99
"""Training accuracy from which a prime counts as fitted."""


class Measures:
    """The study's runs under its probes; what is measured once is kept.

    Args:
        runs: with label "arm"; easy: the primes that come first; generalised: held-out accuracy
            that counts.
    """

    def __init__(self, runs: Runs, easy: Sequence[int], generalised: float) -> None:
        self.runs, self.easy, self.generalised = runs, tuple(easy), generalised
        self.subject = cache(self._subject)
        self.fourier = cache(self._fourier)
        self.embedding = cache(self._embedding)

    # --- reading the runs -------------------------------------------------------------------------
    def names(self, arm: str) -> list[str]:
        """Runs of an arm; DataError where the size has none."""
        names = self.runs.names(arm=arm)
        if not names:
            raise DataError(f"the study has no run of the arm {arm!r} at this size")
        return names

    def _subject(self, name: str) -> Subject:
        return self.runs[name].subject()

    def _fourier(self, name: str) -> ProbeResult:
        return probe(
            "fourier",
            self.subject(name),
            steps=29 if self.runs.labels[name]["arm"] == "main" else 0,
            permutations=199,
        )

    def _embedding(self, name: str) -> ProbeResult:
        return probe("embedding", self.subject(name))

    def curves(self, name: str, split: str = "test") -> dict[int, tuple[list[int], list[float]]]:
        """Prime → (steps, accuracies)."""
        return curves(self.runs[name], split)

    def final(self, name: str, split: str = "test") -> dict[int, float]:
        """Prime → accuracy at the last step."""
        return {q: values[-1] for q, (_, values) in self.curves(name, split).items()}

    def first(self, name: str) -> dict[int, float]:
        """Prime → the first step at which it is generalised; infinity where it never is."""
        return {
            q: next(
                (s for s, v in zip(steps, values, strict=True) if v >= self.generalised), math.inf
            )
            for q, (steps, values) in self.curves(name).items()
        }

    def late(self, primes: Sequence[int]) -> list[int]:
        """The primes that come after the easy ones."""
        return [q for q in primes if q not in self.easy]

    def digits(self, name: str) -> np.ndarray:
        """(example, head, 2) attention from the answer to x0 and to x1."""
        return (
            self.subject(name)
            .activation("blocks.0.attn.hook_pattern", at=-1)[..., :2]
            .double()
            .cpu()
            .numpy()
        )

    # --- the claims -------------------------------------------------------------------------------
    def claim_a(self) -> Finding:
        finals = {name: self.final(name) for name in self.names("main")}
        least = [min(final.values()) for final in finals.values()]
        primes = len(next(iter(finals.values())))
        ours = (
            f"least held-out accuracy of {primes} primes: {mean_and_spread(least)}; mean over "
            f"primes {np.mean([list(f.values()) for f in finals.values()]):.3f}"
        )
        return Finding(min(least) >= self.generalised, ours, {"final": finals})

    def claim_b(self) -> Finding:
        holds, words, values = True, [], {}
        for name in self.names("main"):
            first = self.first(name)
            early, late = (
                [first[q] for q in self.easy],
                {q: first[q] for q in self.late(list(first))},
            )
            order = early == sorted(early) and math.isfinite(early[-1])
            before = order and early[-1] <= min(late.values())
            rank, p_value = _ranks(list(late), list(late.values()))
            holds &= before and p_value > 0.05
            words.append(
                f"seed {self.runs.labels[name]['seed']}: {_steps(first)}; early ones "
                f"{'in order' if order else 'out of order'}, "
                f"{'before' if before else 'not before'} the others, whose order by size has "
                f"rank correlation {rank:+.2f}, p = {p_value:.2g}"
            )
            values[name] = {
                "first": first,
                "in_order": order,
                "before": before,
                "rank_correlation": rank,
                "rank_p": p_value,
            }
        p = self.runs.spec(self.names("main")[0]).task.to_dict()["p"]
        alike = [q for q in self.late(list(self.curves(self.names("main")[0]))) if (p - 1) % q == 0]
        note = (
            (
                f"p = {p} is 1 modulo {_listed(alike)}, where the remainder is that of x0 + x1, "
                "an easier task"
            )
            if alike
            else ""
        )
        return Finding(holds, "; ".join(words), values, note)

    def claim_c(self) -> Finding:
        found = {
            arm: [self.embedding(name).metrics["position.correlation"] for name in self.names(arm)]
            for arm in ("main", "addition")
        }
        ours = (
            f"remainders {mean_and_spread(found['main'])}, addition "
            f"{mean_and_spread(found['addition'])}"
        )
        return Finding(max(found["main"]) < 0 and min(found["addition"]) > 0.5, ours, found)

    def claim_d(self) -> Finding:
        found = {
            arm: {
                part: [self.embedding(name).metrics[f"svd.rank_{part}"] for name in self.names(arm)]
                for part in ("50", "90")
            }
            for arm in ("main", "addition")
        }
        holds = all(
            min(found["main"][part]) > max(found["addition"][part]) for part in ("50", "90")
        )
        parts = (
            (
                f"{part}%: remainders {_listed(found['main'][part])}, addition "
                f"{_listed(found['addition'][part])}"
            )
            for part in ("50", "90")
        )
        return Finding(holds, "components for " + "; for ".join(parts), found)

    def claim_e(self) -> Finding:
        holds, words, values = True, [], {}
        for name in self.names("main"):
            steps, counts = self.active(name)
            start = min(self.first(name)[q] for q in self.late(list(self.curves(name))))
            peak = max(counts)
            at = [step for step, count in zip(steps, counts, strict=True) if count == peak]
            holds &= max(at) >= start and peak > counts[0] and peak > counts[-1]
            words.append(
                f"seed {self.runs.labels[name]['seed']}: {counts[0]} at the start, at most "
                f"{peak} (steps {_listed(at[:6])}), {counts[-1]} at the end"
            )
            values[name] = {"step": steps, "active": counts, "first_late_prime": start}
        possible = len(self.fourier(self.names("main")[0]).metrics["neurons.share"])
        return Finding(holds, f"of {possible} frequencies, " + "; ".join(words), values)

    def active(self, name: str) -> tuple[list[int], list[int]]:
        """Steps of the kept checkpoints, and the active frequencies of the neurons at each."""
        columns = self.fourier(name).tables["steps"].columns
        return list(columns["step"]), list(columns["neurons active"])

    def claim_f(self) -> Finding:
        parts = ("embedding", "neurons")
        found = {
            name: {part: self.fourier(name).null[f"{part}.largest_share"] for part in parts}
            for arm in ("main", "shuffled")
            for name in self.names(arm)
        }
        values = {
            name: {
                part: {"share": null.observed, "p": null.p_value} for part, null in nulls.items()
            }
            for name, nulls in found.items()
        }
        periodic = all(
            values[name][part]["p"] <= 0.01 for name in self.names("main") for part in parts
        )
        silent = all(
            values[name][part]["p"] > 0.01 for name in self.names("shuffled") for part in parts
        )
        words = (
            f"{name}: "
            + ", ".join(
                f"{part} {one['share']:.2f} (p = {one['p']:.2g})" for part, one in row.items()
            )
            for name, row in values.items()
        )
        return Finding(
            periodic and silent, "largest share of a frequency, " + "; ".join(words), values
        )

    def claim_g(self) -> Finding:
        found = {}
        for name in self.names("main"):
            pattern = self.digits(name)
            found[name] = (pattern[..., 0] / pattern.sum(-1).clip(1e-12)).mean(0).tolist()
        clear = [sum(abs(share - 0.5) >= 0.3 for share in shares) for shares in found.values()]
        words = "; ".join(
            f"{name}: {', '.join(f'{share:.2f}' for share in shares)}"
            for name, shares in found.items()
        )
        return Finding(
            min(clear) >= 3,
            f"share of x0 in the attention to both digits, head by head: {words}",
            {"share_of_x0": found},
        )

    def claim_h(self) -> Finding:
        slow, over = self.names("no grokfast")[0], self.names("no dropout")[0]
        main = [self._generalised(self.final(name)) for name in self.names("main")]
        without, test, train = (
            self._generalised(self.final(slow)),
            self.final(over),
            self.final(over, "train"),
        )
        converges = len(without) == len(self.final(slow)) or len(without) >= min(map(len, main))
        overfits = min(train.values()) >= FIT and self._generalised(test) == [
            q for q in (2, 3) if q in test
        ]
        ours = (
            f"without Grokfast {len(without)} of {len(self.final(slow))} primes generalised "
            f"at step {self.runs[slow].step} "
            f"(main: {_listed([len(m) for m in main])}); without dropout "
            f"{_listed(self._generalised(test)) or 'none'} at step {self.runs[over].step}, "
            f"where training accuracy is at least {min(train.values()):.3f}"
        )
        values: dict[str, Any] = {
            "no grokfast": self.final(slow),
            "no dropout": test,
            "no dropout, train": train,
        }
        note = (
            f"without Grokfast: {'converges all the same' if converges else 'as in the paper'}; "
            f"without dropout: {'' if overfits else 'not '}as in the paper"
        )
        return Finding(not converges and overfits, ours, values, note)

    def _generalised(self, final: dict[int, float]) -> list[int]:
        return [q for q, accuracy in final.items() if accuracy >= self.generalised]

    def claim_i(self) -> Finding:
        first = self.first(self.names("masked")[0])
        main = [self.first(name) for name in self.names("main")]
        lead, rest = (
            {q: first[q] for q in (11, 13, 17, 19) if q in first},
            [step for q, step in first.items() if q > 19],
        )
        mean = {q: float(np.mean([one[q] for one in main])) for q in (11, 13) if q in first}
        in_time = all(first[q] <= 1.5 * mean[q] and math.isfinite(first[q]) for q in mean)
        holds = in_time and min(rest, default=math.inf) >= max(lead.values(), default=math.inf)
        ours = f"masked: {_steps(first)}; main runs on average: {_steps(mean)}"
        return Finding(holds, ours, {"masked": first, "main": mean})


def curves(run: Run, split: str) -> dict[int, tuple[list[int], list[float]]]:
    """Prime → (steps, accuracies) of a run on remainders."""
    steps = [int(row["step"]) for row in run.metrics]
    names = {output.name: output.n_classes for output in run.spec.task.outputs}
    return {
        q: (steps, [row[f"{split}.accuracy.{name}"] for row in run.metrics])
        for name, q in names.items()
    }


def _ranks(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Spearman's rank correlation, infinities last of all, and its two-sided p-value; (0, 1) where
    one of them does not vary.
    """
    from scipy import stats

    if min(len(set(x)), len(set(y))) < 2:
        return 0.0, 1.0
    found = stats.spearmanr(stats.rankdata(x), stats.rankdata(y))
    return float(found.statistic), float(found.pvalue)  # type: ignore[attr-defined]


def _steps(first: Mapping[int, float]) -> str:
    return ", ".join(
        f"{q} at {step:g}" if math.isfinite(step) else f"{q} never" for q, step in first.items()
    )


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
