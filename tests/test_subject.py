"""Answers of a Subject wherever they stand, activations in bounded memory, other subjects,
and the same numbers under any of torch's modes or a refusal.
"""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import DataError, MechintError, ParameterError
from mechint.interventions import Mean, Site, fill_means
from mechint.models import build
from mechint.registry import PROBES
from mechint.subject import Subject
from mechint.subject.activations import LOGITS, Recorder, residual_hooks
from mechint.task import IGNORE, Batch
from tests.torch_settings import MODES

POST = "blocks.0.mlp.hook_post"
PATTERN = "blocks.0.attn.hook_pattern"


def ragged(**options: Any) -> Subject:
    """Four examples of five positions with one, two, no and two answers."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(7, (4, 5), generator=generator)
    targets = torch.full((4, 5, 1), IGNORE)
    for example, position, answer in ((0, 2, 4), (1, 1, 3), (1, 4, 2), (3, 0, 1), (3, 3, 6)):
        targets[example, position] = answer
    model = build(ModelConfig(d_model=8, n_heads=2, d_vocab=7, d_vocab_out=7, n_ctx=5), seed=1)
    return Subject(model.eval(), None, data=Batch(tokens, targets), **options)


# --- data -----------------------------------------------------------------------------------------
def test_every_input_of_a_small_generated_task_is_there_once() -> None:
    """Of 8⁴ lists few are held out; of 3⁴ there are none but 81."""
    for n, different in ((3, 81), (8, 3072)):
        task = tasks.make("max-of-list", n=n)
        subject = Subject(build(ModelConfig.for_task(task, d_model=8, n_heads=1)), task)
        rows = {tuple(row) for row in subject.data.tokens.tolist()}
        assert len(subject.data) == len(rows) == different
        assert rows <= set(itertools.product(range(n), repeat=4))
        assert_close(subject.data.targets, task.batch_of(subject.data.tokens).targets)


# --- answers --------------------------------------------------------------------------------------
def test_an_answer_is_taken_at_its_own_position_in_each_example() -> None:
    subject = ragged()
    whole = subject.activation(POST)
    assert subject.answer_positions.tolist() == [2, 4, 3]
    assert subject.targets[:, 0].tolist() == [4, 2, 6]
    at_answer = subject.activation(POST, at="answer")
    for row, position in zip(range(3), subject.answer_positions.tolist(), strict=True):
        torch.testing.assert_close(at_answer[row], whole[row, position])
    first = subject.with_answer(0)
    assert first.answer_positions.tolist() == [2, 1, 0]
    assert first.targets[:, 0].tolist() == [4, 3, 1]
    with pytest.raises(ParameterError, match=r"answer=2: .* have 2 answers"):
        subject.with_answer(2)


@pytest.mark.parametrize(("answer", "having"), [(-1, [0, 1, 3]), (1, [1, 3]), (-2, [1, 3])])
def test_an_example_without_the_answer_is_measured_nowhere(answer: int, having: list[int]) -> None:
    every = ragged().with_answer("all")
    subject, whole = ragged(answer=answer), every.activation(POST)
    assert torch.equal(subject.data.tokens, every.data.tokens[having])
    places = [every.data.answers.at(answer)[0].tolist()[i] for i in having]
    expected = torch.stack([whole[i, place] for i, place in zip(having, places, strict=True)])
    assert subject.answer_positions.tolist() == places
    assert subject.answer_examples.tolist() == list(range(len(having)))
    torch.testing.assert_close(subject.activation(POST, at="answer"), expected)
    given = subject.activation(POST, "answer", every.data)  # data of others, of which some have it
    torch.testing.assert_close(given, expected)
    small = subject.with_limits(memory=0, chunk=1)
    parts = [found[POST] for _, found in small.stream([POST], at="answer")]
    torch.testing.assert_close(torch.cat(parts), expected)
    (mean,) = fill_means(subject, [Mean(Site(POST, "answer"))])
    torch.testing.assert_close(mean.value, expected.mean(0))  # type: ignore[attr-defined]
    which = "" if answer == -1 else f" {answer}"  # the last one is that of none by number
    assert f"the {len(having)} of 4 examples that have an answer{which};" in repr(subject)
    # what was left out comes back with a question that it has an answer to
    assert subject.with_answer("all").targets[:, 0].tolist() == [4, 3, 2, 1, 6]
    assert subject.with_answer(0).targets[:, 0].tolist() == [4, 3, 1]


def test_without_any_answer_all_examples_are_looked_at() -> None:
    tokens = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(0))
    none = ragged().with_data(Batch(tokens, torch.full((4, 5, 1), IGNORE)))
    assert len(none.data) == 4 and len(none.activation(POST)) == 4


def test_all_answers_are_one_row_each() -> None:
    subject = ragged(chunk=2).with_answer("all")
    assert subject.answer_examples.tolist() == [0, 1, 1, 3, 3]
    assert subject.answer_positions.tolist() == [2, 1, 4, 0, 3]
    assert subject.targets[:, 0].tolist() == [4, 3, 2, 1, 6]
    whole = subject.activation(PATTERN)  # (example, head, query, key)
    expected = whole[subject.answer_examples, :, subject.answer_positions]
    assert_close(subject.activation(PATTERN, at="answer"), expected)
    whole = subject.logits(at=None)[subject.answer_examples, subject.answer_positions]
    assert_close(subject.logits(), whole)
    small = subject.with_limits(memory=0)
    parts = list(small.stream([POST, LOGITS], at="answer"))
    assert [(part.start, part.stop) for part, _ in parts] == [(0, 3), (3, 5)]
    assert torch.allclose(torch.cat([found[LOGITS] for _, found in parts]), subject.logits())


@pytest.mark.parametrize("answer", [-1, "all"])
def test_accuracy_and_loss_are_counted_without_all_logits(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, task = ragged(), tasks.make("modular-arithmetic", p=7)
    subject = Subject(subject.model, task, data=subject.data).with_answer(answer)
    logits = subject.logits().double()
    small = subject.with_limits(memory=0, chunk=1)
    monkeypatch.setattr(Recorder, "record", lambda *_: pytest.fail("all at once"))
    right = (logits.argmax(-1) == small.targets[:, 0]).double().mean()
    assert small.accuracy() == {"answer": pytest.approx(float(right))}
    loss = float(torch.nn.functional.cross_entropy(logits, small.targets[:, 0]))
    assert small.loss() == {"answer": pytest.approx(loss, rel=1e-6)}
    doubled = float(torch.nn.functional.cross_entropy(2 * logits, small.targets[:, 0]))
    assert small.loss(2 * logits) == {"answer": pytest.approx(doubled, rel=1e-6)}


def test_hooks_change_the_logits_at_the_answer_alone_where_they_should() -> None:
    subject = ragged()

    def zero_at_four(activation: torch.Tensor, hook: Any) -> torch.Tensor:
        activation = activation.clone()
        activation[:, 4] = 0
        return activation

    changed = subject.logits(hooks=[("blocks.0.hook_resid_post", zero_at_four)])
    differs = ((changed - subject.logits()).abs() > 1e-5).any(-1)
    assert differs.tolist() == [False, True, False]  # one answer stands at position 4


# --- memory ---------------------------------------------------------------------------------------
def test_the_cache_holds_what_fits_and_asks_the_model_once() -> None:
    subject, calls = ragged(), []
    handle = subject.model.hook_embed.register_forward_hook(lambda *_: calls.append(1))
    try:
        subject.activations([POST, PATTERN], at="answer")
        asked = len(calls)
        subject.activation(POST, at="answer")
        subject.activations([PATTERN, POST], at="answer")
        assert len(calls) == asked and subject.cached_bytes > 0
        none = subject.with_limits(memory=0)
        none.activation(POST)
        none.activation(POST)
        assert len(calls) > asked + 1 and none.cached_bytes == 0
    finally:
        handle.remove()


def test_a_chunk_holds_a_quarter_of_the_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mechint.subject.subject.LEAST_WORKING_BYTES", 1)
    one = 4 * 5 * (6 * 8 + 2 * 32 + 2 * 5 + 7)  # float32, positions, width, logits
    assert [ragged(memory=4 * n * one).chunk for n in (0, 1, 3, 4096, 5000)] == [
        1,
        1,
        3,
        4096,
        4096,
    ]
    few = ragged(memory=4 * 2 * one, chunk=3)
    assert (few.chunk, few.with_limits(memory=1 << 29).chunk) == (2, 3)


def test_what_is_streamed_whole_is_not_kept() -> None:
    subject = ragged()
    for _ in range(2):
        parts = [found[POST] for _, found in subject.stream([POST])]
        assert subject.cached_bytes == 0
    assert_close(torch.cat(parts), subject.activation(POST))
    (cached,) = [found[POST] for _, found in subject.stream([POST])]
    assert torch.equal(cached, subject.activation(POST))
    list(subject.with_limits().stream([POST], at="answer"))
    assert subject.cached_bytes == cached.nbytes


# --- a Subject does not change --------------------------------------------------------------------
def test_a_subject_does_not_change() -> None:
    subject = ragged()
    for name in ("model", "data", "memory", "answer", "anything"):
        with pytest.raises(AttributeError, match="does not change; with_data"):
            setattr(subject, name, None)
    half = subject.with_data(subject.data[:2])
    assert len(half.data) == 2 and len(subject.data) == 3
    assert half.activation(POST).shape[0] == 2 and half.model is subject.model
    other = subject.with_model(copy.deepcopy(subject.model), path="a copy")
    assert other.provenance["checkpoint"] == {"path": "a copy"}
    assert subject.provenance["checkpoint"] == {}


def test_data_are_a_grid_where_they_are_all_inputs_in_order() -> None:
    subject = planted.modular_addition(11, (2, 3)).subject
    tokens = subject.data.tokens
    assert subject.on_grid and subject.with_answer("all").on_grid and subject.untrained().on_grid
    for x, y in ((0, 0), (3, 7), (10, 2)):  # operand k is axis k
        assert subject.grid(tokens)[x, y].tolist() == [x, y, 11]
    order = torch.arange(121).flip(0)
    back = subject.with_data(subject.data[order]).with_data(subject.data[order][order])
    assert back.on_grid and back.split is not None
    swapped, shorter = torch.arange(121), Batch(tokens[:, :2], subject.data.targets[:, :2])
    swapped[:2] = torch.tensor([1, 0])
    others = (subject.data[order], subject.data[swapped], subject.data[:40], subject.data[:0])
    for data in (*others, subject.data[torch.arange(121) % 7], shorter):
        other = subject.with_data(data)
        assert not other.on_grid and other.split is None
        with pytest.raises(DataError, match=r"its data are no grid; expected all inputs"):
            other.grid(data.tokens)
    assert not Subject(subject.model, None, data=subject.data).on_grid


def test_a_subject_is_short_in_print() -> None:
    subject = ragged(answer="all")
    assert repr(subject) == "Subject(HookedTransformer without a task; HookedTransformer, data 4×5)"


def test_initial_weights_are_drawn_in_the_type_of_the_model() -> None:
    subject = ragged()
    drawn = subject.with_model(copy.deepcopy(subject.model).double()).untrained(5)
    assert drawn.model.W_E.dtype == torch.float64 and drawn.data is not None
    assert torch.equal(drawn.model.W_E.float(), subject.untrained(5).model.W_E)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_untrained_models_in_one_module_are_those_of_several(dtype: torch.dtype) -> None:
    subject = planted.modular_addition(7, (2,)).subject
    subject = subject.with_model(copy.deepcopy(subject.model).to(dtype))
    seeds = [4, 0, 5]
    for seed, one in zip(seeds, subject.controls_in_turn(seeds), strict=True):
        alone = subject.untrained(seed)
        assert_close(one.activation(PATTERN, "answer"), alone.activation(PATTERN, "answer"))
        assert_close(one.logits(), alone.logits())
        assert one.logits().dtype == dtype


def test_another_step_needs_a_run() -> None:
    with pytest.raises(ParameterError, match=r"step 3: .* no other step"):
        ragged().at_step(3)


@pytest.mark.parametrize(
    ("hook", "at", "said"),
    [
        ("blocks.0.mlp.hook_pots", None, "did you mean"),
        (POST, 9, "position 9 is asked for, it has 5: 0 to 4"),
        ("blocks.0.attn.hook_result", None, "use_attn_result"),
    ],
)
def test_wrong_hooks_and_positions_are_one_line(hook: str, at: int | None, said: str) -> None:
    with pytest.raises(MechintError, match=said):
        ragged().activation(hook, at=at)


@pytest.mark.parametrize("at", ["foo", [0, 1], 1.5, np.array([0, 1]), torch.tensor([0, 1])])
def test_a_place_that_is_no_place_is_one_line(at: Any) -> None:
    subject = ragged()
    for ask in (
        lambda: subject.activation(POST, at),
        lambda: subject.logits(at=at),
        lambda: subject.logits(hooks=[(POST, lambda x, hook: x)], at=at),
        lambda: subject.activations([POST], at),
        lambda: list(subject.stream([POST], at)),
    ):
        with pytest.raises(ParameterError, match=r"at=.*: expected answer, a position or None"):
            ask()


def test_any_whole_number_is_a_place_and_an_answer() -> None:
    subject = ragged()
    for number in (np.int64(-1), torch.tensor(-1)):
        assert torch.equal(subject.activation(POST, number), subject.activation(POST, -1))
        assert subject.with_answer(number).answer == -1
        json.dumps(subject.with_answer(number).answer)
    for answer in ("last", None, [0], 1.0):
        for ask in (subject.with_answer, lambda answer: ragged(answer=answer)):
            with pytest.raises(ParameterError, match=r"answer=.*: expected its number or all"):
                ask(answer)


def test_data_that_are_no_examples_of_the_task_are_one_line() -> None:
    subject = planted.modular_addition(11, (2, 3)).subject
    flat = Batch(subject.data.tokens[0], subject.data.targets[0])
    with pytest.raises(ParameterError, match=r"tokens of shape \(3,\); expected \(example, pos\)"):
        subject.with_data(flat)
    for wrong in (11, -100):
        targets = subject.data.targets.clone()
        targets[7, -1] = wrong
        with pytest.raises(ParameterError, match=f"target {wrong} of .*; expected 0 to 10, or -1"):
            subject.with_data(Batch(subject.data.tokens, targets))


# --- torch's modes, and weights that cannot be measured -------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_what_was_cached_in_a_mode_serves_outside_it(mode: str) -> None:
    subject = ragged()
    with MODES[mode]():
        cached = subject.activation(POST, at="answer")
        logits = subject.logits(hooks=[(POST, lambda activation, hook: activation * 2)])
    assert cached.dtype == logits.dtype == torch.float32
    weight = torch.ones(cached.shape[-1], requires_grad=True)
    (cached @ weight).sum().backward()  # an inference tensor could not be saved for this
    assert weight.grad is not None
    assert_close(cached, ragged().activation(POST, at="answer"))


def _nan(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        model.blocks[0].mlp.W_in[0, :3] = torch.nan
    return model


def _integers(model: nn.Module) -> nn.Module:
    whole = torch.zeros_like(model.blocks[0].mlp.W_in, dtype=torch.int8)
    model.blocks[0].mlp.W_in = nn.Parameter(whole, requires_grad=False)
    return model


REFUSED = {
    "int8": (_integers, r"mlp\.W_in is int8"),
    "nan": (_nan, r"blocks\.0\.mlp\.W_in is not finite in 3 of 256 places"),
    "half": (lambda model: model.half(), r"embed\.W_E is float16.*model\.float\(\)"),
    "bfloat16": (lambda model: model.bfloat16(), r"is bfloat16"),
    "complex": (lambda model: model.to(torch.complex64), r"is complex64"),
    "meta": (lambda model: model.to("meta"), "device meta and has no values"),
}


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature:UserWarning")
@pytest.mark.parametrize("kind", REFUSED)
def test_weights_that_cannot_be_measured_are_refused(kind: str) -> None:
    spoil, message = REFUSED[kind]
    model = build(ModelConfig(d_model=8, n_heads=2, d_vocab=14, d_vocab_out=13, n_ctx=3), seed=1)
    for name in ("embedding", "progress", "fourier"):
        with pytest.raises(MechintError, match=message) as caught:
            subject = Subject(spoil(model.eval()), tasks.make("modular-arithmetic", p=13))
            PROBES[name]().run(subject)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_weights_that_change_their_type_later_are_refused() -> None:
    plant = planted.modular_addition(11, (2, 3)).subject
    subject = plant.with_model(copy.deepcopy(plant.model))
    subject.model.to(torch.bfloat16)
    with pytest.raises(MechintError, match=r"is bfloat16.*measure model\.float\(\)"):
        PROBES["neurons"]().run(subject)


@pytest.mark.parametrize("kind", ["path", "text", "model", "nothing"])
def test_a_probe_says_how_to_make_a_subject_of_what_it_was_given(kind: str) -> None:
    model = planted.modular_addition(7, (2,)).subject.model
    given: Any = {"path": Path("x.pt"), "text": "x.pt", "model": model, "nothing": None}[kind]
    probe = PROBES["norms"]()
    with pytest.raises(ParameterError, match=r"probe norms: got .*mechint\.load\(path\) opens"):
        probe.run(given)


def test_a_block_without_attention_is_no_attention() -> None:
    """One hook at the end of a block says nothing of what is inside."""
    end, inside = "blocks.0.hook_resid_post", "blocks.0.attn.hook_pattern"
    for known, name in (({end}, "L0 block"), ({end, inside}, "L0 attention")):
        assert residual_hooks(1, known) == {name: end}
    middle = "blocks.0.hook_resid_mid"
    assert "L0 attention" not in residual_hooks(1, {end, middle})
    assert residual_hooks(1, {end, middle, inside})["L0 attention"] == middle
