"""Routes and copies: heads that attend to one key, and answers read off it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from mechint.explanation import Explanation, Family, Part, Route
from mechint.explanation.claims import KEYS, one_hot
from mechint.explanation.measure import Bench
from mechint.interventions import Site
from mechint.subject import Subject

MIN_MASS = 0.5
"""Mean attention on a key from which a head is said to attend to it."""
MAX_VALUES = 128


class Routes(Family):
    """Do heads attend from the answer to one key, whose token the answer is read from?"""

    name: ClassVar[str] = "routes"

    def applies(self, subject: Subject) -> bool:
        return (
            "blocks.0.attn.hook_pattern" in subject.hooks
            and subject.data.tokens.shape[1] >= 4
            and subject.data.lengths is None
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        tokens, values = bench.tokens(bench.fitted), bench.values(bench.fitted)
        at = bench.subject.answer_positions[bench.fitted]
        if not bool((at == tokens.shape[1] - 1).all()):
            return
        routes: list[Route] = []
        for layer in range(bench.subject.n_layers):
            pattern = bench.subject.activation(f"blocks.{layer}.attn.hook_pattern", "answer")
            pattern = pattern[bench.fitted]  # (example, head, key)
            for words, key in KEYS.items():
                keys = key(tokens, values)
                heads = tuple((mean_mass(pattern, keys) >= MIN_MASS).nonzero().flatten().tolist())
                if heads and not any(r.layer == layer and r.heads == heads for r in routes):
                    routes.append(Route(f"attends to the {words}", layer, heads, key))
        names = [name for name in bench.program.answers[-1] if name is not None]
        if not routes or len(names) != 1:
            return
        n_values = bench.program.variables[names[0]].n_values
        parts: tuple[Part, ...] = ()
        if n_values <= MAX_VALUES:
            site = Site(f"blocks.{bench.subject.n_layers - 1}.hook_resid_post", "answer")
            parts = (Part(names[0], site, (names[0],), one_hot(names[0], n_values), reads=True),)
        for route in routes:
            yield Explanation(f"copy: {route}", bench.program, parts, (route,), self.name)


def mean_mass(pattern: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """(head,) mean attention (example, head, key) on one key per example."""
    return pattern.gather(2, keys[:, None, None].expand(-1, pattern.shape[1], 1)).mean((0, 2))
