"""Settings that a file does not state: assumed, listed with its reason, and set by the caller."""

from __future__ import annotations

import json
import re

import pytest
import torch
from click.testing import CliRunner, Result

from mechint.account import account_of
from mechint.checkpoints import load_checkpoint
from mechint.cli import main
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, MechintError, ParameterError
from mechint.models import build
from tests.checkpoints.bases import P, transformer_lens_native
from tests.checkpoints.test_readers import transposed, transposed_logits

CONFIG = ModelConfig(
    n_layers=2, d_model=8, n_heads=2, d_vocab=P + 1, d_vocab_out=P, n_ctx=3, act_fn="gelu",
    attention_dir="bidirectional",
)  # fmt: skip
TOKENS = torch.randint(P, (9, 3), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def bare(tmp_path):
    """A state dict that says neither its activation function nor where its heads may look."""
    torch.save(build(CONFIG, seed=3).transformer_lens_state(), tmp_path / "bare.pt")
    return tmp_path / "bare.pt"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


# --- overriding -----------------------------------------------------------------------------------
def test_what_is_set_is_no_longer_assumed_and_the_model_is_the_one_that_was_saved(bare):
    assumed = load_checkpoint(bare)
    unseen = {"normalization_type", "attn_scale", "architecture"}
    assert set(assumed.assumed) == {"act_fn", "attention_dir"} | unseen
    assert all(item.why for item in assumed.assumed.values())
    said = {"act_fn": "gelu", "attention_dir": "bidirectional"}
    opened = load_checkpoint(bare, model=said)
    assert set(opened.assumed) == unseen and opened.extra["set"] == said
    expected = build(CONFIG, seed=3)(TOKENS)
    torch.testing.assert_close(opened.model(TOKENS), expected)
    assert not torch.allclose(assumed.model(TOKENS), expected)
    known = opened.subject().provenance["checkpoint"]
    assert set(known["assumed"]) == unseen and known["extra"]["set"] == said


def test_a_mask_that_is_assumed_is_said_before_the_verdict(bare):
    for set_, asked in (({}, "causal"), ({"attention_dir": "causal"}, "")):
        text = str(account_of(load_checkpoint(bare, model=set_).subject(), {}))
        first, *_ = text.split("NOTHING WAS ASKED")
        assert ("read as causal" in " ".join(first.split())) == bool(asked)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"act_fun": "gelu"}, "did you mean 'act_fn'"),
        ({"attention_dir": "sideways"}, "attention_dir='sideways'"),
        ({"d_model": 16}, r"embed\.W_E: got shape \(6, 8\), expected \(6, 16\)"),
    ],
)
def test_fields_that_cannot_be_set(bare, model, said):
    with pytest.raises(MechintError, match=said):
        load_checkpoint(bare, model=model)


def test_the_command_line_says_and_sets_them(bare):
    shown = run("checkpoint", "info", bare)
    assert "assumed act_fn = relu: the file does not say" in shown.stdout
    assert "--set model.act_fn=… sets it" in shown.stdout
    arguments = ("checkpoint", "info", bare, "--set", "model.act_fn=gelu")
    text = run(*arguments).stdout
    assert "assumed attention_dir = causal" in text and "assumed act_fn" not in text


# --- how well it answers --------------------------------------------------------------------------
def test_accuracy_and_loss_stand_beside_chance(bare):
    arguments = ("checkpoint", "info", bare, "--task", "modular-arithmetic", "--set", f"p={P}")
    result = run(*arguments, "--json")
    assert "at chance" in run(*arguments).stderr
    found = json.loads(result.stdout)
    opened = load_checkpoint(bare, task="modular-arithmetic", parameters={"p": P})
    logits, targets = opened.subject().logits(), opened.subject().targets[:, 0]
    right = (logits.argmax(-1) == targets).double().mean()
    assert found["accuracy"]["answer"] == pytest.approx(float(right))
    assert found["chance"]["answer"]["accuracy"] == pytest.approx(1 / P)


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ({"test.accuracy": 0.9}, "worse than its training recorded: accuracy .*; of other inputs"),
        ({"test_acc": 0.9, "train_acc": 1.0}, "recorded 0.9"),
        ({"test_loss": 0.01}, "loss .* nats, recorded 0.01"),
        (
            {"note": "x", "test_loss": float("nan")},
            "^the model answers only 0.5 of its",
        ),
    ],
)
def test_a_model_much_worse_than_its_record_is_said_first(metrics, text):
    from mechint.checkpoints.checkpoint import SplitPerformance

    performance = SplitPerformance(
        {"answer": 0.5},
        {"answer": 2.0},
        {"answer": {"accuracy": 0.1, "loss": 2.3}},
        {"answer": 100},
        {},
    )
    said = " ".join(performance.warnings(metrics))
    assert "at chance" not in said
    assert re.search(text, said)


# --- TransformerLens 4's own models ---------------------------------------------------------------


