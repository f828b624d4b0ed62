"""Composition of hidden permutations, re-run: long hops are learned after short ones, and not at
all without them.

The study trains direct, mixture and curriculum with two readouts and looks for the hidden
permutations in the first layer's attention. Size smoke walks the whole path in seconds and judges
nothing; laptop is four permutations of six points.
"""

# %% Which runs, and what would be claimed
import os

from mechint.studies import find_study, reproduce

SIZE = os.environ.get("SIZE", "smoke")
study = find_study("composition")
print(study.title, "-", len(study.runs(SIZE)), "runs at size", SIZE)

# %% Train what is not yet trained, measure, write the report; a second call trains nothing
done = reproduce("composition", SIZE, f"runs/composition-{SIZE}", print)

# %% The claims: what the paper saw, what we see, and by which criterion
for claim in done.claims:
    print(
        f"\n{claim.letter}  {claim.verdict}: {claim.statement}\n   paper: {claim.paper}\n   "
        f"ours:  {claim.ours}\n   by:    {claim.criterion}"
    )

# %% Accuracy of every hop at the last step, arm by arm
columns = [name for name in done.frame.columns if name.startswith("test.accuracy.")]
print(
    done.frame.set_index(["arm", "seed"])[["step", *columns]]
    .rename(columns=lambda name: name.removeprefix("test.accuracy."))
    .round(2)
    .to_string()
)
print("report:", done.report)
