"""Does a network generalize without weight decay? AdamW, Muon, StableMax and ⊥Grad.

Prieto et al. 2025 hold that without weight decay learning stops once the logits have grown so far
that the softmax rounds to 0 and 1; StableMax and ⊥Grad remove the effect of that growth.
"""

# %% Four ways to train, each with and without weight decay
import mechint
import tasks

WAYS = {
    "AdamW": {},
    "Muon": {"optimizer": "muon"},
    "StableMax": {"loss": "stablemax"},
    "⊥Grad": {"orthogonal_grad": True},
}
task = tasks.make("modular-arithmetic", p=11, train_fraction=0.8)
model = {"d_model": 32, "n_heads": 2, "d_mlp": 64}
runs = {
    (way, decay): mechint.train(
        task, model, {"steps": 150, "lr": 5e-3, "weight_decay": decay, **settings}
    )[0]
    for way, settings in WAYS.items()
    for decay in (0.0, 1.0)
}

# %% Accuracy on pairs that were trained on, and on those that were not
chance = task.chance["answer"].accuracy
outcomes = {
    arm: {split: run.final[f"{split}.accuracy"] for split in ("train", "test")}
    for arm, run in runs.items()
}
for (way, decay), accuracy in outcomes.items():
    print(f"{way:<10} decay {decay}  train {accuracy['train']:6.1%}  test {accuracy['test']:6.1%}")
