"""A paper run again: what is trained, and each claim with the paper's number beside ours.

``STUDY=emergence python examples/study.py`` takes another study than composition. Size smoke walks
the whole path in seconds and judges nothing; ``SIZE=laptop`` takes the time that the study says.
"""

# %% What would be trained, and what it costs
import os

import mechint
from mechint.registry import STUDIES

NAME, SIZE = os.environ.get("STUDY", "composition"), os.environ.get("SIZE", "smoke")
study = STUDIES[NAME]
print(study.title, "-", len(study.plan(SIZE)), "runs at size", SIZE)
print("here:", study.here, "- the paper:", study.there)

# %% Train what is not yet trained, measure, judge; a second call trains nothing
done = mechint.reproduce(NAME, SIZE, f"runs/{NAME}-{SIZE}", print)

# %% The claims: the paper's number, ours with its 95% interval, and the criterion
for claim in study.claims:
    print(f"\n{claim.id}  {claim.statement}\n   paper:     {claim.theirs}")
    print(f"   criterion: {claim.criterion}")
for claim in done.claims:
    print(f"{claim.id}  {claim.verdict}: {claim.ours or claim.note}")

# %% What was measured of each run: every claim is judged from these rows
print(len(done.rows), "rows;", ", ".join(list(done.rows[0])[:8]))
print("report:", done.report)
