"""Rows computed once, packed or left out: the logits and gradients of each example alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.at_positions import forward_at, supports
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
from mechint.models.transformer import HookedTransformer, initialize
from mechint.subject.activations import select
from mechint.task import IGNORE, Batch
from mechint.training import spec
from mechint.training.learners import Prepared, TokenLearner, stack
from tasks._listops.task import ListOps

SHAPES = st.sampled_from([(1, 5, 2, 3), (2, 6, 4, 2), (3, 20, 3, 2), (1, 9, 1, 4), (2, 1, 4, 1)])
"""models, examples, positions, tokens: few tokens make rows repeat, many make them distinct."""


@st.composite
def problems(draw) -> tuple[ModelConfig, list[dict[str, Tensor]], list[Batch]]:
    """A model of some kind, its weights in float64 for each seed, and a batch for each: some
    positions read, some padded.
    """
    models, n, pos, d_vocab = draw(SHAPES)
    d_vocab *= draw(st.sampled_from([1, 10]))
    n_layers, n_loops = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    staged = draw(st.booleans())
    config = ModelConfig(
        n_layers=n_layers,
        n_loops=n_loops,
        d_model=4,
        n_heads=2,
        d_mlp=5,
        n_ctx=pos,
        d_vocab=d_vocab,
        d_vocab_out=5,
        output_sizes=(2, 3) if staged else None,
        read_layers=(1, n_layers * n_loops) if staged else None,
        act_fn=draw(st.sampled_from(["relu", "gelu"])),
        normalization_type=draw(st.sampled_from([None, "LN"])),
        attn_only=draw(st.booleans()),
        attention_dir=draw(st.sampled_from(["causal", "bidirectional"])),
        attention_rate=draw(st.sampled_from([0.4, 1.0])) if pos == 1 else 1.0,
        use_bias=draw(st.booleans()),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    padded, everywhere = draw(st.booleans()), draw(st.booleans())
    batches = [_batch(config, n, padded, everywhere, generator) for _ in range(models)]
    weights = [
        {name: value.double() + 0.1 for name, value in initialize(config, seed).items()}
        for seed in range(models)
    ]
    return config, weights, batches


def _batch(
    config: ModelConfig, n: int, padded: bool, everywhere: bool, generator: torch.Generator
) -> Batch:
    pos, outputs = config.n_ctx, len(config.output_sizes or (1,))
    tokens = torch.randint(config.d_vocab, (n, pos), generator=generator)
    targets = torch.randint(2, (n, pos, outputs), generator=generator)
    if not everywhere:
        targets[torch.rand(n, pos, generator=generator) < 0.6] = IGNORE
        targets[0, 0] = 1  # one at least is read
    if not padded:
        return Batch(tokens, targets)
    lengths = torch.randint(1, pos + 1, (n,), generator=generator)
    targets[torch.arange(pos) >= lengths[:, None]] = IGNORE
    return Batch(tokens, targets, lengths=lengths)


def one_by_one(
    weights: dict[str, Tensor], config: ModelConfig, batch: Batch
) -> tuple[Tensor, Tensor]:
    """Logits and targets of what is read, one example at a time, without its padding."""
    logits, targets = [], []
    for index, tokens in enumerate(batch.tokens):
        length = len(tokens) if batch.lengths is None else int(batch.lengths[index])
        answers = Forward(weights, config).logits(RowLayout.dense(tokens[None, :length]))[0]
        read = (batch.targets[index, :length] != IGNORE).any(-1)
        logits.append(answers[read])
        targets.append(batch.targets[index, :length][read])
    return torch.cat(logits), torch.cat(targets)


def check_layout(problem: tuple[ModelConfig, list[dict[str, Tensor]], list[Batch]]) -> None:
    config, alone, batches = problem
    stacked = {
        name: torch.stack([weights[name] for weights in alone]).requires_grad_()
        for name in alone[0]
    }
    prepared = Prepared.of(stack(batches), config)
    logits = Forward(stacked, config).logits(prepared.layout)
    real = (prepared.targets != IGNORE).any(-1)
    (logits.square().sum(-1) * real).sum().backward()
    for index, (weights, batch) in enumerate(zip(alone, batches, strict=True)):
        weights = {name: value.requires_grad_() for name, value in weights.items()}
        expected, targets = one_by_one(weights, config, batch)
        torch.testing.assert_close(logits[index][real[index]], expected)
        assert torch.equal(prepared.targets[index][real[index]], targets)
        expected.square().sum().backward()
        for name, value in weights.items():
            ours, grad = stacked[name].grad, value.grad
            torch.testing.assert_close(
                torch.zeros_like(value) if ours is None else ours[index],
                torch.zeros_like(value) if grad is None else grad,
                rtol=1e-6,
                atol=1e-8,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@settings(max_examples=4)
@given(problems())
def test_every_example_has_the_logits_and_gradients_it_has_alone(problem) -> None:
    check_layout(problem)


@pytest.mark.full
@settings(max_examples=150)
@given(problems())
def test_every_example_of_many_has_the_logits_and_gradients_it_has_alone(problem) -> None:
    check_layout(problem)


def all_pairs(p: int) -> Tensor:
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    return torch.cat([pairs, torch.full((p * p, 1), p)], 1)


@pytest.mark.parametrize("p", [7, 12])
def test_of_all_pairs_each_distinct_row_is_computed_once_and_the_answer_alone_attends(p) -> None:
    config = ModelConfig(d_model=4, n_heads=1, d_vocab=p + 1, d_vocab_out=p)
    layout = RowLayout.at(config, all_pairs(p), torch.full((p * p,), 2))
    assert layout.tokens.shape == (1, 2 * p + 1)  # p tokens at each of two positions, and "="
    (block,) = layout.blocks or ()
    assert block.query_rows.shape == (1, 1)


def test_gradients_are_those_of_finite_differences() -> None:
    """Of the loss that training descends, through distinct rows, packing and padding."""
    config = ModelConfig(
        n_layers=2, d_model=4, n_heads=2, d_mlp=5, n_ctx=4, d_vocab=3, d_vocab_out=3,
        act_fn="gelu", normalization_type="LN",
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    batch = stack([_batch(config, 5, True, False, generator) for _ in range(2)])
    prepared = Prepared.of(batch, config)
    weights = [initialize(config, seed) for seed in range(2)]
    names = list(weights[0])
    stacked = [torch.stack([one[n].double() for one in weights]).requires_grad_() for n in names]

    def loss(*values: Tensor) -> Tensor:
        logits = Forward(dict(zip(names, values, strict=True)), config).logits(prepared.layout)
        return logits.log_softmax(-1)[..., 0].sum()

    assert torch.autograd.gradcheck(loss, stacked, fast_mode=True)


def test_predictions_at_several_positions_are_those_at_each() -> None:
    task = ListOps(n=10, operands=2)
    one = spec(task, {"d_model": 16, "n_layers": 1, "n_loops": 2})
    learner = TokenLearner([one.model] * 2, [task] * 2, one.train, torch.device("cpu"))
    parts = [learner.initial(model, seed) for model, seed in enumerate((0, 1))]
    weights = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    tokens = torch.stack([task.sample(9, seed).tokens for seed in (0, 1)])
    positions = torch.tensor([[2, 5, 11], [4, -1, -1], [0, 1, -1]]).repeat(3, 1).expand(2, -1, -1)
    positions = positions.clone()
    positions[1, 4] = -1  # of one model an example is not read at all
    found = learner.predict(weights, tokens, positions)
    assert found.shape == (2, 9, 3, task.d_vocab_out)
    for model, example, read in (positions >= 0).nonzero().tolist():
        place = positions[model, example, read]
        alone = learner.predict(
            weights, tokens[:, example : example + 1], place.view(1, 1).expand(2, -1)
        )
        torch.testing.assert_close(found[model, example, read], alone[model, 0])


# --- one position of each example -----------------------------------------------------------------
def model_of(**changes: object) -> HookedTransformer:
    config = {"d_model": 16, "n_heads": 2, "d_vocab": 9, "d_vocab_out": 8, "n_ctx": 5, **changes}
    return HookedTransformer(ModelConfig.from_dict(config), seed=1).double()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_layers": 2, "normalization_type": "LN"},
        {"n_layers": 3, "attention_dir": "bidirectional", "normalization_type": "LNPre"},
        {"n_layers": 2, "attn_only": True},
        {"n_layers": 1, "n_loops": 2, "attention_rate": 0.3},
    ],
)
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), shared=st.booleans())
def test_logits_and_activations_at_positions_are_those_of_hooks(
    changes: dict, seed: int, n: int, shared: bool
) -> None:
    model = model_of(**changes)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 9, (n, 5), generator=generator)
    positions = torch.randint(0, 5, (n,), generator=generator)
    positions = positions[:1].expand(n) if shared else positions
    names = [name for name in model.hook_dict if supports(model, [name])]
    assert f"blocks.{model.config.depth - 1}.hook_resid_post" in names
    logits, found = forward_at(model, tokens, positions, names)
    expected, cache = model.run_with_cache(tokens)
    examples = torch.arange(n)
    assert torch.allclose(logits, expected[examples, positions].detach(), atol=1e-10)
    none, alone = forward_at(model, tokens, positions, names[-3:], logits=False)
    assert none is None and set(alone) == set(names[-3:])
    for name in names:
        at = select(name, cache[name].detach(), positions)
        assert torch.allclose(found[name], at, atol=1e-10)
        assert torch.allclose(alone.get(name, found[name]), found[name], atol=1e-10)


def test_models_and_names_that_have_no_row_per_position_are_refused() -> None:
    model = model_of()
    assert supports(model, ["blocks.0.mlp.hook_post"])
    assert not supports(model, ["blocks.0.attn.hook_z"])
    assert not supports(model, ["blocks.7.hook_resid_post"])
    model.hook_dict["hook_embed"].add_hook(lambda tensor, hook: 2 * tensor)
    assert not supports(model)  # the hook would not run
    model.reset_hooks()
    assert supports(model)
    handle = model.register_forward_pre_hook(lambda *_: None)
    assert not supports(model)
    handle.remove()
