"""Routes and copies: heads that attend to one key, and answers that are the token there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from mechint.explanation import Explanation, Family, Route
from mechint.explanation.claims import KEYS, markers
from mechint.explanation.measure import Bench
from mechint.explanation.parts import Copy
from mechint.subject import Subject

MIN_MASS = 0.5
"""Mean attention on a key from which a head is said to attend to it."""
COPIED = 0.5
"""Share of the model's answers that have to be the token at a key, for a copy to be proposed."""


class Routes(Family):
    """Do heads attend from the answer to one key, and is the token there the answer?

    The answer is said to be copied where it mostly is the token there; the audit moves the key.
    """

    name: ClassVar[str] = "routes"

    def applies(self, subject: Subject) -> bool:
        needed = {f"blocks.0.attn.hook_{name}" for name in ("pattern", "z", "v")}
        return (
            needed <= subject.hooks
            and subject.data.tokens.shape[1] >= 4
            and subject.data.lengths is None
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        tokens, values = bench.tokens(bench.fitted), bench.values(bench.fitted)
        at = bench.subject.answer_positions[bench.fitted]
        if not bool((at == tokens.shape[1] - 1).all()):
            return
        seen = set[tuple[int, tuple[int, ...]]]()
        answers = bench.own_logits[bench.fitted].argmax(1)
        for layer in range(bench.subject.n_layers):
            pattern = bench.subject.activation(f"blocks.{layer}.attn.hook_pattern", "answer")
            pattern = pattern[bench.fitted]  # (example, head, key)
            for words, key in KEYS.items():
                keys = key(tokens, values)
                heads = tuple((mean_mass(pattern, keys) >= MIN_MASS).nonzero().flatten().tolist())
                if not heads or (layer, heads) in seen:
                    continue
                seen.add((layer, heads))
                route = Route(f"attends to the {words}", layer, heads, key)
                there = tokens.gather(1, keys[:, None])[:, 0].cpu()
                copies = bool((there == answers).double().mean() >= COPIED)
                yield Explanation(
                    f"{'copy: ' * copies}{route}",
                    bench.program,
                    routes=(route,),
                    family=self.name,
                    notes=markers(bench.subject),
                    copies=(Copy(route),) if copies else (),
                )


def mean_mass(pattern: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(head,) mean attention (example, head, key) on one key per example."""
    return pattern.gather(2, keys[:, None, None].expand(-1, pattern.shape[1], 1)).mean((0, 2))
