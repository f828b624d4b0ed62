"""What a component does to the answer: straight to the logits, through others, and by a gradient.

An induction head reads, through a saturated softmax, what a previous-token head wrote. That head
writes nothing to the logits, the gradient of the answer there is nearly zero, and yet the answer is
lost without it: neither direct logit attribution nor attribution patching sees it, only the patch
does. With SIZE=full the model is trained.
"""

# %% A model that continues repeated sequences
import os

import mechint
import probes
import tasks
from mechint import planted

SIZE = os.environ.get("SIZE", "smoke")  # smoke: a planted model; full: a trained one, minutes
if SIZE == "full":
    (run,) = mechint.train(tasks.make("repeated-tokens", n=8, length=4), {}, {}, seeds=[0])
    subject = run.subject()
else:
    plant = planted.induction_head(8, 4, noise=0.02, rotation_seed=1, seed=1)
    subject = plant.subject
    print("planted:", dict(plant.truth["heads"]))

# %% Component by component
result = probes.run("attribution", subject, examples=64)
columns = result.tables["components"].columns
print(f"{'component':<16}  direct  first order   exact (nats of logit)")
for name, direct, first, exact in zip(
    columns["component"], columns["direct"], columns["first_order"], columns["exact"], strict=True
):
    print(f"{name:<16} {direct:7.2f}  {first:11.2f} {exact:7.2f}")

# %% In the probe's own words, and those of the control: initial weights
print(result.finding)
control = probes.run("attribution", subject.untrained(0), examples=64, only_correct=False)
print(control.finding)
