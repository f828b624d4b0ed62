"""Induction heads in a trained model: attention, weights, and what is lost without them.

The model continues sequences in which a piece of random tokens recurs. Attention finds a
previous-token head and the induction heads that read it; ablation shows what each is worth.
"""

# %% A trained model
import mechint

subject = mechint.load(mechint.example("induction.pt"))
subject

# %% Which heads, and what they are worth
account = mechint.analyze(subject, "attention", "ablation")
account

# %% Mean ablation of the induction heads, directly
from mechint.interventions import Mean, loss_under  # noqa: E402

heads = account.results["attention"].metrics["induction.heads"]
loss = {"as it is": subject.loss(), "without them": loss_under(subject, [Mean(h) for h in heads])}
loss
