"""The least that a command on a checkpoint costs: import torch, read the file, one forward.

    python benchmarks/floor.py examples/models/clock.pt

Nothing of mechint is imported; the forward is over all pairs of numbers, written out for one layer
without norms.
"""

from __future__ import annotations

import sys

import torch


def main(path: str) -> None:
    file = torch.load(path, weights_only=True)
    p, n = file["state"], file["config"]["d_vocab_out"]
    first, second = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    tokens = torch.stack([first, second, torch.full_like(first, n)], -1).flatten(0, 1)
    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"]
    q, k, v = (
        torch.einsum("btm,hmd->bhtd", x, p[f"blocks.0.attn.W_{letter}"])
        + p[f"blocks.0.attn.b_{letter}"][:, None]
        for letter in "QKV"
    )
    scores = q[:, :, -1:] @ k.mT / q.shape[-1] ** 0.5
    z = scores.softmax(-1) @ v
    x = x[:, -1] + torch.einsum("bhtd,hdm->bm", z, p["blocks.0.attn.W_O"])
    x = x + p["blocks.0.attn.b_O"]
    hidden = (x @ p["blocks.0.mlp.W_in"] + p["blocks.0.mlp.b_in"]).relu()
    x = x + hidden @ p["blocks.0.mlp.W_out"] + p["blocks.0.mlp.b_out"]
    logits = x @ p["unembed.W_U"] + p["unembed.b_U"]
    right = logits.argmax(-1) == (tokens[:, 0] + tokens[:, 1]) % n
    print(f"accuracy {right.double().mean():.4f}")


if __name__ == "__main__":
    main(sys.argv[1])
