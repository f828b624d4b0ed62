"""Heads that move the answer of pairs of prompts: planted ones are found with the field's names,
and nothing is said of what was not tested.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mechint
import probes
from mechint.account import account_of
from mechint.explanation import audit
from mechint.explanation.claims import parse_claim
from mechint.interventions import Site
from mechint.models.transformer import HookedTransformer
from mechint.planted import library
from mechint.probes._heads.measures import PairRuns, _marks
from mechint.probes._heads.probe import Component
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from tests.prompts.mixed import mixed


def test_a_planted_head_is_named_with_what_it_does() -> None:
    plant = library.prompted_induction(0.0, 3)
    layer, head = plant.truth["heads"]["induction"]
    result = probes.run("heads", plant.subject, null_samples=999)
    name = f"L{layer}H{head}"
    assert result.metrics["reported"][0] == name and result.metrics["suffices"] == [name]
    assert result.metrics["kept_by_these_alone"] == pytest.approx(1)
    assert result.metrics["kept_without_these"] == pytest.approx(0, abs=1e-6)
    assert result.lead == f"{name} alone tells the prompts of a pair apart."
    assert account_of(plant.subject, {"heads": result}).verdict == result.lead
    row = {key: column[0] for key, column in result.tables["heads"].columns.items()}
    assert row["moved"] == pytest.approx(1) and row["direct"] == pytest.approx(1)
    assert row["from the answer, attends to"] == "the answer's token"


def test_a_small_head_is_not_among_those_by_which_it_answers() -> None:
    """An idle head does a twentieth of what the planted one does: reported, and not needed."""
    plant = library.prompted_induction(0.0, 3)
    layer, head = plant.truth["heads"]["induction"]
    attention, idle = plant.subject.model.blocks[layer].attn, (head + 1) % 3
    with torch.no_grad():
        for name, weight in attention.named_parameters():
            if name.endswith(("_Q", "_K", "_V")):
                weight[idle] = weight[head]
        attention.W_O[idle] = attention.W_O[head] / 19
    subject = Subject(plant.subject.model, plant.subject.task)
    result = probes.run("heads", subject, null_samples=999)
    columns = result.tables["heads"].columns
    moved = dict(zip(columns["component"], columns["moved"], strict=True))
    assert set(moved) >= {f"L{layer}H{head}", f"L{layer}H{idle}"}
    assert moved[f"L{layer}H{head}"] > 10 * moved[f"L{layer}H{idle}"] > 0
    assert result.lead == f"L{layer}H{head} alone tells the prompts of a pair apart."


def test_words_about_a_head_reach_their_level_on_their_own() -> None:
    """By a null that cannot decide, the head moves its share and no word of the field is said."""
    plant = library.prompted_induction(0.0, 3)
    said = [one for one in probes.run("heads", plant.subject, null_samples=999).findings[1:] if one]
    assert "mover" in said[0].headline and said[0].details["p of the words"] <= 0.01
    one = Component(Site.head(0, 0), 1.0, 0.9, 1.1, direct=1.0)
    assert one.roles(0.01) == {}
    one.words = {"direct": 0.001, "answer: answer": 0.2}
    assert one.roles(0.01) == {"writes straight to the logits": 0.001}


def test_a_head_has_every_role_that_it_passes() -> None:
    """The prompts differ in their last token, whose surname followed it before: the key is after an
    earlier equal token and the answer's own. A head that copies it straight to the logits is both.
    """
    tokens = torch.tensor([[5, 6, 1, 7, 8, 2, 5], [5, 6, 1, 7, 8, 2, 7]])
    classes, last = torch.tensor([[6, 8], [8, 6]]), torch.tensor([6, 6])
    marks = _marks(tokens, classes[..., None], last, last)
    for mark, keys in {"answer": [1, 4], "after": [1, 4], "equal": [0, 3], "other": [4, 1]}.items():
        assert marks[mark].int().argmax(1).tolist() == keys and marks[mark].sum() == 2
    assert not marks["changed"].any() and marks["itself"][:, 6].all()
    head = Component(Site.head(0, 0), 1.0, 0.9, 1.1, direct=1.0)
    head.words = dict.fromkeys(("direct", "induction", "answer: after", "answer: answer"), 0.001)
    assert list(head.roles(0.01)) == ["is a mover", "is an induction head"]
    del head.words["answer: answer"]
    said = list(head.roles(0.01))
    assert said == ["is an induction head", "writes straight to the logits"]


def test_an_mlp_that_rewrites_the_token_that_differs_is_marked() -> None:
    """The planted model behind a block whose MLP writes what the embedding wrote: it moves all of
    the difference, and is no mover.
    """
    plant = library.prompted_induction(0.0, 3)
    old, layer, head = plant.subject.model, *plant.truth["heads"]["induction"]
    config = dataclasses.replace(old.config, n_layers=3, d_model=50, attn_only=False)
    weights = {name: 0 * one.detach() for name, one in HookedTransformer(config).weights().items()}
    for name, one in old.weights().items():
        name = re.sub(r"(?<=blocks\.)\d", lambda found: str(int(found[0]) + 1), name)
        weights[name][tuple(slice(size) for size in one.shape)] = one.detach()
    weights["embed.W_E"] = torch.eye(50)[40:]
    weights["blocks.0.mlp.W_in"][40:, :10] = torch.eye(10)
    weights["blocks.0.mlp.W_out"][:10, :40] = old.weights()["embed.W_E"].detach()
    model = HookedTransformer(config)
    model.load_weights(weights)
    subject = Subject(model, plant.subject.task)
    torch.testing.assert_close(subject.logits(), plant.subject.logits(), atol=1e-3, rtol=1e-4)
    result = probes.run("heads", subject, null_samples=999)
    columns = result.tables["heads"].columns
    roles = dict(zip(columns["component"], columns["roles"], strict=True))
    assert roles["L0 MLP"] == "rewrites the token that differs"
    assert "is a mover" in roles[f"L{layer + 1}H{head}"]
    moved = dict(zip(columns["component"], columns["moved"], strict=True))
    for name, share in moved.items():
        assert share == pytest.approx(float(name in result.metrics["reported"]), abs=1e-4)
    assert len(result.metrics["reported"]) == 2 < len(moved)
    stream = result.figures["stream"].plots[0].layers[0]
    assert len(stream.z) == 3


def test_heads_that_were_not_patched_are_untested() -> None:
    plant = library.prompted_induction(0.0, 3)
    result = probes.run("heads", plant.subject, best=2, null_samples=999)
    moved = result.arrays["by_head"]
    assert np.isfinite(moved).sum() == 2
    assert "untested" in result.figures["stream"].caption
    assert result.findings[0].caveat == "of those tested"


def test_heads_that_move_nothing_are_named_with_what_all_move() -> None:
    """The last token goes straight to the logits, past small heads of random weights."""
    torch.manual_seed(0)
    config = mechint.ModelConfig(
        n_layers=1, d_model=20, n_heads=2, d_head=10, d_mlp=8, d_vocab=10, d_vocab_out=10, n_ctx=2
    )
    model = HookedTransformer(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.4)
        model.embed.W_E.copy_(torch.eye(20)[:10])
        model.unembed.W_U.copy_(5 * torch.eye(20)[:, :10])
    rows = []
    for first, last in [(a, b) for a in range(10) for b in range(10) if (b - a) % 10 < 5]:
        other = (last + 3 + first % 4) % 10
        both = {"prompt": [first, other], "answer": other}
        rows.append({"prompt": [first, last], "answer": last, "counterfactual": both})
    subject = Subject(model, Prompts.of(rows, None, 10, 2))
    result = probes.run("heads", subject, null_samples=999)
    (finding,) = result.findings
    columns = result.tables["heads"].columns
    moved = dict(zip(columns["component"], columns["moved"], strict=True))
    assert finding.verdict == "no" and "kept_by_these_alone" not in result.metrics
    assert finding.effect is not None and finding.effect.value == pytest.approx(
        max((v for n, v in moved.items() if "H" in n), key=abs)
    )
    both = torch.tensor([(r["prompt"], r["counterfactual"]["prompt"]) for r in rows])
    both = torch.cat([both, both.flip(1)])
    hook = "blocks.0.attn.hook_z"
    with torch.no_grad():
        z = model.run_with_cache(both[:, 1])[1][hook]
        runs = [model(both[:, 0]), model(both[:, 1])]
        runs.append(model.run_with_hooks(both[:, 0], fwd_hooks=[(hook, lambda *_, **__: z)]))
    base, end, edited = (
        (one[:, -1].gather(1, both[:, 1, 1:]) - one[:, -1].gather(1, both[:, 0, 1:])).mean()
        for one in runs
    )
    share = float((edited - base) / (end - base))
    assert mechint.errors.percent(share) in finding.headline and 1e-4 < abs(share) < 0.2


def test_few_pairs_decide_nothing(tmp_path: Path) -> None:
    result = probes.run("heads", mixed((6,), pairs=4), null_samples=999)
    assert result.verdict == "unclear" and not result.lead


def test_shuffled_answers_are_not_explained(tmp_path: Path) -> None:
    """Answers dealt at random over the pairs of a planted model: it is at chance, and unclear."""
    plant = library.prompted_induction(0.0, 3)
    task = plant.subject.task
    assert isinstance(task, Prompts)
    rows = []
    generator = np.random.default_rng(0)
    for base, other in list(task.pairs)[::2]:
        one, two = (list(task.prompts[index].tokens) for index in (base, other))
        a, b = generator.permutation(10)[:2].tolist()
        rows.append({"prompt": one, "answer": a, "counterfactual": {"prompt": two, "answer": b}})
    file = tmp_path / "shuffled.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    subject = Subject(plant.subject.model, Prompts(path=str(file), vocab_size=10))
    result = probes.run("heads", subject, only_correct=False, null_samples=999)
    assert result.verdict != "yes"
    assert torch.isfinite(subject.logits()).all()


def lists_of_lengths(lengths: tuple[int, ...], model: HookedTransformer, pairs: int) -> Subject:
    """A list, its beginning again, and what followed it; the token there is changed in the pair."""
    draw, rows = np.random.default_rng(0), []
    for n in range(pairs):
        *piece, other = draw.permutation(10)[: lengths[n % len(lengths)] + 1].tolist()
        place = int(draw.integers(1, 4))
        changed = [*piece[:place], other, *piece[place + 1 :]]
        both = {"prompt": [*changed, *piece[:place]], "answer": other}
        rows.append(
            {"prompt": [*piece, *piece[:place]], "answer": piece[place], "counterfactual": both}
        )
    return Subject(model, Prompts.of(rows, None, 10, max(lengths) + 3))


def test_a_claim_about_a_head_is_audited_on_prompts() -> None:
    """The planted head attends to what followed the earlier equal token; an idle one does not, and
    the planted one does not attend to the first token. Lists of one length do not tell the token
    from that at a fixed distance.
    """
    plant = library.prompted_induction(0.0, 3, pairs=80)
    layer, head = plant.truth["heads"]["induction"]
    claim = parse_claim(f"L{layer}H{head} attends token after an earlier equal one")
    subject = lists_of_lengths((4, 5), plant.subject.model, 160)
    assert audit(subject, claim).standing == "stands"
    assert audit(plant.subject, claim).standing == "untested"
    for said in (
        f"L{layer}H{head} attends first token",
        f"L{layer}H{(head + 1) % 3} attends token after an earlier equal one",
    ):
        assert audit(subject, parse_claim(said)).standing == "wrong"


# --- models of transformers -----------------------------------------------------------------------
WRITERS = {
    "gemma3_text": "model.layers.{}.self_attn.o_proj",
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",
    "llama": "model.layers.{}.self_attn.o_proj",
    "olmo2": "model.layers.{}.self_attn.o_proj",
    "phi": "model.layers.{}.self_attn.dense",
}
"""Type → the module that reads the outputs of a block's heads, side by side."""
MORE: dict[str, dict[str, Any]] = {
    "gemma3_text": {"head_dim": 8, "sliding_window": 3, "num_key_value_heads": 2},
    "llama": {
        "num_key_value_heads": 2,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 1e4,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
}


def language_model(kind: str, folder: Path) -> Any:
    """A model of transformers with random weights, written to `folder`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0}
    config = AutoConfig.for_model(
        kind, **sizes, bos_token_id=1, eos_token_id=2, **MORE.get(kind, {})
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
    model.save_pretrained(folder)
    return model


def pairs_it_tells_apart(model: Any, n: int) -> list[dict[str, Any]]:
    """Rows of prompts of two lengths that differ in one token, with two answers of which the model
    prefers the first on one and the second on the other.
    """
    draw, found = np.random.default_rng(0), []
    while len(found) < n:
        base = draw.integers(3, 50, 5 + len(found) % 2).tolist()
        source = list(base)
        source[1] = int(draw.choice([token for token in range(3, 50) if token != base[1]]))
        with torch.no_grad():
            one, two = (model(torch.tensor([tokens])).logits[0, -1] for tokens in (base, source))
        own, other = int((one - two).argmax()), int((two - one).argmax())
        if one[own] > one[other] and two[own] < two[other]:
            row = {"prompt": base, "answer": own}
            found.append(row | {"counterfactual": {"prompt": source, "answer": other}})
    return found


SEVERAL = [("gemma3_text", lambda one: [[one, 7]]), ("llama", lambda one: [one, one ^ 1])]
"""Answers of two tokens, and of two right ones."""


@pytest.mark.full
@pytest.mark.parametrize(("kind", "answer"), [*((kind, int) for kind in WRITERS), *SEVERAL])
def test_heads_of_a_language_model_move_what_they_do_in_transformers(
    kind: str, answer: Callable[[int], Any], tmp_path: Path
) -> None:
    """Differences are of log-probabilities: of the tokens of a text their sum, of several texts
    that are right their logsumexp.
    """
    model, rows = language_model(kind, tmp_path / "model"), []
    for one in pairs_it_tells_apart(model, 16):
        other = one["counterfactual"]
        if one["answer"] ^ 1 != other["answer"]:
            both = other | {"answer": answer(other["answer"])}
            rows.append({**one, "answer": answer(one["answer"]), "counterfactual": both})
    margins = mechint.load(tmp_path / "model", data=rows).margins
    assert margins is not None
    right = (margins.view(-1, 2).amin(1) > 0).tolist()
    rows = [one for one, good in zip(rows, right, strict=True) if good]
    subject = mechint.load(tmp_path / "model", data=rows)
    result = probes.run("heads", subject, null_samples=99, only_correct=False)
    pairs = [(one, one["counterfactual"]) for one in rows]
    pairs += [(other, one) for one, other in pairs]

    def chances(tokens: list[int], source: list[int], layer: int | None, head: int) -> Any:
        """Log-probabilities of the next token, with a head's outputs as behind the source."""
        seen, module = [], model.get_submodule(WRITERS[kind].format(layer or 0))

        def put(_: Any, inputs: Any) -> Any:
            z, width = inputs[0].clone(), inputs[0].shape[-1] // 4
            own = slice(head * width, (head + 1) * width)
            if seen and layer is not None:
                z[..., own] = seen[0][..., own]
            seen.append(z)
            return (z,)

        handle = module.register_forward_pre_hook(put)
        with torch.no_grad():
            found = [model(torch.tensor([one])).logits[0, -1] for one in (source, tokens)]
        handle.remove()
        return found[1].double().log_softmax(-1)

    def differences(layer: int | None = None, head: int = 0) -> np.ndarray:
        found = []
        for base, source in pairs:
            scores = []
            for said in (base["answer"], source["answer"]):
                every = said if isinstance(said, list) else [said]
                texts = [one if isinstance(one, list) else [one] for one in every]
                each = [
                    sum(
                        chances(*(one["prompt"] + text[:k] for one in (base, source)), layer, head)[
                            token
                        ]
                        for k, token in enumerate(text)
                    )
                    for text in texts
                ]
                scores.append(float(torch.stack(each).logsumexp(0)))
            found.append(scores[1] - scores[0])
        return np.array(found)

    base, n = differences(), len(rows)
    assert subject.margins is not None
    np.testing.assert_allclose(np.sort(subject.margins), np.sort(-base), atol=1e-4)
    span = (-np.concatenate([base[n:], base[:n]]) - base).mean()
    expected = [
        [(differences(layer, head) - base).mean() / span for head in range(4)] for layer in range(3)
    ]
    np.testing.assert_allclose(result.arrays["by_head"], expected, atol=1e-4)
    assert np.abs(expected).max() > 0.05 and "heads" in mechint.analyze(subject).results


@pytest.mark.full
@pytest.mark.parametrize("kind", ["gemma3_text", "llama", "olmo2"])
def test_what_heads_and_mlps_write_straight_adds_up_to_the_last_stream(
    kind: str, tmp_path: Path
) -> None:
    """By what the final norm of transformers reads, with its scale held; behind norms, too."""
    model = language_model(kind, tmp_path / "model")
    subject = mechint.load(tmp_path / "model", data=pairs_it_tells_apart(model, 8))
    pairs = draw(
        subject, choose_variable(subject.task, None), 99, 0, only_correct=False, relation="minimal"
    )
    runs = PairRuns.of(subject, pairs)
    found = runs.straight([*runs.heads, *runs.mlps])
    assert found is not None and len(runs.mlps) == 3
    streams: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0][0, -1]))
    weight = model.model.norm.weight + (kind == "gemma3_text")
    expected = []
    for base, source, read in zip(pairs.base, pairs.source, pairs.reads.tolist(), strict=True):
        for tokens in (base, source):
            with torch.no_grad():
                model(tokens[None, : read + 1])
        own, other = streams[-2:]
        scale = (own.square().mean() + model.config.rms_norm_eps).sqrt()
        expected.append(model.lm_head.weight @ ((other - own) / scale * weight))
    values = torch.stack(expected).detach()
    right = values.gather(1, runs.classes).diff(dim=1)[:, 0].double().numpy()
    np.testing.assert_allclose(found.moved.sum(0), right, atol=1e-4)
    assert np.abs(found.moved[-3:]).max() > 0.1
