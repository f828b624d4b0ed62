"""Two ways to add on a circle: a clock multiplies the operands' waves, a pizza adds them first.

The gradients at the two operands tell them apart, and so does the logit of the right answer: a
pizza's is smaller the farther the operands lie apart on the circle. A lookup table does neither.
With SIZE=full both are trained: a transformer with ordinary attention, and one whose attention is
constant.
"""

# %% Models that add modulo p
import os

import mechint
import probes
import tasks
from mechint import planted

SIZE = os.environ.get("SIZE", "smoke")  # smoke: planted models; full: trained ones, minutes
P, FREQUENCIES = 31, (3, 8, 12)
task = tasks.make("modular-arithmetic", p=P if SIZE == "smoke" else 59)


def trained(attention_rate: float) -> mechint.Subject:
    """A transformer whose attention counts for `attention_rate`, and is constant for the rest."""
    model = {"d_model": 128, "attention_rate": attention_rate}
    (run,) = mechint.train(task, model, {}, seeds=[0])
    return run.subject()


def model(constant_attention: bool) -> mechint.Subject:
    if SIZE == "full":
        return trained(attention_rate=0.0 if constant_attention else 1.0)
    plant = planted.modular_addition(
        P, FREQUENCIES, constant_attention=constant_attention, noise=0.03, rotation_seed=1
    )
    return plant.subject


subjects = {
    "ordinary attention": model(constant_attention=False),
    "constant attention": model(constant_attention=True),
    "lookup table": planted.lookup_table(tasks.make("modular-arithmetic", p=13)).subject,
}

# %% What tells them apart
results = {name: probes.run("clock-pizza", subject) for name, subject in subjects.items()}
for name, result in results.items():
    metrics = result.metrics
    print(
        f"{name:<20} {metrics['mechanism']:<8} "
        f"gradient symmetricity {metrics['gradient_symmetricity']:6.3f}  "
        f"distance irrelevance {metrics['distance_irrelevance']:6.3f}"
    )

# %% In the probe's own words
for result in results.values():
    print(result.finding)
