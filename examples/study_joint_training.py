"""Joint training, re-run: sums beside maxima and medians against sums alone, on the same 900
triplets of digits.

The study trains every arm, holds the paper's claims against what came out, and writes one page.
Size smoke walks the whole path in seconds and judges nothing; laptop takes minutes and judges what
triplets can; full is the paper's own.
"""

# %% Which runs, and what would be claimed
import os

from mechint.studies import find_study, reproduce

SIZE = os.environ.get("SIZE", "smoke")
study = find_study("joint-training")
print(study.title, "-", len(study.runs(SIZE)), "runs at size", SIZE)

# %% Train what is not yet trained, measure, write the report; a second call trains nothing
done = reproduce("joint-training", SIZE, f"runs/joint-training-{SIZE}", print)

# %% The claims: what the paper saw, what we see, and by which criterion
for claim in done.claims:
    print(
        f"\n{claim.letter}  {claim.verdict}: {claim.statement}\n   paper: {claim.paper}\n   "
        f"ours:  {claim.ours}\n   by:    {claim.criterion}"
    )

# %% Every run as a row: the share that learned stands beside the mean, at the last step and never
# at the best
accuracy = (
    done.frame.assign(learned=done.frame["test.greedy.accuracy"] >= 0.9)
    .groupby(["arm", "width", "init"])[["test.greedy.accuracy", "learned"]]
    .mean()
)
print(accuracy.to_string())
print("report:", done.report)
