"""Induction: the answer is the token that followed an earlier occurrence of the last tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.explanation import Explanation, Family, Route
from mechint.explanation.checks.logits import terms as judge_terms
from mechint.explanation.claims import KEYS, matches
from mechint.explanation.measure import Bench, moved_tag
from mechint.explanation.parts import AT, Copy, Link, Templates, Values
from mechint.subject import Subject

COPIED = 0.9
"""Share of the model's answers that have to stand after an earlier occurrence."""
MASS = 0.5
"""Mean attention on the matches from which a head is said to attend to them."""
GAIN = 0.02
"""Share of answers that one more head has to add to those that follow its moved tag."""
PAIR = "token after an earlier equal pair"
SHORT = "induction by the last two tokens"
FOLLOWERS = (
    "one = [t[k] for k in range(1, len(t)) if t[k - 1] == t[-1]]",
    "two = [t[k] for k in range(2, len(t)) if t[k - 2 : k] == t[-2:]]",
)
VOTES = "lambda x: {0} * one.count(x) + {1} * two.count(x)"
"""The terms in Python."""


class Induction(Family):
    """Is the answer the token that followed earlier occurrences of the last one or two tokens?

    Logits are a sum of two terms, how often each token followed the last token and the last two
    tokens; heads of a later layer attend to the match, which they find by a tag that heads of an
    earlier layer write.
    """

    name: ClassVar[str] = "induction"
    mechanisms: ClassVar[tuple[str, ...]] = ("attention",)

    def applies(self, subject: Subject) -> bool:
        task = subject.task
        hooks = {f"blocks.{layer}.attn.hook_{x}" for layer in (0, 1) for x in ("pattern", "z")}
        return (
            task is not None
            and len(task.outputs) == 1
            and task.d_vocab_out <= task.d_vocab
            and hooks <= subject.hooks
            and subject.data.tokens.shape[1] >= 4
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        rows, subject = bench.fitted, bench.subject
        tokens, values = bench.tokens(rows), bench.at_answer(rows)
        given = bench.own_logits[rows].argmax(1)
        keys = KEYS[PAIR](tokens, values)
        copied = tokens.gather(1, keys[:, None])[:, 0].cpu() == given
        if float((copied & (keys.cpu() > 0)).double().mean()) < COPIED * bench.accuracy:
            return
        routes = list(induction_heads(bench))
        if not routes:
            return
        inner, links = bench.inner(), list[Link]()
        for layer in range(routes[0].layer):
            if heads := tagging_heads(inner, layer):
                words = "write at every position which tokens stand before it"
                links.append(Link(words, layer, heads, KEYS[PAIR]))
        assert subject.task is not None
        n = subject.task.d_vocab_out
        made = Explanation(
            f"{SHORT}: {'; '.join(map(str, routes))}",
            bench.program,
            routes=tuple(routes),
            family=self.name,
            links=tuple(links),
            templates=terms(n),
            template_spare=shifted(n),
            terms=(
                "how often each token followed the last token before",
                "how often each token followed the last two tokens before",
            ),
            python=(*FOLLOWERS, f"return max(one, key={VOTES}, default=None)"),
            short=SHORT,
        )
        told = judge_terms(inner, terms(n), shifted(n))
        if told[0].decision.verdict == "untested":  # they are the right answer: the heads copy it
            last = "return (two or one or [None])[-1]"
            made = replace(
                made,
                templates=None,
                terms=(),
                copies=(Copy(routes[-1]),),
                python=(*FOLLOWERS, last),
            )
        yield made


def induction_heads(bench: Bench) -> Iterator[Route]:
    """A route for every layer with heads that attend from the answer to keys after a match."""
    rows, subject = bench.fitted, bench.subject
    found = matches(bench.tokens(rows), bench.at_answer(rows), 1).cpu()
    for layer in range(1, subject.n_layers):
        pattern = subject.activation(f"blocks.{layer}.attn.hook_pattern", "answer")[rows]
        mass = (pattern.cpu() * found[:, None]).sum(2).mean(0)
        if heads := tuple((mass >= MASS).nonzero().flatten().tolist()):
            yield Route(f"attends to the {PAIR}", layer, heads, KEYS[PAIR])


def tagging_heads(bench: Bench, layer: int) -> tuple[int, ...]:
    """Heads of a layer whose tags, moved together, take the answer along: added one by one, the one
    that adds most first.
    """
    rest = list(range(bench.subject.model_description.n_heads or 0))
    chosen, reached = list[int](), 0.0
    while rest:
        moved = {
            head: moved_tag(bench, Link("", layer, (*chosen, head), KEYS[PAIR]), bench.judged)[
                0
            ].value
            for head in rest
        }
        best = max(moved, key=lambda head: moved[head])
        if not moved[best] >= reached + GAIN:
            break
        chosen, reached = [*chosen, best], moved[best]
        rest.remove(best)
    return tuple(sorted(chosen)) if reached >= MASS else ()


def terms(n: int) -> Templates:
    """Counts of each of n tokens after the last token, and after the last two."""

    def made(
        tokens: Int[Tensor, "n pos"], values: Values
    ) -> Float[Tensor, "template n d_vocab_out"]:
        return torch.stack([followers(tokens, matches(tokens, values, k), n) for k in (1, 2)])

    return made


def shifted(n: int) -> Templates:
    """The same of the token three places before the last one: as many other terms."""

    def made(
        tokens: Int[Tensor, "n pos"], values: Values
    ) -> Float[Tensor, "template n d_vocab_out"]:
        other = {**values, AT: values[AT] - 3}
        return torch.stack([followers(tokens, matches(tokens, other, k), n) for k in (1, 2)])

    return made


def followers(tokens: Tensor, at: Tensor, n: int) -> Float[Tensor, "n d_vocab_out"]:
    """Counts of each of n tokens at the positions `at` (n, pos)."""
    counts = torch.zeros(len(tokens), max(n, int(tokens.max()) + 1), dtype=torch.float64)
    counts.scatter_add_(1, tokens.cpu(), at.double().cpu())
    return counts[:, :n]
