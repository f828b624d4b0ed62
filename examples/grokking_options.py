"""Grokking with and without weight decay, under four ways to train: AdamW, Muon, StableMax
cross-entropy, and ⊥Grad.

Prieto et al. 2025 hold that without weight decay a network stops learning once its logits have
grown so far that the softmax rounds to 0 and 1; StableMax and ⊥Grad remove the growth's effect, and
with them it generalizes without weight decay. Whether that shows depends on the size of the run:
at size smoke the table only has the columns.
"""

# %% Four ways to train, each with and without weight decay
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: half an hour on two cores
PARAMETERS = {
    "smoke": {"p": 11, "train_fraction": 0.8},
    "full": {"p": 113, "train_fraction": 0.4},
}[SIZE]
MODEL = {"smoke": {"d_model": 32, "n_heads": 2, "d_mlp": 64}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 150, "lr": 5e-3}, "full": {"steps": 20_000, "lr": 1e-3}}[SIZE]
WAYS = {
    "AdamW": {},
    "Muon": {"optimizer": "muon"},
    "StableMax": {"loss": "stablemax"},
    "⊥Grad": {"orthogonal_grad": True},
}
DECAYS = (0.0, 1.0)

task = tasks.make("modular-arithmetic", **PARAMETERS)
arms = [(way, decay) for way in WAYS for decay in DECAYS]

# %% Models that differ in the decay alone train as one ensemble
runs = train_many(
    [spec(task, MODEL, {**TRAIN, **WAYS[way], "weight_decay": decay}) for way, decay in arms]
)

# %% Accuracy on pairs that were trained on, and on those that were not
chance = task.chance["answer"].accuracy
outcomes = {
    arm: {split: run.final[f"{split}.accuracy"] for split in ("train", "test")}
    for arm, run in zip(arms, runs, strict=True)
}
print(f"{'':<10} decay   train    test   (chance {chance:.1%})")
for (way, decay), accuracy in outcomes.items():
    print(f"{way:<10} {decay:>5.1f} {accuracy['train']:>7.1%} {accuracy['test']:>7.1%}")
