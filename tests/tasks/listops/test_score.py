"""Greedy continuation and causal variables of ListOps, against one example at a time by hand."""

from __future__ import annotations

import pytest
import torch

from mechint.task import greedy
from tasks._listops.task import ListOps


def read_by_read(predict):
    """predict() at several positions of an example, from one that reads one position of each."""

    def at_all(tokens, positions):
        return torch.stack(
            [predict(tokens, column.clamp_min(0)) for column in positions.unbind(-1)], 2
        )

    return at_all


def oracle(task: ListOps, wrong: tuple[bool, ...] = (False,)):
    """predict() of models that continue as the task would, or (wrong) with the digit after each
    answer's right one.
    """
    calls = []

    def predict(tokens, positions):
        calls.append(tokens.shape)
        return read_by_read(at_one)(tokens, positions)

    def at_one(tokens, positions):
        logits = torch.zeros(len(wrong), tokens.shape[1], task.d_vocab_out)
        for model, mistaken in enumerate(wrong):
            source = tokens[min(model, len(tokens) - 1)]
            for row, place in enumerate(positions[min(model, len(positions) - 1)]):
                whole = task.tokens_of(
                    task.notation.write(task.solution(source[row]), task.chain_of_thought)
                )
                token = whole[int(place) + 1]
                if mistaken and source[row, place] == task.vocabulary.ids["="]:
                    token = (token + 1) % 10
                logits[model, row, token] = 1
        return logits

    return predict, calls


@pytest.mark.full
@pytest.mark.parametrize(
    "parameters", [{}, {"chain_of_thought": False}, {"n": 12, "loss_on": "all"}]
)
def test_who_is_always_right_scores_one_and_who_is_wrong_zero(parameters):
    task = ListOps(**parameters)
    predict, calls = oracle(task, wrong=(False, True))
    scores = task.score(predict, "test", 0, 24)
    assert set(scores) == {"accuracy", "accuracy.MAX", "accuracy.MED", "accuracy.ADD"}
    assert all(value.tolist() == [1.0, 0.0] for value in scores.values())
    assert calls[0][0] == 1  # one copy of the prompt for all models
    # the right continuation is the first guess: one look at it says that all of it is the model's,
    # or that its answer is not; a wrong digit is followed by one more, read in a second look
    assert len(calls) == 4


def test_continuation_equals_one_example_at_a_time():
    task = ListOps(n=12, depth=1)
    generator = torch.Generator().manual_seed(0)
    models, batch = 3, task.sample(40, 0)
    equals, end, n = task.vocabulary.ids["="], task.notation.end_token, task.d_vocab
    table = torch.randn(
        models, n, n, generator=generator
    )  # every model a chain: the next token from the last two
    table[:, :, [equals, end]] += 1.0

    def logits(model: int, tokens: torch.Tensor, place: int) -> torch.Tensor:
        return table[model, tokens[place]] + table[model, tokens[place - 1]].roll(1)

    def predict(tokens, positions):
        return torch.stack(
            [
                torch.stack(
                    [
                        logits(m, row, int(place))
                        for row, place in zip(
                            tokens[m % len(tokens)], positions[m % len(positions)], strict=True
                        )
                    ]
                )
                for m in range(models)
            ]
        )

    prompts = task.prompts(batch.tokens)
    found = greedy.answers(read_by_read(predict), batch.tokens, prompts, equals, end, 2)
    noise = torch.randint(n, batch.tokens.shape, generator=generator)
    places = torch.arange(task.n_ctx)
    guess = batch.tokens.where(places < prompts[:, None], noise)
    assert torch.equal(greedy.answers(read_by_read(predict), guess, prompts, equals, end, 2), found)
    for m in range(models):
        for row in range(len(batch)):
            written = batch.tokens[row, : prompts[row]].tolist()
            while len(written) < task.n_ctx and written[-1] != end:
                written.append(int(logits(m, torch.tensor(written), len(written) - 1).argmax()))
            expected = [-1, -1]
            if equals in written:
                after = written[written.index(equals) + 1 :][:2]
                expected = [
                    end if end in after[:place] else token
                    for place, token in enumerate([*after, end, end][:2])
                ]
            assert found[m, row].tolist() == expected


def test_operands_of_single_brackets_are_variables():
    task = ListOps(operands=3, min_operands=3, depth=1, chain_of_thought=False)
    assert list(task.variables) == ["answer", "operation", "operand_0", "operand_1", "operand_2"]
    nested = ["answer", "operation", "operand_0", "operand_1", "first_step"]
    assert list(ListOps().variables) == nested