NORMS = [{"normalization_type": norm, "attn_only": alone, "attention_dir": "bidirectional"}
         for norm in ("LN", "LNPre", None) for alone in (False, True)]  # fmt: skip
SCALES = [{"use_attn_scale": False}, {"attn_scale": 3.0}]
SCALES += [{"use_attn_scale": False, "attn_scale": 3.0}]
NOT_FOLLOWED = [{"parallel_attn_mlp": True}, {"num_experts": 2}]
NOT_FOLLOWED += [{"scale_attn_by_inverse_layer_idx": True}]
NOT_FOLLOWED += [{"use_local_attn": True, "window_size": 1}]


@pytest.mark.full
@pytest.mark.parametrize("options", [*NORMS, *SCALES, *NOT_FOLLOWED])
def test_native_models_answer_as_transformer_lens_does(tmp_path, options):
    """Checked against TransformerLens itself: a version that follows more options fails here."""
    import transformer_lens.model_bridge.sources.native as source
    from transformer_lens.config import TransformerBridgeConfig

    given = {"d_model": 12, "d_head": 4, "n_layers": 2, "n_ctx": 4, "n_heads": 3, "d_vocab": 7}
    given |= {"act_fn": "gelu", "normalization_type": None, "seed": 0} | options
    bridge = source.boot(TransformerBridgeConfig(**given)).eval()
    with torch.no_grad():  # their biases start at zero
        for index, value in enumerate(bridge.parameters()):
            value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(index))
    torch.save({"model": bridge.state_dict(), "config": given}, tmp_path / "tl4.pt")
    opened = load_checkpoint(tmp_path / "tl4.pt")
    assert (opened.format, opened.config.d_head) == ("transformer-lens-native", 4)
    tokens = torch.randint(7, (5, 4), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(opened.model(tokens), bridge(tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"blocks.0.mlp.gate.weight": torch.ones(6, 4)}, "has blocks.0.mlp.gate.weight, which"),
        (
            {"blocks.0.attn.k.weight": torch.ones(2, 4)},
            r"blocks\.0\.attn\.W_K: got shape \(1, 4, 2\)",
        ),
        ({"blocks.0.ln1.weight": torch.ones(4)}, "normalization_type='RMS'"),
        ({"pos_embed.weight": None}, "says how many positions"),
        ({"ln_final.weight": torch.ones(4)}, "has ln_final.w, which .* no place for"),
    ],
)
def test_native_models_of_other_mathematics_are_refused(tmp_path, change, text):
    path = transformer_lens_native(tmp_path)
    state = torch.load(path, weights_only=True) | change
    torch.save({name: value for name, value in state.items() if value is not None}, path)
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint(path)


def test_the_number_of_heads_is_stated_or_assumed(tmp_path):
    path = transformer_lens_native(tmp_path)
    assert load_checkpoint(path).config.n_heads == 2  # cfg.json beside it
    (tmp_path / "cfg.json").unlink()
    opened = load_checkpoint(path)
    assert opened.assumed["n_heads"].value == opened.config.n_heads == 4
    assert load_checkpoint(path, model={"n_heads": 1}).config.d_head == 4
    with pytest.raises(ParameterError, match="expected a divisor of 4"):
        load_checkpoint(path, model={"n_heads": 3})


# --- progress-measures files without a configuration ----------------------------------------------
def test_a_bare_progress_measures_state_dict_is_not_taken_for_a_pizza_model(tmp_path):
    state = transposed(8, 3, d=8)
    torch.save(state, tmp_path / "bare.pt")
    opened = load_checkpoint(tmp_path / "bare.pt")
    assert opened.format == "progress-measures"
    assert {name: item.value for name, item in opened.assumed.items()} == {
        "act_fn": "relu",
        "attention_dir": "causal",
    }
    tokens = torch.randint(8, (5, 3), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(opened.model(tokens), transposed_logits(state, tokens, causal=True))


def test_models_of_attention_alone(tmp_path):
    """The published names of their blocks; beside the same weights as blocks without MLPs."""
    state = {n: v for n, v in transposed(8, 5, d=8, layers=2).items() if ".mlp." not in n}
    renamed = {name.replace("blocks.", "attn_blocks."): value for name, value in state.items()}
    content = {"model": renamed, "model_config": {"num_layers": 2, "seed": 1}}
    content |= {"train_losses": [1.5], "data_config": {"subseq_len": 2}}
    torch.save(content, tmp_path / "induction.pth")
    opened = load_checkpoint(tmp_path / "induction.pth")
    assert opened.config.attn_only and opened.config.n_layers == 2
    assert opened.metrics == {"train_loss": 1.5}
    assert opened.extra["data_config"] == {"subseq_len": 2}
    tokens = torch.randint(8, (5, 5), generator=torch.Generator().manual_seed(0))
    expected = transposed_logits(state, tokens, causal=True)
    torch.testing.assert_close(opened.model(tokens), expected, atol=1e-9, rtol=1e-9)
