"""Programs that nobody told, put to the test: controls of which none may stand, planted programs
that should, and models trained on a known rule beside them.

    python -m benchmarks.induced --out docs/programs-calibration.json

Seeds, numbers of models and what counts as false are the constants below; they were written before
the first model was judged. A control stands where the explanation of the family *induced* does; a
plant is found where it stands, gives the planted answers on fresh inputs, and says of each planted
head the planted keys.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.decide.intervals import wilson
from mechint.explanation.functions import Fitting, Function
from mechint.explanation.rules import Rule
from mechint.explanation.source_program import SourceProgram, standing_of
from mechint.explanation.sources import Sources
from mechint.models.transformer import HookedTransformer
from mechint.registry import FUNCTIONS
from mechint.subject import Subject
from mechint.task import Batch, rng
from probes.explanations.induced import Refusal, Search, induce

INPUTS = 1200
"""Distinct prompts of a model, half of them judged."""
PLANTS, TRAINED = 100, 36
MEMORIZED, FRESH, UNTRAINED, SHUFFLED = 50, 50, 60, 30
FORCED_RULES, FORCED_FUNCTIONS, BROKEN = 120, 120, 30
DIFFERENT = 0.05
"""Share of inputs on which a forced rule has other keys among the operands, and brings another
value, than the one that was found; a rule below it is the same one in other words."""
WRONG = 0.9
"""Share of answers, above chance, below which a forced function is a wrong one."""
FOUND = 0.99
"""Share of fresh inputs on which a plant's program gives the planted answers."""


@dataclass(frozen=True)
class Made:
    """A model with its prompts; truth: tokens → answers; keys: head → name of its rule."""

    subject: Subject
    truth: Callable[[Tensor], Tensor] | None = None
    keys: dict[str, str] | None = None


def subject_of(model: HookedTransformer, tokens: Tensor) -> Subject:
    """A model on distinct prompts, asked at the last position."""
    tokens = torch.unique(tokens, dim=0)
    order = torch.from_numpy(rng("calibration order").permutation(len(tokens)))[:INPUTS]
    tokens = tokens[order]
    return Subject(model, None, data=Batch(tokens, tokens[..., None]))


def halves(subject: Subject) -> tuple[Sources, Sources]:
    """The half that is searched on, and the half that judges."""
    half = len(subject.data) // 2
    rows = torch.arange(len(subject.data))
    return Sources(subject, rows[:half]), Sources(subject, rows[half:])


def judge(
    subject: Subject, forced: dict[str, Rule] | None = None, function: Function | None = None
) -> tuple[str, str, SourceProgram | None]:
    """Standing, reason and program of a model, with rules or a function in place of those found."""
    fitted, judged = halves(subject)
    found = induce(fitted, forced)
    if isinstance(found, Refusal):
        return "refused", found.reason, None
    if function is not None:
        found = SourceProgram(**{**vars(found), "function": function})
    return *standing_of(found.checks(judged)), found


# --- models ---------------------------------------------------------------------------------------
def config_of(vocab: int, ctx: int, classes: int, **more: Any) -> ModelConfig:
    """A small transformer."""
    sizes: dict[str, Any] = {"d_model": 32, "n_heads": 2, "d_mlp": 64, "n_layers": 1} | more
    return ModelConfig(d_vocab=vocab, d_vocab_out=classes, n_ctx=ctx, **sizes)


