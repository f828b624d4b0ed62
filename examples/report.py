"""From a checkpoint to one page: analyze, and write a report that opens offline.

The page shows the answer, the evidence with its nulls, and the figures.
"""

# %% What it computes
from pathlib import Path

import mechint
from mechint.report import page_of, write_page

account = mechint.analyze(mechint.load(mechint.example("clock.pt")))
account

# %% Write the page
report = write_page(page_of(account), Path("report.html"))
print("open", report.resolve())
