"""Interventions on a Hugging Face model against edits of its own weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from mechint import probe
from mechint.checkpoints import load_checkpoint
from mechint.errors import NotApplicableError
from mechint.interventions import Site, Zero, loss_under
from mechint.models.replaced import call_with_weights
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from probes._ablation import Ablation
from probes._interference import TaskGradients
from probes._weights import circuits

VOCABULARY = 6


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A tiny GPT-2 at random weights on addition modulo 5, through the bridge."""
    from transformers import GPT2Config, GPT2LMHeadModel

    task = TASKS["modular-arithmetic"](p=5)
    config = GPT2Config(
        vocab_size=task.d_vocab, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("gpt2")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        GPT2LMHeadModel(config).save_pretrained(path)
    return Subject(load_checkpoint(Path(path), model={"bridge": True}).model, task)


def zeroed(subject: Subject, layer: int, head: int) -> dict[str, float]:
    """The loss when a head's rows of the output projection are zero, by the weights alone."""
    model = copy.deepcopy(subject.model.original_model)
    with torch.no_grad():
        model.transformer.h[layer].attn.c_proj.weight[8 * head : 8 * head + 8] = 0
        logits = model(subject.data.tokens).logits[:, -1]
    return subject.loss(logits)


def test_a_zeroed_head_is_a_zeroed_projection(subject: Subject) -> None:
    expected = zeroed(subject, 1, 0)
    assert loss_under(subject, [Zero(Site.head(1, 0))]) == pytest.approx(expected, abs=1e-5)
    settings: dict[str, Any] = {"mode": "zero", "components": ("head",), "neurons": 0}
    result = Ablation(**settings, null_samples=9).run(subject)
    table = result.tables["effects"].to_frame().set_index("component")
    (loss,) = subject.loss().values()
    (zero,) = expected.values()
    assert table.loss_change["L1H0"] == pytest.approx(zero - loss, abs=1e-5)


def test_an_embedding_that_is_the_unembedding_is_replaced_as_both(subject: Subject) -> None:
    """Against the Hugging Face model with its one matrix edited in place, and with the two untied
    by hand where both names are given.
    """
    known = dict(subject.model.named_parameters(remove_duplicate=False))
    model = copy.deepcopy(subject.model.original_model)
    tied = [n for n, p in known.items() if p is subject.model.original_model.lm_head.weight]
    assert len(tied) == 2
    edited = known[tied[0]].detach() + torch.randn(VOCABULARY, 16)
    other = {name: value for name, value in zip(tied, (edited, known[tied[0]]), strict=True)}
    with torch.no_grad():
        model.transformer.wte.weight.copy_(edited)
        expected = subject.loss(model(subject.data.tokens).logits[:, -1])
        model.lm_head.weight = torch.nn.Parameter(known[tied[0]].detach().clone())
        untied = subject.loss(model(subject.data.tokens).logits[:, -1])

    def loss(weights: dict[str, torch.Tensor]) -> dict[str, float]:
        with torch.no_grad():
            logits = call_with_weights(subject.model, weights, (subject.data.tokens,))
        return subject.loss(logits[:, -1])

    for name in tied:
        assert loss({name: edited}) == pytest.approx(expected, abs=1e-5)
    assert loss(other) == pytest.approx(untied, abs=1e-5)
    assert expected != pytest.approx(untied, abs=1e-2)


def test_gradients_by_finite_differences(subject: Subject) -> None:
    """Along a random direction of all parameters but the embedding, which is also the
    unembedding.
    """
    model, data = subject.model, subject.data[:1]
    found = TaskGradients(subject)
    generator = torch.Generator().manual_seed(0)
    direction = {
        name: torch.randn(value.shape, generator=generator) * (len(value) != VOCABULARY)
        for name, value in found.free.items()
    }
    losses = []
    for sign in (1, -1):
        step = sign * 1e-4
        weights = {name: value + step * direction[name] for name, value in found.free.items()}
        with torch.no_grad():
            logits = call_with_weights(model, weights, (data.tokens,))[:, -1]
        losses.append(subject.loss(logits, subject.targets[:1])["answer"])
    expected = (losses[0] - losses[1]) / 2e-4
    along = (
        torch.cat([part.flatten() for part in direction.values()])
        @ next(found.of_examples(data))[0]
    )
    assert float(along) == pytest.approx(expected, rel=0.02, abs=1e-2)
    assert all(parameter.grad is None for parameter in model.parameters())


def opened(kind: str, tmp_path: Path, **more: Any) -> Subject:
    """A tiny model of a family at random weights, on addition modulo 5."""
    import transformers

    task: Any = TASKS["modular-arithmetic"].from_dict({"p": 5})
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=task.d_vocab, max_position_embeddings=8, **sizes, **ends, **more
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    return Subject(load_checkpoint(tmp_path).model, task)


def test_random_neurons_are_drawn_from_those_there_are(tmp_path: Path) -> None:
    """OPT with 24 neurons per layer, where its adapter describes four times the width: 64."""
    subject = opened("opt", tmp_path, ffn_dim=24, word_embed_proj_dim=16)
    assert subject.activation("blocks.0.mlp.hook_post", at="answer").shape[-1] == 24
    assert subject.model_description.d_mlp == 24
    result = Ablation(neurons=20, null_samples=19).run(subject)
    assert result.null["neurons_loss_increase"].samples == 19


def test_weights_of_blocks_whose_norms_come_last_are_refused(tmp_path: Path) -> None:
    """In OLMo 2 queries are not a first norm of the stream times W_Q."""
    subject = opened("olmo2", tmp_path, intermediate_size=32)
    reason = PROBES["weights"]().unmet(subject)
    assert reason is not None and "W_Q and W_O alone" in reason


def test_weights_behind_the_norms_of_gemma_are_the_ones_it_reads(tmp_path: Path) -> None:
    """Its norms multiply by 1 + w: queries and logits are the model's own for any w."""
    few = {"intermediate_size": 32, "num_key_value_heads": 1, "head_dim": 8}
    subject = opened("gemma", tmp_path, **few)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in subject.model.original_model.named_parameters():
            if "norm" in name:
                weight += 0.5 * torch.randn(weight.shape, generator=generator)
    assert PROBES["weights"]().unmet(subject) is None
    x = subject.activation("blocks.1.hook_resid_post", at="answer").double()
    scale = (x.square().mean(-1, keepdim=True) + subject.model.cfg.eps).sqrt()
    folded = circuits.unembedding(subject)
    assert folded is not None
    mine = x / scale @ folded
    torch.testing.assert_close(mine, subject.logits().double(), atol=1e-5, rtol=1e-5)


def test_what_a_mixture_of_experts_writes_is_not_its_neurons(tmp_path: Path) -> None:
    """Its adapter gives the sum over experts, 16 wide, the name of neurons and a width of 24."""
    subject = opened(
        "mixtral", tmp_path, intermediate_size=24, num_key_value_heads=2, num_local_experts=2
    )
    assert "blocks.0.mlp.hook_post" not in subject.hooks
    assert subject.model_description.d_mlp is None
    with pytest.raises(NotApplicableError, match="the model has no MLP"):
        probe.run("neurons", subject)
    result = Ablation(neurons=20, null_samples=19).run(subject)
    assert "neurons_loss_increase" not in result.null


def test_what_does_not_add_up_is_not_called_written_to_the_logits(tmp_path: Path) -> None:
    """A norm follows attention and MLP in OLMo 2, and none does in Llama; without the head, both
    lose what plain hooks say.
    """
    for kind, adds_up in (("olmo2", False), ("llama", True)):
        subject = opened(kind, tmp_path / kind, intermediate_size=32, initializer_range=0.3)
        result = probe.run("attribution", subject, only_correct=False, examples=25)
        table = result.tables["components"].columns
        whole = abs(result.metrics["score"])
        assert (result.metrics["sum_error"] < 1e-3 * whole) == adds_up
        assert ("writer" in result.metrics) == ("direct" in table) == adds_up
        assert ("direct_effect" in table) == adds_up

        def without(z: torch.Tensor, hook: object) -> torch.Tensor:
            z = z.clone()
            z[:, :, 1] = z[:, :, 1].mean(0)
            return z

        rows, right = torch.arange(len(subject.data)), subject.targets[:, 0]
        plain, ablated = (
            logits[rows, right] - logits[:, :5].mean(-1)
            for logits in (
                subject.logits().double(),
                subject.logits(hooks=[("blocks.0.attn.hook_z", without)]).double(),
            )
        )
        exact = table["exact"][table["component"].index("L0H1")]
        assert exact == pytest.approx(float((plain - ablated).mean()), abs=1e-5)


def test_the_lens_names_no_writer_where_a_norm_follows_the_layer(tmp_path: Path) -> None:
    """What heads and MLPs write adds up to the last stream in Llama, and not in OLMo 2."""
    for kind, adds_up in (("olmo2", False), ("llama", True)):
        subject = opened(kind, tmp_path / kind, intermediate_size=32, initializer_range=0.3)
        written = subject.activation("hook_embed", "answer")
        for layer in range(2):
            z = subject.activation(f"blocks.{layer}.attn.hook_z", "answer")
            heads = torch.einsum("ehd,hdm->em", z, subject.model.blocks[layer].attn.W_O.detach())
            written = written + heads + subject.activation(f"blocks.{layer}.hook_mlp_out", "answer")
        last = subject.activation("blocks.1.hook_resid_post", "answer")
        assert torch.allclose(written, last, atol=1e-4) == adds_up
        result = probe.run("lens", subject, permutations=199)
        told = {name for name in result.metrics if name.startswith("attribution.")}
        logits = subject.logits().double()[:, :5]
        right = logits.gather(1, subject.targets)[:, 0] - logits.mean(1)
        if adds_up:
            assert {"attribution.top_component", "attribution.top_share"} < told
            assert result.metrics["attribution.total"] == pytest.approx(
                float(right.mean()), abs=1e-6
            )
            assert {"lens", "attribution"} == set(result.figures)
            continue
        assert told == {"attribution.error"}
        assert result.metrics["attribution.error"] > 1e-3 * float(right.abs().max())
        assert set(result.null) == {"lens.final_accuracy"} and not result.arrays
        assert set(result.tables) == set(result.figures) == {"lens"}
        assert result.findings[-1].verdict == "unclear"
        assert "do not add up" in result.findings[-1].reason
