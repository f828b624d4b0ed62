"""Induction models of the progress-measures code: the task in their data configuration, and what
probes say of the published one.
"""

from __future__ import annotations

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from tests.checkpoints.test_readers import transposed

DATA = {"seq_len": 12, "subseq_len": 4, "num_repeats": 2, "vocab_size": 9, "is_finite": False}


def saved(folder, **changes):
    """A model of attention alone over 9 tokens and 12 positions, with its data configuration."""
    state = {
        name.replace("blocks", "attn_blocks"): value
        for name, value in transposed(9, 12, d=8, layers=2).items()
        if ".mlp." not in name
    }
    content = {"model": state, "model_config": {"num_heads": 4}, "data_config": DATA | changes}
    torch.save(content, folder / "model.pth")
    return folder / "model.pth"


def test_the_data_configuration_names_the_task(tmp_path):
    opened = load_checkpoint(saved(tmp_path))
    task = opened.task
    assert task.name == "repeated-tokens" and not task.held_out and task.distinct
    assert (task.n, task.length, task.copies, task.n_ctx) == (9, 4, 2, 12)
    assert {"distinct", "placement"} <= set(opened.assumed)
    tokens = opened.subject().data.tokens
    assert tokens.shape[1] == 12
    starts = task.starts(tokens)
    pieces = tokens.gather(1, (starts[:, :, None] + torch.arange(4)).flatten(1)).view(-1, 2, 4)
    assert (pieces[:, 0] == pieces[:, 1]).all()


@pytest.mark.parametrize(
    "changes",
    [{"vocab_size": 10}, {"seq_len": 13}, {"num_repeats": 4}, {"subseq_len": True}, {"seq_len": 1}],
)
def test_sizes_that_the_model_cannot_have_name_no_task(tmp_path, changes):
    opened = load_checkpoint(saved(tmp_path, **changes))
    assert opened.task is None and opened.assumed["task"].value is None
