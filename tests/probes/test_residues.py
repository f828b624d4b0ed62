"""Products and quotients of non-zero residues: a grid without zero, with whatever tokens stand
between, is served as the sum of logarithms that it is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import probes
import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.models import build
from mechint.models.transformer import HookedTransformer
from mechint.registry import PROBES
from mechint.subject import Subject

P, KEYS = 13, (1, 5)


def product(p: int = P) -> tuple[Subject, Subject]:
    """A planted sum modulo p - 1, and the same weights under the tokens of the powers of a root."""
    whole = planted.modular_addition(p - 1, KEYS, noise=0.02, seed=1).subject
    task = tasks.modular_arithmetic(p=p, operation="multiply", zero=False)
    assert task.symmetry is not None
    powers = list(task.symmetry.tokens)
    config = replace(whole.model.config, d_vocab=p + 1, d_vocab_out=p, output_sizes=None)
    model = HookedTransformer(config)
    state = dict(whole.model.state_dict())
    embedding, unembedding = state["embed.W_E"], state["unembed.W_U"]
    moved = torch.zeros(p + 1, embedding.shape[1]).to(embedding)
    moved[powers], moved[p] = embedding[: p - 1], embedding[p - 1]
    state["embed.W_E"] = moved
    state["unembed.W_U"] = unembedding.new_zeros(len(unembedding), p)
    state["unembed.W_U"][:, powers] = unembedding
    if "unembed.b_U" in state:
        bias = state["unembed.b_U"].new_full((p,), -100.0)
        bias[powers] = state["unembed.b_U"]
        state["unembed.b_U"] = bias
    model.load_state_dict(state)
    return whole, Subject(model.to(embedding), task)


def test_a_product_is_the_sum_of_logarithms() -> None:
    whole, moved = product()
    assert moved.accuracy() == {"answer": 1.0} and moved.task.grid == (12, 12)
    one, two = (probes.run("clock-pizza", each) for each in (whole, moved))
    for name in ("gradient_symmetricity", "distance_irrelevance"):
        assert two.metrics[name] == pytest.approx(one.metrics[name], abs=0.05), name
    assert two.metrics["mechanism"] == one.metrics["mechanism"]
    assert two.metrics["key_frequencies"] == one.metrics["key_frequencies"]
    one, two = (probes.run("neurons", each) for each in (whole, moved))
    assert two.metrics["clusters"] == one.metrics["clusters"] != {}
    assert probes.run("fourier", moved).metrics["logits.key_frequencies"] == list(KEYS)


@pytest.mark.parametrize(
    "settings",
    [
        {"operation": "divide", "zero": False},
        {"operation": "divide", "zero": False, "operation_token": True},
        {"operation": "multiply", "zero": False, "operation_token": True, "equals": False},
        {"operation": "divide"},
    ],
)
def test_probes_of_a_cyclic_group_apply(settings: dict[str, object]) -> None:
    task = tasks.modular_arithmetic(p=11, **settings)
    sizes = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "n_ctx": task.n_ctx}
    subject = Subject(build(ModelConfig(d_model=16, n_heads=2, d_mlp=8, **sizes)), task)
    served = {"clock-pizza", "fourier", "progress", "gradients", "embedding", "linear"}
    served |= {"neurons"} if not task.zero else set()
    refused = {name: PROBES[name].from_dict({}).applicable(subject) for name in sorted(served)}
    assert not {name: reason for name, reason in refused.items() if reason}
    if task.zero:
        reason = PROBES["neurons"].from_dict({}).applicable(subject)
        assert reason == "its inputs are not all pairs of a group's elements"
