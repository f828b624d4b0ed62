"""A lookup table: every input has its own neuron, which writes its own answer. The negative of all
mechanisms.

Tokens are embedded in random orthogonal directions of random length, one head per position carries
them to where the answer is read, and neuron n is relu(Σ_i 1[token i is that of input n] − (n_ctx −
½)): it fires for input n alone.
"""

from __future__ import annotations

import torch

from mechint.errors import ParameterError
from mechint.planted.assembly import (
    SHARP,
    Perturbation,
    Planted,
    Slots,
    assemble,
    attend,
    blank,
    config_for,
    random_rotation,
)
from mechint.task import FiniteTask, rng

MAX_INPUTS = 4096


def lookup_table(
    task: FiniteTask, *, noise: float = 0.0, rotation_seed: int | None = None, seed: int = 0
) -> Planted:
    """Memorize all answers of `task`; accuracy 1.0 when noise is 0.

    What structure the answers have, the logits have; the embedding and the neurons have none. Give
    it the task with shuffled labels where the logits must have none either.

    Args:
        task: at most 4,096 inputs of few positions, the answer read at the last one.
        noise, rotation_seed: see `Perturbation`; `seed` also draws the embedding.

    Returns:
        truth: "heads" {"position i": (0, i)}; no frequencies, no subspaces.

    Raises:
        ParameterError: too many inputs.
    """
    data = task.examples()
    if len(data) > MAX_INPUTS:
        raise ParameterError(
            f"planted: a lookup table of {len(data)} inputs; expected at most {MAX_INPUTS}: "
            f"choose a smaller {task.name}"
        )
    n, n_ctx = data.tokens.shape
    v, read = task.d_vocab, n_ctx - 1
    slots = Slots(
        token=v, position=n_ctx, answer=task.d_vocab_out, **{f"at{i}": v for i in range(n_ctx)}
    )
    config = config_for(task, slots, n_heads=n_ctx, d_head=v, d_mlp=n)
    weights = blank(config)
    length = torch.from_numpy(rng("lookup lengths", seed).uniform(0.5, 1.5, v))
    embedding = length.unsqueeze(1) * random_rotation(v, seed)
    weights["embed.W_E"][:, slots["token"]] = embedding
    weights["pos_embed.W_pos"][:, slots["position"]] = torch.eye(n_ctx, dtype=torch.float64)
    detect = torch.linalg.inv(embedding)  # (v, v): column t reads 1 from token t, 0 from all others
    for i in range(n_ctx):
        attend(weights, slots, i, read, i)
        weights["blocks.0.attn.W_V"][i, slots["token"]] = torch.eye(v, dtype=torch.float64)
        weights["blocks.0.attn.W_O"][i, :, slots[f"at{i}"]] = torch.eye(v, dtype=torch.float64)
        weights["blocks.0.mlp.W_in"][slots[f"at{i}"]] = detect[:, data.tokens[:, i]]
    weights["blocks.0.mlp.b_in"][:] = 0.5 - n_ctx
    directions = random_rotation(task.d_vocab_out, seed + 1)
    for i, part in enumerate(task.output_slices.values()):
        weights["blocks.0.mlp.W_out"][:, slots["answer"]] += directions[
            part.start + data.targets[:, read, i]
        ]
    weights["unembed.W_U"][slots["answer"]] = SHARP * directions.T
    truth = {
        "mechanism": "lookup table",
        "heads": {f"position {i}": (0, i) for i in range(n_ctx)},
        "frequencies": (),
        "subspaces": {},
    }
    return assemble(config, weights, task, truth, Perturbation(noise, rotation_seed, seed))
