"""Remainders by all primes at once, re-run: which primes come first, and what the digits, the
frequencies and the heads show.

The study trains the task, its controls and modular addition as the reference, and holds the paper's
claims against them. Size smoke walks the whole path in seconds and judges nothing; laptop is base
47; full is base 113 for the paper's 65,536 epochs.
"""

# %% Which runs, and what would be claimed
import os

from mechint.studies import find_study, reproduce

SIZE = os.environ.get("SIZE", "smoke")
study = find_study("remainders")
print(study.title, "-", len(study.runs(SIZE)), "runs at size", SIZE)

# %% Train what is not yet trained, measure, write the report; a second call trains nothing
done = reproduce("remainders", SIZE, f"runs/remainders-{SIZE}", print)

# %% The claims: what the paper saw, what we see, and by which criterion
for claim in done.claims:
    print(
        f"\n{claim.letter}  {claim.verdict}: {claim.statement}\n   paper: {claim.paper}\n   "
        f"ours:  {claim.ours}\n   by:    {claim.criterion}"
    )

# %% Held-out accuracy of every prime at the last step, arm by arm
columns = [name for name in done.frame.columns if name.startswith("test.accuracy.mod ")]
print(
    done.frame.set_index(["arm", "seed"])[columns]
    .rename(columns=lambda name: name.removeprefix("test.accuracy."))
    .round(2)
    .to_string()
)
print("report:", done.report)
