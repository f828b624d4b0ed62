"""Why larger models learn more, re-run: regressions that compete for width, and language models
with a rare task inside.

For the regressions the theory says in advance which width keeps which feature; the language models
are asked by accuracy, by interchange interventions and by their gradients. Size smoke walks the
whole path and judges nothing; laptop takes minutes.
"""

# %% Which runs, and what would be claimed
import os

from mechint.studies import find_study, reproduce

SIZE = os.environ.get("SIZE", "smoke")
study = find_study("capacity")
print(study.title, "-", len(study.runs(SIZE)), "runs at size", SIZE)

# %% Train what is not yet trained, measure, write the report; a second call trains nothing
done = reproduce("capacity", SIZE, f"runs/capacity-{SIZE}", print)

# %% The claims: what the paper saw, what we see, and by which criterion
for claim in done.claims:
    print(
        f"\n{claim.letter}  {claim.verdict}: {claim.statement}\n   paper: {claim.paper}\n   "
        f"ours:  {claim.ours}\n   by:    {claim.criterion}"
    )

# %% Features of the rarest task held at the end, by width and by the gap between its showings
retention = done.frame[done.frame["arm"] == "retention"]
rarest = [name for name in retention.columns if name.startswith("test.features.")][
    : study.runs(SIZE)[0].spec.task.n_tasks
][-1]
print(retention.pivot_table(index="width", columns="gap", values=rarest).round(2).to_string())
print("report:", done.report)
