"""From a training run to one page: train, probe, and write a report that opens offline.

The page holds the answer, the evidence with its nulls, and the figures;
`page.json` keeps the same page as data, from which `mechint gallery build` draws it into one
gallery with all the others.
"""

# %% Train, keeping a few checkpoints on the way
import json
import os
from pathlib import Path

import mechint
import tasks
from mechint.report import PAGE, page_of, write_page

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: addition mod 113, minutes
PARAMETERS = {"smoke": {"p": 23, "train_fraction": 0.8}, "full": {"p": 113}}[SIZE]
MODEL = {"smoke": {"d_model": 64, "d_mlp": 128}, "full": {}}[SIZE]
TRAIN = {
    "smoke": {"steps": 400, "lr": 1e-2},
    "full": {"steps": 4000, "lr": 2e-3, "grokfast": "ema"},
}[SIZE]

task = tasks.make("modular-arithmetic", **PARAMETERS)
(run,) = mechint.train(task, MODEL, {**TRAIN, "checkpoints": "linear", "n_checkpoints": 4})
subject = run.subject()

# %% Ask what it computes
account = mechint.analyze(subject, "fourier", "attention")
print(account)

# %% Write the page, and keep it for the gallery
folder = Path("runs") / "example-report"
folder.mkdir(parents=True, exist_ok=True)
page = page_of(account)
report = write_page(page, folder / "report.html")
(folder / PAGE).write_text(json.dumps(page.to_dict()), encoding="utf-8")
print("open", report.resolve())
