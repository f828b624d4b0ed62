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
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mechint
from benchmarks.programs import ASKED, EXAMPLES
from mechint.config import ModelConfig
from mechint.decide.intervals import wilson
from mechint.explanation._audit import audit_on
from mechint.explanation.functions import Fitting, Function
from mechint.explanation.measure import Bench
from mechint.explanation.rules import Rule
from mechint.explanation.source_program import SourceProgram
from mechint.explanation.sources import Sources
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
from mechint.models.transformer import HookedTransformer
from mechint.prompts import Prompts
from mechint.registry import FUNCTIONS
from mechint.subject import Subject
from mechint.task import Program, rng
from probes.explanations.induced import Refusal, Search, explanation_of, induce

INPUTS = 1200
"""Distinct prompts of a model, half of them judged."""
BATCH = 128
"""Examples a step."""
PLANTS, TRAINED = 100, 36
MEMORIZED, UNTRAINED, SHUFFLED = 24, 64, 24
FORCED_RULES, FORCED_FUNCTIONS, BROKEN, POOL = 150, 150, 40, 30
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
    """A model on distinct prompts, asked at the last position for its own answers."""
    tokens = torch.unique(tokens, dim=0)
    order = torch.from_numpy(rng("calibration order").permutation(len(tokens)))[:INPUTS]
    task = Prompts.of(
        [{"prompt": row} for row in tokens[order].tolist()],
        None,
        model.config.d_vocab,
        None,
        n_classes=model.config.d_vocab_out,
    )
    task.take_answers(model)
    return Subject(model, task)


def bench_of(subject: Subject) -> Bench:
    """The halves that are searched on and that judge, of a model that answers itself."""
    return Bench.of(subject, Program("none", (), ()), examples=INPUTS)


def judge(
    subject: Subject, forced: dict[str, Rule] | None = None, function: Function | None = None
) -> tuple[str, str, SourceProgram | None]:
    """Standing, reason and program of a model, with rules or a function in place of those found."""
    bench = bench_of(subject)
    found = induce(Sources(subject, bench.fitted), forced)
    if isinstance(found, Refusal):
        return "refused", found.reason, None
    if function is not None:
        found = dataclasses.replace(found, function=function)
    audit = audit_on(bench, explanation_of(found, bench))
    return audit.standing, audit.reason, found


def fitted_half(subject: Subject) -> Sources:
    """The half that is searched on."""
    return Sources(subject, bench_of(subject).fitted)


# --- models ---------------------------------------------------------------------------------------
def config_of(vocab: int, ctx: int, classes: int, **more: Any) -> ModelConfig:
    """A small transformer."""
    sizes: dict[str, Any] = {"d_model": 32, "n_heads": 2, "d_mlp": 64, "n_layers": 1} | more
    return ModelConfig(d_vocab=vocab, d_vocab_out=classes, n_ctx=ctx, **sizes)


