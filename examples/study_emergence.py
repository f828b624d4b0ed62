"""Emergence and scaling laws, re-run: every direction is learned suddenly, all of them together as
a power law.

The study trains students on the exact population loss, fits emergence times and loss, and varies
width and information exponent. Size smoke walks the whole path in seconds and judges nothing;
laptop takes minutes.
"""

# %% Which runs, and what would be claimed
import os

from mechint.studies import find_study, reproduce

SIZE = os.environ.get("SIZE", "smoke")
study = find_study("emergence")
print(study.title, "-", len(study.runs(SIZE)), "runs at size", SIZE)

# %% Train what is not yet trained, measure, write the report; a second call trains nothing
done = reproduce("emergence", SIZE, f"runs/emergence-{SIZE}", print)

# %% The claims: what the paper saw, what we see, and by which criterion
for claim in done.claims:
    print(
        f"\n{claim.letter}  {claim.verdict}: {claim.statement}\n   paper: {claim.paper}\n   "
        f"ours:  {claim.ours}\n   by:    {claim.criterion}"
    )

# %% The last loss of every arm
keys = ["arm", "beta", "width", "k", "d"]
print(
    done.frame.groupby(keys, dropna=False)["test.loss"]
    .agg(["mean", "min", "max"])
    .round(4)
    .to_string()
)
print("report:", done.report)
