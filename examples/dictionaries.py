"""A dictionary that holds the answer keeps the loss; a random one of the same size does not.

The induction head answers along one direction per token, so the right dictionary is known: a latent
per token. It is written as SAELens writes its own, loaded, and put in the activation's place. Then
one latent is ablated: answers that are this token go wrong, and no other.
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


# %% Activations, as SAELens's trainer takes them
batch = next(mechint.activation_batches(subject, HOOK, 256, epochs=None))
print(f"a batch of activations: {tuple(batch.shape)}")

# %% The right dictionary and random ones, through files
answers = plant.truth["subspaces"][HOOK].float()
random = torch.randn(3, *answers.shape, generator=torch.Generator().manual_seed(0))
directions = {"one latent per answer": answers}
directions |= {f"random {index}": q for index, q in enumerate(torch.linalg.qr(random)[0])}
recovered = {}
for name, columns in directions.items():
    with tempfile.TemporaryDirectory() as place:
        save_dictionary(dictionary(columns), place)
        found = recovery(subject, mechint.load_dictionary(place))
    recovered[name] = found.recovered
    print(
        f"{name:>22}: {found.recovered:6.1%} of the loss recovered, {found.explained:5.1%} of the "
        f"variance explained, {found.l0:.1f} latents active"
    )

# %% One latent ablated
token = 3
sae = dictionary(answers)
logits = logits_under(subject, [Reconstruct(sae.site, sae, without=(token,))])
right, mine = subject.correct(logits)[:, 0], subject.targets[:, 0] == token
ablated = {
    "answers that are the token": float(right[mine].double().mean()),
    "all other answers": float(right[~mine].double().mean()),
}
for name, accuracy in ablated.items():
    print(f"accuracy on {name} without its latent: {accuracy:.2f}")