def train(
    config: ModelConfig, data: list[tuple[Tensor, Tensor]], steps: int, seeds: list[int],
    lr: float = 4e-3, decay: float = 0.1,
) -> list[HookedTransformer]:  # fmt: skip
    """Models of one configuration, trained side by side with AdamW, each on its own x, answered at
    the last position with y.
    """
    models = [HookedTransformer(config, seed=seed) for seed in seeds]
    weights = {
        name: torch.stack([dict(one.named_parameters())[name].detach() for one in models])
        for name, _ in models[0].named_parameters()
    }
    for weight in weights.values():
        weight.requires_grad_(True)
    draw = torch.Generator().manual_seed(seeds[0])
    optimizer = torch.optim.AdamW(weights.values(), lr=lr, weight_decay=decay)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / 30) * (1 - 0.9 * step / steps)
        rows = [torch.randint(len(x), (BATCH,), generator=draw) for x, _ in data]
        x = torch.stack([x[r] for (x, _), r in zip(data, rows, strict=True)])
        y = torch.stack([y[r] for (_, y), r in zip(data, rows, strict=True)])
        logits = Forward(weights, config).logits(RowLayout.dense(x))[:, :, -1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten()) * len(data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for index, one in enumerate(models):
        with torch.no_grad():
            for name, weight in one.named_parameters():
                weight.copy_(weights[name][index])
                weight.requires_grad_(False)
    return models


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
    for place, (name, (vocab, ctx, classes, truth, more)) in enumerate(KNOWN.items()):
        seeds = [seed + 100 * place + i for i in range(len(range(place, n, len(KNOWN))))]
        if not seeds:
            continue
        x = [prompts(vocab, ctx, 6000, one) for one in seeds]
        config = config_of(vocab + 1, ctx + 1, classes, **more)
        pairs = [(one[:4500], truth(one[:4500])) for one in x]
        models = train(config, pairs, 1000, seeds)
        for model, one in zip(models, x, strict=True):
            if accuracy(model, one[4500:], truth(one[4500:])) >= 0.99:
                yield name, Made(subject_of(model, one), truth)


Kind = int | str
"""Targets of a planted head: a position, "largest", "smallest", or "all"."""


def build(
    n: int,
    ctx: int,
    kinds: Sequence[Kind],
    table: Callable[[int, int], int] | None = None,
    classes: int = 0,
    seed: int = 0,
    noise: float = 0.01,
) -> HookedTransformer:
    """A model whose weights are set by hand, on `ctx` of n tokens and a mark that answers: heads
    that attend by a rule and write the token; the answer is the sum of what they write, or a table
    of what the first two bring.
    """
    classes = classes or n
    token, place, size, mark, out = 0, n, n + ctx + 1, n + ctx + 2, n + ctx + 3
    width, two = out + len(kinds) * n + classes, table is not None
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
        attention, answer = model.blocks[0].attn, out + len(kinds) * n
        for head, kind in enumerate(kinds):
            attention.W_Q[head, mark, 0] = 0.0 if kind == "all" else 12.0 * n**0.5
            if isinstance(kind, int):
                attention.W_K[head, place + kind, 0] = 1.0
            else:  # the mark has no size: it must not be the smallest
                attention.W_K[head, size, 0] = 1.0 if kind == "largest" else -1.0
                attention.W_K[head, mark, 0] = 0.0 if kind == "largest" else -2.0 * n
            attention.W_V[head, token : token + n] = torch.eye(n)
            start = out + head * n
            attention.W_O[head, :, start : start + n] = torch.eye(n)
            if not two:
                model.unembed.W_U[start : start + n, :n] = 15.0 * torch.eye(n)
        if table is not None:
            mlp = model.blocks[0].mlp
            for unit, (a, b) in enumerate((a, b) for a in range(n) for b in range(n)):
                mlp.W_in[out + a, unit] = mlp.W_in[out + n + b, unit] = 1.0
                mlp.b_in[unit] = -1.5
                mlp.W_out[unit, answer + table(a, b)] = 30.0
            model.unembed.W_U[answer : answer + classes] = torch.eye(classes)
        draw = torch.Generator().manual_seed(seed)
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, generator=draw)
            weight.requires_grad_(False)
    return model


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
    function = str(draw.choice(list(TABLES))) if two else "copy"
    if kinds[0] != "position" and function in ("max", "less"):
        function = "sum"  # the largest is never below another
    heads = [places[i] if kind == "position" else kind for i, kind in enumerate(kinds)]
    table = partial(TABLES[function], n=n) if two else None
    model = build(n, ctx, heads, table, 2 if function in ("equal", "less", "carry") else n, seed)
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
        values = [TABLES[function](x, y, n) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        return torch.tensor(values)

    subject = subject_of(model, prompts(n, ctx, 4000, seed))
    return f"{function} of {', '.join(names.values())}", Made(subject, truth, names)


NAMES = {n: rng("calibration group", n).permutation(n).tolist() for n in range(5, 9)}
"""Order of a cyclic group → names of its elements, by which no sum is seen."""
TABLES: dict[str, Callable[[int, int, int], int]] = {
    "sum": lambda a, b, n: (a + b) % n,
    "max": lambda a, b, n: max(a, b),
    "equal": lambda a, b, n: int(a == b),
    "less": lambda a, b, n: int(a < b),
    "carry": lambda a, b, n: (a + b) // n,
    "group": lambda a, b, n: NAMES[n][(NAMES[n].index(a) + NAMES[n].index(b)) % n],
}


# --- controls -------------------------------------------------------------------------------------
SHAPES = ((6, 4, 500), (16, 3, 400), (4, 5, 600), (10, 4, 400))
"""Vocabulary, positions and prompts of models that know answers by rote."""


def memorized(n: int, seed: int = 0) -> Iterator[tuple[str, Made]]:
    """Models that know random answers to a few hundred prompts by rote, asked about these."""
    for place, (vocab, ctx, count) in enumerate(SHAPES):
        seeds = [seed + 100 * place + i for i in range(len(range(place, n, len(SHAPES))))]
        if not seeds:
            continue
        x = [torch.unique(prompts(vocab, ctx, count, one), dim=0) for one in seeds]
        answers = [
            torch.from_numpy(rng("rote", s).integers(0, vocab, len(one)))
            for s, one in zip(seeds, x, strict=True)
        ]
        config = config_of(vocab + 1, ctx + 1, vocab, d_model=64, d_mlp=256)
        models = train(config, list(zip(x, answers, strict=True)), 900, seeds, 6e-3, 0.0)
        for model, one, y in zip(models, x, answers, strict=True):
            known = accuracy(model, one, y)
            yield f"memorized, accuracy {known:.2f}", Made(subject_of(model, one))


def fresh(known: list[tuple[str, Made]]) -> Iterator[tuple[str, Made]]:
    """The same models, asked about prompts that they have not seen."""
    for number, (_, made) in enumerate(known):
        config = made.subject.model.config
        x = prompts(config.d_vocab - 1, config.n_ctx - 1, 4000, 7000 + number)
        yield "memorized, asked about others", Made(subject_of(made.subject.model, x))


def shuffled(n: int, seed: int = 9000) -> Iterator[tuple[str, Made]]:
    """Models trained until they are sure on the permuted answers of a rule."""
    for place, (vocab, ctx, classes, truth, more) in enumerate(KNOWN.values()):
        seeds = [seed + 100 * place + i for i in range(len(range(place, n, len(KNOWN))))]
        if not seeds:
            continue
        x = [torch.unique(prompts(vocab, ctx, 700, one), dim=0) for one in seeds]
        order = [
            torch.from_numpy(rng("shuffled", s).permutation(len(one)))
            for s, one in zip(seeds, x, strict=True)
        ]
        y = [truth(one)[o] for one, o in zip(x, order, strict=True)]
        more = {**more, "d_model": 64, "d_mlp": 256, "attn_only": False}
        config = config_of(vocab + 1, ctx + 1, classes, **more)
        models = train(config, list(zip(x, y, strict=True)), 900, seeds, 6e-3, 0.0)
        for model, one, labels in zip(models, x, y, strict=True):
            known = accuracy(model, one, labels)
            yield f"shuffled, accuracy {known:.2f}", Made(subject_of(model, one))


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
        search, draw = Search(fitted_half(made.subject)), rng("forced rule", number)
        rest = search.irrelevant()
        true = search.rules([h for h in search.sources.heads if h not in rest])
        forced = {head: false_rule(search, rule, draw) for head, rule in true.items()}
        if all(rule is not None for rule in forced.values()):
            yield f"false rules: {name}", made, {h: r for h, r in forced.items() if r is not None}


def one_forced(pool: list[tuple[str, Made]], n: int) -> Iterator[tuple[str, Made, dict[str, Rule]]]:
    """True models of which one head of several is said to follow a false rule."""
    several = [one for one in pool if one[1].subject.model_description.n_heads != 1]
    for number, (name, made, forced) in enumerate(forced_rules(several, n)):
        head = list(forced)[number % len(forced)]
        yield f"one false rule: {name}", made, {head: forced[head]}


def forced_functions(pool: list[tuple[str, Made]], n: int) -> Iterator[tuple[str, Made, Function]]:
    """True models with the right rules and a wrong function of the library, the best-fitting half
    of the wrong ones first.
    """
    for number in range(n):
        name, made = pool[number % len(pool)]
        fitted = fitted_half(made.subject)
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
    """Numbers of plants found and of all; the misses with their reason."""
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
        library = {rule.name: rule for rule in Search(fitted_half(made.subject)).library}
        wrong = {
            head: name
            for head, name in made.keys.items()
            if head not in program.heads
            or not torch.equal(program.heads[head].keys(tokens, at), library[name].keys(tokens, at))
        }
        if same < FOUND or wrong:
            misses.append(f"{seed} {name}: FALSE, agrees {same:.3f}, not {wrong}")
    return misses, made_


def shipped() -> list[tuple[str, Made]]:
    """Models of the examples, asked by prompts."""
    found = []
    for name in ("examples/maximum", "examples/induction", "examples/digits"):
        asked = [one for one in ASKED if one.name == name][-1]  # of digits the units
        draw = np.random.default_rng(0)
        rows = [{"prompt": [int(x) for x in asked.draw(draw)]} for _ in range(3 * INPUTS)]
        subject = mechint.load(EXAMPLES / Path(asked.file).name, data=rows)
        found.append((name, Made(subject)))
    return found


@dataclass
class Table:
    """What came of each kind of control."""

    rows: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    false: list[str] = field(default_factory=list[str])

    def note(self, kind: str, name: str, found: tuple[str, str, SourceProgram | None]) -> None:
        """Count one control."""
        standing, _, program = found
        counts = self.rows.setdefault(kind, Counter())
        counts[standing] += 1
        if program is not None:
            counts["reached the audit"] += 1
            if standing == "stands":
                said = "; ".join([*program.lines(), *program.said_of_heads()])
                self.false.append(f"{kind}: {name}: {said}")
                print("STANDS", self.false[-1], flush=True)


def judge_trained(n: int) -> dict[str, int]:
    """Standings of models that were trained on a known rule; "false" of those that stand and do not
    give its answers.
    """
    found = Counter[str]()
    for name, made in trained(n):
        standing, reason, program = judge(made.subject)
        if standing == "stands":
            assert program is not None and made.truth is not None
            tokens = made.subject.data.tokens
            at = torch.full((len(tokens),), tokens.shape[1] - 1)
            same = float((program.answer(tokens, at) == made.truth(tokens)).double().mean())
            standing = standing if same >= FOUND else "false"
        found[standing] += 1
        if standing != "stands":
            print("trained:", name, standing, reason[:100], flush=True)
    return dict(found)


PARTS = ("plants", "trained", "rote", "shuffled", "untrained", "rules", "functions")


def main() -> None:
    """Print the table, and put it into a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, action="append", help="all when none is named")
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts, start, table = given.part or PARTS, time.process_time(), Table()
    made: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    if "plants" in parts:
        misses, planted = plants(PLANTS)
        made["plants"] = {"n": len(planted), "found": len(planted) - len(misses), "misses": misses}
        print(made["plants"], flush=True)
    if "trained" in parts:
        made["trained"] = judge_trained(TRAINED)
        print("trained truth", made["trained"], flush=True)
    if "rote" in parts:
        rote = list(memorized(MEMORIZED))
        for name, one in rote:
            table.note("random answers known by rote, asked about these", name, judge(one.subject))
        for name, one in fresh(rote):
            table.note("the same, asked about other prompts", name, judge(one.subject))
    for part, models in (("shuffled", shuffled), ("untrained", untrained)):
        if part in parts:
            number = {"shuffled": SHUFFLED, "untrained": UNTRAINED}[part]
            for name, one in models(number):
                table.note(part, name, judge(one.subject))
    pool = [*(plant(seed) for seed in range(POOL)), *shipped()]
    if "rules" in parts:
        for name, one, rules in forced_rules(pool, FORCED_RULES):
            table.note("false rules on every head", name, judge(one.subject, rules))
        for name, one, rules in one_forced(pool, BROKEN):
            table.note("a false rule on one head of several", name, judge(one.subject, rules))
    if "functions" in parts:
        for name, one, function in forced_functions(pool, FORCED_FUNCTIONS):
            kind = "a wrong function of the right rules"
            table.note(kind, name, judge(one.subject, None, function))
    made["controls"] = made.get("controls", {}) | {k: dict(c) for k, c in table.rows.items()}
    made["false"] = [
        one for one in made.get("false", []) if one.partition(":")[0] not in table.rows
    ] + table.false
    made["seconds"] = made.get("seconds", 0) + round(time.process_time() - start)
    counts = list(made["controls"].values())
    total = sum(n for one in counts for name, n in one.items() if name != "reached the audit")
    reached = sum(one.get("reached the audit", 0) for one in counts)
    for kind, one in made["controls"].items():
        print(f"{kind}: {one}")
    high = wilson(len(made["false"]), total)[1]
    print(f"{len(made['false'])} of {total} controls stand (at most {high:.1%} with 95%); "
          f"{reached} reached the audit; {made['seconds']} s of processor time")  # fmt: skip
    given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
