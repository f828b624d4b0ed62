"""Loss under interventions against weights edited by hand, and errors."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from mechint.config import ModelConfig
from mechint.errors import MechintError, ParameterError
from mechint.interventions import (
    Add,
    EditedRuns,
    Intervention,
    Mean,
    Replace,
    Site,
    Zero,
    fill_means,
    logits_under,
    loss_under,
)
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject


@pytest.fixture
def subject() -> Subject:
    task = TASKS["modular-arithmetic"](p=7)
    config = ModelConfig.for_task(task, n_layers=2, d_model=8, n_heads=2, init_mode="d_model")
    return Subject(HookedTransformer(config, seed=0).double(), task)


def edited(subject: Subject, name: str, change) -> dict[str, float]:
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        change(model.get_parameter(name))
    return Subject(model, subject.task).loss()


def test_nothing_done_is_the_loss(subject: Subject) -> None:
    assert loss_under(subject) == pytest.approx(subject.loss(), abs=1e-12)
    assert torch.allclose(logits_under(subject), subject.logits())


@pytest.mark.parametrize("make", [Replace, Add])
@pytest.mark.parametrize("shape", [(8,), (3, 8), (1, 3, 8), (3, 3, 8)])
def test_chunks_do_not_cut_a_value_that_all_examples_share(
    subject: Subject, make: type[Replace] | type[Add], shape: tuple[int, ...]
) -> None:
    """Of three examples a value (pos, d) for three positions was cut as one value per example."""
    subject = subject.with_data(subject.data[:3])
    value = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one = make(Site("hook_embed"), value)
    whole = make(Site("hook_embed"), value.expand(3, 3, 8).clone())
    expected = logits_under(subject, [whole])
    for chunk in (3, 2, 1):
        found = logits_under(subject.with_limits(chunk=chunk), [one])
        assert torch.allclose(found, expected, atol=1e-12)


def test_a_zeroed_head_is_a_zeroed_w_o(subject: Subject) -> None:
    expected = edited(subject, "blocks.1.attn.W_O", lambda w: w[1].zero_())
    assert loss_under(subject, [Zero(Site.head(1, 1))]) == pytest.approx(expected, abs=1e-12)


def test_means_are_taken_over_all_examples(subject: Subject) -> None:
    small = Subject(subject.model, subject.task, chunk=5)
    one = [Mean(Site.mlp(0)), Zero(Site.head(1, 0)), Mean(Site.attention(1, "answer"))]
    assert torch.allclose(logits_under(small, one), logits_under(subject, one))
    filled = fill_means(small, one)
    expected = subject.activation("blocks.0.hook_mlp_out").mean(0)
    assert torch.allclose(filled[0].value, expected)  # type: ignore[attr-defined]
    assert filled[1] is one[1]


def test_an_edited_run_is_one_forward(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unedited run was computed beside it, which nothing reads."""
    rows, forward = list[int](), HookedTransformer.forward

    def counted(model: HookedTransformer, tokens: torch.Tensor, *args, **options):
        rows.append(len(tokens))
        return forward(model, tokens, *args, **options)

    monkeypatch.setattr(HookedTransformer, "forward", counted)
    logits_under(subject, [Zero(Site.mlp(0))])
    assert sum(rows) == len(subject.data)


def test_without_a_task_there_are_logits_and_no_loss(subject: Subject) -> None:
    """The loss ended in an assertion without a word."""
    without = Subject(subject.model, None, data=subject.data)
    edits = [Zero(Site.mlp(0))]
    assert torch.equal(logits_under(without, edits), logits_under(subject, edits))
    for ask in (
        lambda: loss_under(without, edits),
        without.loss,
        without.accuracy,
        without.correct,
        lambda: without.chance,
    ):
        with pytest.raises(ParameterError, match="without a task: no answer, so there is no loss"):
            ask()


ROWS = Site.head(0, 0, (0, 1))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda: Zero(Site("blocks.0.hook_mlp_ou")), r"did you mean 'blocks\.0\.hook_mlp_out'"),
        (lambda: Zero(Site.of("heads", 0)), "site kind 'heads': expected one of attention"),
        (lambda: Zero(ROWS), "expected one position"),
        (lambda: Mean(ROWS), "expected one position"),
        (lambda: Replace(Site.mlp(0), torch.zeros(3, 3)), r"L0 MLP: value of shape \(3, 3\)"),
    ],
)
def test_an_edit_that_is_refused_leaves_no_hook(
    subject: Subject, edit: Callable[[], Intervention], said: str
) -> None:
    with pytest.raises(MechintError, match=said):
        logits_under(subject, [edit()])
    assert all(not point.fwd_hooks for point in subject.model.hook_dict.values())


@pytest.mark.parametrize("hook", ["blocks.0.hook_resid_pre", "blocks.1.hook_mlp_out"])
def test_a_position_that_is_not_there_is_refused(subject: Subject, hook: str) -> None:
    """Position 99 of three was taken for 99 % 3 by a resumed forward, silently."""
    value = torch.ones(8, dtype=torch.float64)
    recorded = EditedRuns(subject.model, subject.data.tokens, subject.answer_positions, [hook])

    def edits(pos: int) -> list[Intervention]:
        site = Site(hook, pos)
        return [Add(site, value), Zero(site), Replace(site, value), Mean(site)]

    for pos in (3, 99, -4):
        for one in edits(pos):
            expected = rf"{hook}: position {pos} is asked for, it has 3: 0 to 2"
            with pytest.raises(ParameterError, match=expected):
                logits_under(subject, [one])
            with pytest.raises(ParameterError, match=expected):
                recorded.under([one])
    for last, negative in zip(edits(2), edits(-1), strict=True):
        both = logits_under(subject, [negative]), recorded.under([negative])[0]
        assert torch.allclose(both[0], logits_under(subject, [last]), atol=1e-12)
        assert torch.allclose(*both, atol=1e-12)


def test_a_value_that_does_not_fit_is_refused_by_name(subject: Subject) -> None:
    """On one model that resumes and on the same with a hook on it, which does not."""
    eye = torch.eye(8, dtype=torch.float64)
    cases: dict[str, Intervention] = {
        r"Replace at L0 MLP: value of shape \(3, 5\)": Replace(Site.mlp(0), eye[:3, :5]),
        r"Replace at L0 MLP: value of shape \(4, 8\)": Replace(Site.mlp(0), eye[:4]),
        r"Add at L0H1 @ 2: delta of shape \(8,\)": Add(Site.head(0, 1, pos=2), eye[0]),
        r"Mean at L1 resid_pre: value of shape \(5,\)": Mean(Site.resid_pre(1), eye[0, :5]),
        r"L0H9: 9 is not among the 2": Add(Site.head(0, 9), eye[0, :4]),
    }
    hooks = {one.site.hook for one in cases.values()}
    foreign = copy.deepcopy(subject.model)
    foreign.add_hook("hook_embed", lambda activation, hook: activation)
    for expected, one in cases.items():
        with pytest.raises(ParameterError, match=expected):
            logits_under(subject, [one])
        for model in (subject.model, foreign):
            data = subject.data.tokens, subject.answer_positions
            with pytest.raises(ParameterError, match=expected):
                EditedRuns(model, *data, hooks).under([one])
