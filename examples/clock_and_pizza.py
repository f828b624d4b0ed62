"""A clock, a pizza, and a lookup table: three ways to add mod p.

A clock multiplies the Fourier components of the operands, a pizza adds them first (Zhong et al.
2023). The gradients at the operands separate them, and so does the logit of the right answer, which
in a pizza falls with the distance between the operands. The first two models were trained, one with
ordinary and one with constant attention.
"""

# %% Trained models, and one with a lookup table written into its weights
import mechint
import tasks
from mechint import planted

subjects = {
    "ordinary attention": mechint.load(mechint.example("clock.pt")),
    "constant attention": mechint.load(mechint.example("pizza.pt")),
    "lookup table": planted.lookup_table(tasks.make("modular-arithmetic", p=13)).subject,
}

# %% What each computes
accounts = {name: mechint.analyze(one, "clock-pizza") for name, one in subjects.items()}
for name, account in accounts.items():
    print(f"{name:<20} {account.verdict}")

# %% The two measures, for the model with ordinary attention
result = accounts["ordinary attention"].results["clock-pizza"]
result
