"""Components that a patch, a direct effect or a gradient points at and that the model does without:
what is said of them has to survive their removal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import probes
from mechint import planted
from mechint.interventions import Mean, Site, loss_under
from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import Slots, blank, config_for, make_task
from mechint.subject import Subject
from probes._patching import Patching
from probes._patching.measures import first_needed

Weights = dict[str, torch.Tensor]
SLOTS = Slots(sign=1, pos=3, a=1, b=1, out=1)


def parity(neurons: Callable[[Weights], None]) -> Subject:
    """The answer is the parity of x. Heads 0.0, 0.1 and 0.2 copy its sign from position 0 to the
    slots a, b and out of the answer; W_U reads out, to which `neurons` may add.
    """
    table = tuple(tuple(x % 2 for _ in range(8)) for x in range(8))
    task = make_task("modular-arithmetic", p=8, table=table)
    config = config_for(task, SLOTS, n_heads=3, d_head=1, d_mlp=2)
    weights = blank(config)
    weights["embed.W_E"][:8, SLOTS["sign"]] = 1 - 2.0 * (torch.arange(8)[:, None] % 2)
    weights["pos_embed.W_pos"][:, SLOTS["pos"]] = torch.eye(3).double()
    for head, slot in enumerate(("a", "b", "out")):
        weights["blocks.0.attn.W_Q"][head, SLOTS["pos"].start + 2, 0] = 60.0
        weights["blocks.0.attn.W_K"][head, SLOTS["pos"].start, 0] = 1.0
        weights["blocks.0.attn.W_V"][head, SLOTS["sign"].start, 0] = 1.0
        weights["blocks.0.attn.W_O"][head, 0, SLOTS[slot].start] = 1.0
    weights["unembed.W_U"][SLOTS["out"].start, :2] = torch.tensor([20.0, -20.0]).double()
    weights["unembed.b_U"][2:] = -200.0
    neurons(weights)
    model = HookedTransformer(config)
    model.load_weights({name: one.float() for name, one in weights.items()})
    subject = Subject(model, task)
    assert subject.accuracy()["answer"] == 1.0
    return subject


def comparing(threshold: float) -> Callable[[Weights], None]:
    """Two neurons that write what a and b differ by beyond `threshold`; no input makes them differ.
    Above 1 apart no single head at its mean makes them fire.
    """

    def neurons(weights: Weights) -> None:
        a, b, out = (SLOTS[name].start for name in ("a", "b", "out"))
        for neuron, sign in enumerate((1.0, -1.0)):
            weights["blocks.0.mlp.W_in"][a, neuron] = sign
            weights["blocks.0.mlp.W_in"][b, neuron] = -sign
            weights["blocks.0.mlp.b_in"][neuron] = -threshold
            weights["blocks.0.mlp.W_out"][neuron, out] = 2.1 * sign / (2 - threshold)

    return neurons


@pytest.mark.parametrize("threshold", [1.0, 0.5, 0.0])
def test_patching_names_no_head_that_acts_in_patched_runs_alone(threshold: float) -> None:
    """No head is said to carry the answer where a removal makes the neurons fire: L0H0 then adds
    as much as 0.2, and 0.1 takes it away.
    """
    subject = parity(comparing(threshold))
    assert float(subject.activation("blocks.0.mlp.hook_post", at="answer").max()) == 0.0
    both = [Mean(Site.head(0, head)) for head in (0, 1)]
    assert loss_under(subject, both)["answer"] < 1e-6
    assert loss_under(subject, [Mean(Site.head(0, 2))])["answer"] == pytest.approx(math.log(2))
    result = Patching(variable="x", pairs=64).run(subject)
    table = result.tables["components"].to_frame()
    heads = table[(table.kind == "head") & (table.pos == 2)].set_index("head")
    assert heads.recovered[0] == pytest.approx(1.05) and heads.flips[0] == 1.0
    if threshold == 1.0:
        assert result.verdict == "yes" and result.metrics["component"] == "L0H2 @ 2"
        assert result.metrics["left"] == pytest.approx(0.0, abs=1e-5)
        assert result.metrics["not_needed"] == ["L0H0 @ 2"]
    else:
        assert result.verdict == "no"
        assert result.metrics["component"] == "L0H0 @ 2"
        assert result.metrics["left"] == pytest.approx(1.0)


def test_what_is_needed_recovers_and_flips_and_leaves_at_most_half() -> None:
    """The first recovers all and flips little, the second leaves most: neither is it."""
    recovered, flips = np.array([1.0, 0.9, 0.8, 0.7]), np.array([0.2, 0.9, 0.9, 0.9])
    shares = [0.0, 0.8, 0.1, 0.1]
    apart = [math.nan, 1.0, 1.0, 1.0]
    needed, tried = first_needed(range(4), recovered, flips, shares.__getitem__, apart.__getitem__)
    assert needed == [2] and tried == {1: 0.8, 2: 0.1}
    apart[2] = 0.1  # it holds the answer
    needed, _ = first_needed(range(4), recovered, flips, shares.__getitem__, apart.__getitem__)
    assert needed == [3]


def tail(heavy: int, nats: float, p: int = 16, idle: int = 0) -> Subject:
    """The answer is x: L0H0 writes `nats` where x < `heavy`, L0H1 20 nats where not, and
    `idle` others nothing.
    """
    task = make_task("modular-arithmetic", p=p, table=tuple((x,) * p for x in range(p)))
    slots = Slots(token=p, pos=3, out=p)
    config = config_for(task, slots, n_heads=2 + idle, d_head=p, attn_only=True, use_bias=False)
    weights, eye = blank(config), torch.eye(p).double()
    weights["embed.W_E"][:p, slots["token"]] = eye
    weights["pos_embed.W_pos"][:, slots["pos"]] = torch.eye(3).double()
    weights["unembed.W_U"][slots["out"]] = eye
    first = torch.arange(p) < heavy
    for head, (size, on) in enumerate(((nats, first), (20.0, ~first))):
        weights["blocks.0.attn.W_Q"][head, slots["pos"].start + 2, 0] = 60.0
        weights["blocks.0.attn.W_K"][head, slots["pos"].start, 0] = 1.0
        weights["blocks.0.attn.W_V"][head, slots["token"]] = eye * on
        weights["blocks.0.attn.W_O"][head][:, slots["out"]] = eye * size
    model = HookedTransformer(config)
    model.load_weights({name: one.float() for name, one in weights.items()})
    return Subject(model, task)


def test_a_circuit_that_answers_few_is_not_the_circuit() -> None:
    """L0H0 holds nine tenths of the score by a quarter of the answers."""
    subject = tail(4, 1500.0, idle=8)
    result = probes.run("circuits", subject, pairs=64, null_samples=199)
    assert result.metrics["components"] == ["L0H0"] and result.metrics["faithfulness"] > 0.9
    assert result.metrics["accuracy"] < 0.5
    assert result.verdict == "no"


def test_attribution_names_ties() -> None:
    subject = planted.modular_addition(11, (2, 3), seed=0).subject
    result = probes.run("attribution", subject, examples=121)
    assert [result.metrics["component"], *result.metrics["tied"]] == ["L0H0", "L0H1", "L0 MLP"]
    assert result.metrics["ablation"] == "mean"
