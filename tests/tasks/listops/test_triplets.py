"""The triplet experiments: their sets counted, their labels by hand, their held-out triplets
nowhere in training.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tasks._listops.triplets import Triplets

SETS = {
    "SUM 900": {"operations": ("ADD",)},
    "MAX+MED+SUM 2,700": {},
    "MAX+MED+SUM 900": {"per_operation": 300},
}


@pytest.mark.parametrize("name", SETS)
def test_the_sets_of_the_source(name):
    task = Triplets(**SETS[name])
    split, texts = task.split(3), [task.text(tokens) for tokens in task.inputs()]
    assert sorted(torch.cat(list(split.values())).tolist()) == list(range(len(texts)))
    train, test = ([texts[index] for index in split[part]] for part in ("train", "test"))
    assert len(train) == int(name.split()[-1].replace(",", "")) and len(test) == 100
    assert {text[2] for text in test} == {"%"}
    assert not {text[3:6] for text in train} & {text[3:6] for text in test}
    assert set(Counter(text[2] for text in train).values()) == {len(train) // len(task.operations)}
    for share, part in zip(task.fractions, ("train", "validation"), strict=True):
        assert round(share * len(texts)) == len(split[part])


@pytest.mark.parametrize(
    "parameters",
    [
        {"n": 4},
        {"n": 5, "loss_on": "all", "operations": ("PROD", "NADD", "MIN")},
        {"n": 12, "addition": "shuffled"},
    ],
)
def test_labels_by_hand(parameters):
    task = Triplets(**parameters)
    data = task.examples()
    assert tuple(data.tokens.shape) == (len(task.operations) * task.n**3, task.n_ctx)
    for tokens, targets in zip(data.tokens[::7], data.targets[::7], strict=True):
        assert (
            task.brute_force(tokens.tolist()) == targets.tolist()
            and task.tokens_of(task.text(tokens)) == tokens.tolist()
        )
    operands = data.tokens[:, 3:6].reshape(*task.grid, 3)
    assert operands[..., 1, 2, 3, :].unique().tolist() == [1, 2, 3]


def test_score_reads_the_held_out_triplets_under_every_operation():
    task = Triplets()

    def predict(tokens, positions):
        """Answers every triplet with its largest operand."""
        largest = tokens[:, :, 3:6].amax(-1)
        logits = torch.nn.functional.one_hot(largest, task.d_vocab_out).double()
        return logits.unsqueeze(2).expand(-1, -1, positions.shape[-1], -1)

    scores = task.score(predict, "test", 0, 1000)
    held_out = task.inputs()[task.split(0)["test"]]
    expected = {
        "ADD": held_out[:, 3:6].sum(1) % 10,
        "MED": held_out[:, 3:6].median(1).values,
        "MAX": held_out[:, 3:6].max(1).values,
    }
    for name, values in expected.items():
        assert scores[f"accuracy.{name}"].tolist() == [
            pytest.approx((values == held_out[:, 3:6].max(1).values).double().mean().item())
        ]
    assert scores["accuracy"] == scores["accuracy.ADD"] and scores["accuracy.MAX"].tolist() == [1.0]
