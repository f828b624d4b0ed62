"""An exercise: find the mechanism of a model, state it, and let an audit grade what you stated.

Weights of the model were written, not trained. Its sequences are five tokens and the same five
again, and it continues them. Which of its six heads brings the answer, and from where? Look, fill
in the cell of claims, and run the rest. Another SEED is another model.
"""

# %% The model
from mechint import audit, head
from mechint.planted import library

SEED = 5
plant = library.induction(0.02, SEED)
subject = plant.subject
subject

# %% Look: where each head attends from the last position, on one input
for layer in range(2):
    pattern = subject.activation(f"blocks.{layer}.attn.hook_pattern")[0, :, -2]
    print(subject.task.text(subject.data.tokens[0]))
    print(f"layer {layer}", pattern.round(decimals=2), sep="\n")

# %% Look: what the model loses without a head
from mechint.interventions import ablate  # noqa: E402

for name in ("L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"):
    print(ablate(subject, name))

# %% State it: edit these two lines; keys are those of docs/explanations.md
HEAD = head(1, 2)
KEY = "previous token"

# %% The grade: what is wrong is named with the number that contradicts it
stated = audit(subject, HEAD.copies(KEY))
stated


# %% A solution, to be read last: one claim runs ("superfluous": a part of it is untested), no other
def grade(layer: int, number: int, key: str) -> str:
    """The standing of a claim in words."""
    return audit(subject, head(layer, number).copies(key)).standing


INDUCTION = "token after an earlier equal one"
grades = {
    f"L{layer}H{number} copies the {key}": grade(layer, number, key)
    for layer, number in ((0, 1), (1, 0), (1, 1), (1, 2))
    for key in (INDUCTION, "previous token")
}
grades

# %% What was written into the model
subject.task.title, plant.truth["heads"]
