"""Direct attribution and ablation disagree: the previous-token head writes nothing to the logits.

An induction head reads, through a saturated softmax, what a previous-token head wrote. Direct logit
attribution does not see that head, and the gradient of the answer there is nearly zero; the answer
is lost without it all the same.
"""

# %% A trained model that continues repeated sequences
import mechint
import probes

subject = mechint.load(mechint.example("induction.pt"))

# %% Component by component: direct, first order, exact
result = probes.run("attribution", subject, examples=64)
frame = result.tables["components"].to_frame()
frame

# %% The control: initial weights
control = probes.run("attribution", subject.untrained(0), examples=64, only_correct=False)
control.headline
