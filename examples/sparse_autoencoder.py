"""A sparse autoencoder in place of an activation: the right one keeps the loss, random ones do not.

`SAE.load_from_disk(DIR)` of sae-lens has the same four tensors, `W_enc`, `b_enc`, `W_dec`, `b_dec`,
and its `encode` and `decode` go into the same hook. The induction head of this model answers along
one direction per token, so that the right autoencoder is known: a latent per token.
"""

# %% A model whose right autoencoder is known
import torch
from torch import Tensor

from mechint import planted

HOOK = "blocks.1.hook_resid_post"
plant = planted.induction_head(12, 6, rotation_seed=1)
subject = plant.subject
answers = plant.truth["subspaces"][HOOK].float()  # (d_model, latent)


def reconstruct(x: Tensor, directions: Tensor, without: int | None = None) -> Tensor:
    """Encode x (…, d_model) by a latent per column, active from 0.05 on, and decode it."""
    latents = torch.relu(x @ directions - 0.05)
    if without is not None:
        latents[..., without] = 0
    return latents @ directions.T


# %% Loss with the activation replaced: the right autoencoder and three random ones
def loss_of(directions: Tensor) -> float:
    hook = lambda x, hook: reconstruct(x, directions.to(x))  # noqa: E731
    return next(iter(subject.loss(subject.logits(hooks=[(HOOK, hook)])).values()))


random = torch.randn(3, *answers.shape, generator=torch.Generator().manual_seed(0))
plain = next(iter(subject.loss().values()))
losses = {"one latent per answer": loss_of(answers)}
losses |= {f"random {i}": loss_of(q) for i, q in enumerate(torch.linalg.qr(random)[0])}
losses

# %% One latent ablated: answers that are this token go wrong, and no others
ablate = lambda x, hook: reconstruct(x, answers.to(x), without=3)  # noqa: E731
right = subject.correct(subject.logits(hooks=[(HOOK, ablate)]))[:, 0]
mine = subject.targets[:, 0] == 3
ablated = {
    "answers that are the token": float(right[mine].double().mean()),
    "all other answers": float(right[~mine].double().mean()),
}
ablated