def train(
    config: ModelConfig, x: Tensor, y: Tensor, steps: int, seed: int, lr: float = 4e-3,
    decay: float = 0.1,
) -> HookedTransformer:  # fmt: skip
    """A model trained with AdamW on x, answered at the last position with y."""
    model = HookedTransformer(config, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / 30) * (1 - 0.9 * step / steps)
        rows = torch.randint(len(x), (min(256, len(x)),), generator=draw)
        loss = torch.nn.functional.cross_entropy(model(x[rows])[:, -1], y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for weight in model.parameters():
        weight.requires_grad_(False)
    return model


def prompts(vocab: int, ctx: int, n: int, seed: int, end: bool = True) -> Tensor:
    """Random tokens, and a mark at the end."""
    tokens = torch.from_numpy(rng("calibration prompts", seed).integers(0, vocab, (n, ctx)))
    return torch.cat([tokens, torch.full((n, 1), vocab)], 1) if end else tokens


def accuracy(model: HookedTransformer, x: Tensor, y: Tensor) -> float:
    """Share of right answers."""
    with torch.no_grad():
        return float((model(x)[:, -1].argmax(1) == y).double().mean())


KNOWN: dict[str, tuple[int, int, int, Callable[[Tensor], Tensor], dict[str, Any]]] = {
    "largest": (12, 5, 12, lambda t: t[:, :5].amax(1), {"n_heads": 1, "attn_only": True}),
    "smallest": (12, 5, 12, lambda t: t[:, :5].amin(1), {"n_heads": 1, "attn_only": True}),
    "first plus last": (9, 4, 9, lambda t: (t[:, 0] + t[:, 3]) % 9, {"d_mlp": 128}),
    "majority": (2, 9, 2, lambda t: (t[:, :9].sum(1) > 4).long(), {"n_heads": 1}),
    "count": (5, 8, 9, lambda t: (t[:, :8] == 2).sum(1), {"n_heads": 1}),
    "equal": (8, 4, 2, lambda t: (t[:, 0] == t[:, 2]).long(), {}),
}
"""Rule → vocabulary, positions, classes, answers, configuration."""


def trained(n: int, seed: int = 0) -> Iterator[tuple[str, Made]]:
    """Models trained on a known rule, of those that learn it."""
    names = list(KNOWN)
    for number in range(n):
        name = names[number % len(names)]
        vocab, ctx, classes, truth, more = KNOWN[name]
        x = prompts(vocab, ctx, 6000, seed + number)
        config = config_of(vocab + 1, ctx + 1, classes, **more)
        model = train(config, x[:4500], truth(x[:4500]), 1000, seed + number)
        if accuracy(model, x[4500:], truth(x[4500:])) >= 0.99:
            yield name, Made(subject_of(model, x), truth)


def plant(seed: int) -> tuple[str, Made]:
    """A model whose weights are set by hand: heads that attend by a rule and write the token, and
    an answer that is the token or a table of two, with noise on all weights.
    """
    draw = rng("calibration plant", seed)
    n, ctx = int(draw.integers(5, 9)), int(draw.integers(4, 7))
    two = bool(draw.random() < 0.5)
    places = draw.permutation(ctx)[:2].tolist()
    kinds = (
        ["position", "position"] if two else [str(draw.choice(["largest", "smallest", "position"]))]
    )
    if two and draw.random() < 0.4:
        kinds[0] = str(draw.choice(["largest", "smallest"]))
    function = str(draw.choice(["sum", "max", "equal", "less"])) if two else "copy"
    classes = 2 if function in ("equal", "less") else n
    token, place, size, mark, out = 0, n, n + ctx + 1, n + ctx + 2, n + ctx + 3
    width = out + len(kinds) * n + classes
    config = ModelConfig(
        d_model=width, n_heads=len(kinds), d_head=n, d_mlp=max(n * n, 4), d_vocab=n + 1,
        d_vocab_out=classes, n_ctx=ctx + 1, attn_only=not two,
    )  # fmt: skip
    model = HookedTransformer(config, seed=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.embed.W_E[:n, token : token + n] = torch.eye(n)
        model.embed.W_E[:n, size] = torch.arange(1, n + 1).float()
        model.embed.W_E[n, mark] = 1.0
        model.pos_embed.W_pos[:, place : place + ctx + 1] = torch.eye(ctx + 1)
        attention = model.blocks[0].attn
        for head, kind in enumerate(kinds):
            attention.W_Q[head, mark, 0] = 12.0 * n**0.5
            if kind == "position":
                attention.W_K[head, place + places[head], 0] = 1.0
            else:  # the mark has no size: it must not be the smallest
                attention.W_K[head, size, 0] = 1.0 if kind == "largest" else -1.0
                attention.W_K[head, mark, 0] = 0.0 if kind == "largest" else -2.0 * n
            attention.W_V[head, token : token + n] = torch.eye(n)
            start = out + head * n
            attention.W_O[head, :, start : start + n] = torch.eye(n)
        answer = out + len(kinds) * n
        if two:
            pairs = [(a, b) for a in range(n) for b in range(n)]
            mlp = model.blocks[0].mlp
            for unit, (a, b) in enumerate(pairs):
                mlp.W_in[out + a, unit] = mlp.W_in[out + n + b, unit] = 1.0
                mlp.b_in[unit] = -1.5
                mlp.W_out[unit, answer + TABLES[function](a, b, n)] = 30.0
            model.unembed.W_U[answer : answer + classes] = torch.eye(classes)
        else:
            model.unembed.W_U[out : out + n] = 15.0 * torch.eye(n)
        noise = torch.Generator().manual_seed(seed)
        for weight in model.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=noise)
            weight.requires_grad_(False)
    names = {
        f"L0H{i}": f"position {places[i]}" if kind == "position" else f"the {kind} token"
        for i, kind in enumerate(kinds)
    }

    def brought(t: Tensor, head: int) -> Tensor:
        if kinds[head] == "position":
            return t[:, places[head]]
        return t[:, :ctx].amax(1) if kinds[head] == "largest" else t[:, :ctx].amin(1)

    def truth(t: Tensor) -> Tensor:
        a = brought(t, 0)
        if not two:
            return a
        b = brought(t, 1)
        return {"sum": (a + b) % n, "max": torch.maximum(a, b), "equal": (a == b).long(),
                "less": (a < b).long()}[function]  # fmt: skip

    subject = subject_of(model, prompts(n, ctx, 4000, seed))
    return f"{function} of {', '.join(names.values())}", Made(subject, truth, names)


TABLES: dict[str, Callable[[int, int, int], int]] = {
    "sum": lambda a, b, n: (a + b) % n,
    "max": lambda a, b, n: max(a, b),
    "equal": lambda a, b, n: int(a == b),
    "less": lambda a, b, n: int(a < b),
}


# --- controls -------------------------------------------------------------------------------------
def memorized(n: int, seed: int = 0) -> Iterator[tuple[str, Made]]:
    """Models that know random answers to a few hundred prompts by rote, asked about these."""
    for number in range(n):
        vocab, ctx, count = ((6, 4, 500), (16, 3, 400), (4, 5, 600), (10, 4, 400))[number % 4]
        x = torch.unique(prompts(vocab, ctx, count, seed + number), dim=0)
        y = torch.from_numpy(rng("rote", seed + number).integers(0, vocab, len(x)))
        config = config_of(vocab + 1, ctx + 1, vocab, d_model=64, d_mlp=256)
        model = train(config, x, y, 700, seed + number, lr=6e-3, decay=0.0)
        yield f"memorized, accuracy {accuracy(model, x, y):.2f}", Made(subject_of(model, x))


def fresh(n: int, seed: int = 500) -> Iterator[tuple[str, Made]]:
    """The same kind of model, asked about prompts that it has not seen."""
    for number, (_, made) in enumerate(memorized(n, seed)):
        vocab, ctx = ((6, 4), (16, 3), (4, 5), (10, 4))[number % 4]
        x = prompts(vocab, ctx, 4000, 7000 + number)
        yield "memorized, asked about others", Made(subject_of(made.subject.model, x))


def shuffled(n: int, seed: int = 900) -> Iterator[tuple[str, Made]]:
    """Models trained until they are sure on the permuted answers of a rule."""
    for number in range(n):
        vocab, ctx, classes, truth, more = KNOWN[list(KNOWN)[number % len(KNOWN)]]
        x = torch.unique(prompts(vocab, ctx, 700, seed + number), dim=0)
        y = truth(x)[torch.from_numpy(rng("shuffled", seed + number).permutation(len(x)))]
        config = config_of(
            vocab + 1, ctx + 1, classes, **{**more, "d_model": 64, "d_mlp": 256, "attn_only": False}
        )
        model = train(config, x, y, 600, seed + number, lr=6e-3, decay=0.0)
        yield f"shuffled, accuracy {accuracy(model, x, y):.2f}", Made(subject_of(model, x))


def untrained(n: int) -> Iterator[tuple[str, Made]]:
    """Initial weights of several shapes, with unembeddings scaled until answers are sure."""
    for number in range(n):
        vocab, ctx = (6, 10, 20)[number % 3], (4, 7)[number % 2]
        shape = {"n_layers": 1 + number % 3, "n_heads": (1, 2, 4)[number % 3],
                 "normalization_type": ("LN", None)[number % 2],
                 "attn_only": number % 5 == 0}  # fmt: skip
        model = HookedTransformer(config_of(vocab + 1, ctx + 1, vocab, **shape), seed=number)
        scale = (1, 10, 40, 200)[number % 4]
        with torch.no_grad():
            model.unembed.W_U.mul_(scale)
            if number % 8 >= 4:  # attention as sharp as a trained one
                for block in model.blocks:
                    block.attn.W_Q.mul_(20)
        for weight in model.parameters():
            weight.requires_grad_(False)
        yield (
            f"untrained, unembedding × {scale}",
            Made(subject_of(model, prompts(vocab, ctx, 4000, number))),
        )


def false_rule(search: Search, true: Rule, draw: np.random.Generator) -> Rule | None:
    """A rule of the library that has other keys and brings another value than the true one."""
    inputs = search.inputs
    tokens, at = inputs.tokens, inputs.at
    operand = inputs.is_operand(tokens, at)
    own = true.keys(tokens, at) & operand
    for index in draw.permutation(len(search.library)):
        rule = search.library[int(index)]
        keys = rule.keys(tokens, at) & operand
        if float((keys != own).any(1).double().mean()) < DIFFERENT:
            continue
        if float((~rule.keys(tokens, at).any(1)).double().mean()) > 0.35:
            continue
        if rule.kind == true.kind == "token" and not true.weights:
            differs = rule.token(tokens, at) != true.token(tokens, at)
            if float(differs.double().mean()) < DIFFERENT:
                continue
        return rule
    return None


def forced_rules(
    pool: list[tuple[str, Made]], n: int
) -> Iterator[tuple[str, Made, dict[str, Rule]]]:
    """True models of which every head that matters is said to follow a rule drawn at random."""
    for number in range(n):
        name, made = pool[number % len(pool)]
        search, draw = Search(halves(made.subject)[0]), rng("forced rule", number)
        rest = search.irrelevant()
        true = search.rules([h for h in search.sources.heads if h not in rest])
        forced = {head: false_rule(search, rule, draw) for head, rule in true.items()}
        if all(rule is not None for rule in forced.values()):
            yield f"false rules: {name}", made, {h: r for h, r in forced.items() if r is not None}


def one_forced(pool: list[tuple[str, Made]], n: int) -> Iterator[tuple[str, Made, dict[str, Rule]]]:
    """True models of which one head of several is said to follow a false rule."""
    several = [one for one in pool if len(one[1].keys or "12") > 1]
    for number, (name, made, forced) in enumerate(forced_rules(several, n)):
        head = list(forced)[number % len(forced)]
        yield f"one false rule: {name}", made, {head: forced[head]}


def forced_functions(pool: list[tuple[str, Made]], n: int) -> Iterator[tuple[str, Made, Function]]:
    """True models with the right rules and a wrong function of the library, the best-fitting half
    of the wrong ones first.
    """
    for number in range(n):
        name, made = pool[number % len(pool)]
        fitted, _ = halves(made.subject)
        found = induce(fitted)
        if isinstance(found, Refusal):
            continue
        search = Search(fitted)
        fitting: Fitting = search.fitting(found.groups, found.variables, found.rest)
        made_ = [one for key in FUNCTIONS for one in FUNCTIONS[key](fitting)]
        wrong = [(fitting.fit(one), one) for one in made_]
        wrong = sorted((one for one in wrong if search.above(one[0]) < WRONG), key=lambda o: -o[0])
        if wrong:
            chosen = wrong[number // len(pool) % max(len(wrong) // 2, 1)][1]
            yield f"wrong function: {name}", made, chosen


# --- the whole ------------------------------------------------------------------------------------
def plants(n: int) -> tuple[list[str], list[tuple[str, Made]]]:
    """How many plants are found, and all of them; the misses with their reason."""
    misses, made_ = list[str](), list[tuple[str, Made]]()
    for seed in range(n):
        name, made = plant(seed)
        made_.append((name, made))
        standing, reason, program = judge(made.subject)
        if standing != "stands" or program is None:
            misses.append(f"{seed} {name}: {standing}, {reason}")
            continue
        assert made.truth is not None and made.keys is not None
        tokens = made.subject.data.tokens
        at = torch.full((len(tokens),), tokens.shape[1] - 1)
        same = float((program.answer(tokens, at) == made.truth(tokens)).double().mean())
        library = {rule.name: rule for rule in Search(halves(made.subject)[0]).library}
        wrong = {
            head: name
            for head, name in made.keys.items()
            if head not in program.heads
            or not torch.equal(program.heads[head].keys(tokens, at), library[name].keys(tokens, at))
        }
        if same < FOUND or wrong:
            misses.append(f"{seed} {name}: FALSE, agrees {same:.3f}, not {wrong}")
    return misses, made_


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the models, for a try")
    parser.add_argument("--only-true", action="store_true", help="plants and trained truth alone")
    given = parser.parse_args()
    torch.set_num_threads(1)

    def some(count: int) -> int:
        return max(1, round(count * given.scale))

    start, rows = time.process_time(), dict[str, Counter[str]]()
    false: list[str] = []

    def note(kind: str, name: str, found: tuple[str, str, SourceProgram | None]) -> None:
        standing, _, program = found
        counts = rows.setdefault(kind, Counter())
        counts[standing] += 1
        counts["reached the audit"] += program is not None
        if standing == "stands":
            assert program is not None
            false.append(f"{kind}: {name}: {program.lines()} {program.said_of_heads()}")
            print("STANDS", false[-1], flush=True)

    misses, planted = plants(some(PLANTS))
    print(
        f"plants: {len(planted) - len(misses)} of {len(planted)}", *misses, sep="\n  ", flush=True
    )
    known, truths = list(trained(some(TRAINED))), Counter[str]()
    for name, made in known:
        standing, reason, program = judge(made.subject)
        truths[standing] += 1
        if standing != "stands":
            print("trained truth:", name, standing, reason[:100], flush=True)
            continue
        assert program is not None and made.truth is not None
        tokens = made.subject.data.tokens
        at = torch.full((len(tokens),), tokens.shape[1] - 1)
        same = float((program.answer(tokens, at) == made.truth(tokens)).double().mean())
        if same < FOUND:
            print("trained truth: FALSE", name, same, program.lines(), flush=True)
            truths["false"] += 1
    print("trained truth", dict(truths), flush=True)
    if given.only_true:
        return
    single: list[tuple[str, Callable[[], Iterator[tuple[str, Made]]]]] = [
        ("memorized, asked about what it knows", lambda: memorized(some(MEMORIZED))),
        ("memorized, asked about others", lambda: fresh(some(FRESH))),
        ("shuffled answers", lambda: shuffled(some(SHUFFLED))),
        ("untrained", lambda: untrained(some(UNTRAINED))),
    ]
    for kind, make in single:
        for name, made in make():
            note(kind, name, judge(made.subject))
        print(kind, dict(rows.get(kind, {})), flush=True)
    pool = [*planted[:30], *known]
    for name, made, forced in forced_rules(pool, some(FORCED_RULES)):
        note("false rules on every head", name, judge(made.subject, forced))
    for name, made, forced in one_forced(pool, some(BROKEN)):
        note("a false rule on one head of several", name, judge(made.subject, forced))
    for name, made, function in forced_functions(pool, some(FORCED_FUNCTIONS)):
        note("a wrong function of the right rules", name, judge(made.subject, None, function))
    total = sum(sum(c[s] for s in c if s != "reached the audit") for c in rows.values())
    reached = sum(c["reached the audit"] for c in rows.values())
    for kind, counts in rows.items():
        print(f"{kind}: {dict(counts)}")
    high = wilson(len(false), total)[1]
    print(
        f"{len(false)} of {total} controls stand (at most {high:.1%}); {reached} reached the audit"
    )
    print(f"{time.process_time() - start:.0f} s of processor time")
    if given.out:
        made_ = {
            "plants": {"n": len(planted), "found": len(planted) - len(misses), "misses": misses},
            "trained": dict(truths),
            "controls": {kind: dict(counts) for kind, counts in rows.items()},
            "false": false,
            "seconds": round(time.process_time() - start),
        }
        given.out.write_text(json.dumps(made_, indent=1) + "\n")


if __name__ == "__main__":
    main()
