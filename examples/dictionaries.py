"""Sparse dictionaries: the right one keeps the loss, random ones of the same size do not.

The induction head of this model answers along one direction per token, so that the right dictionary
is known: a latent per token. It is written as SAELens writes its own, loaded, and put in the
activation's place. Then one latent is ablated.
"""

# %% A model whose right dictionary is known
import tempfile

import torch

import mechint
from mechint import planted
from mechint.dictionaries import Dictionary, Reconstruct, recovery
from mechint.dictionaries.files import save_dictionary
from mechint.interventions import logits_under

HOOK = "blocks.1.hook_resid_post"
plant = planted.induction_head(12, 6, rotation_seed=1)
subject = plant.subject


def dictionary(directions: torch.Tensor) -> Dictionary:
    """One latent per column of directions (d_model, latent), active from 0.05 on."""
    b_enc, b_dec = torch.full(directions.shape[1:], -0.05), torch.zeros(directions.shape[:1])
    return Dictionary("standard", directions, b_enc, directions.T, b_dec, hook=HOOK)


# %% The right dictionary and random ones, through files
answers = plant.truth["subspaces"][HOOK].float()
random = torch.randn(3, *answers.shape, generator=torch.Generator().manual_seed(0))
directions = {"one latent per answer": answers}
directions |= {f"random {index}": q for index, q in enumerate(torch.linalg.qr(random)[0])}
recovered = {}
for name, columns in directions.items():
    with tempfile.TemporaryDirectory() as place:
        save_dictionary(dictionary(columns), place)
        recovered[name] = recovery(subject, mechint.load_dictionary(place)).recovered
recovered

# %% One latent ablated: answers that are this token go wrong, and no others
sae = dictionary(answers)
right = subject.correct(logits_under(subject, [Reconstruct(sae.site, sae, without=(3,))]))[:, 0]
mine = subject.targets[:, 0] == 3
ablated = {
    "answers that are the token": float(right[mine].double().mean()),
    "all other answers": float(right[~mine].double().mean()),
}
ablated
