"""Grokking as it happens: restricted and excluded loss over the checkpoints of one run.

The progress measures of Nanda et al. 2023: the loss of the key frequencies alone falls long before
the test loss does, and the loss without them rises.
"""

# %% One run that keeps its checkpoints
import tempfile

import mechint
import tasks

folder = tempfile.mkdtemp()
task = tasks.make("modular-arithmetic", preset="fast")
kept = {"checkpoints": "linear", "n_checkpoints": 12}
(run,) = mechint.train(task, train=kept, preset="fast", out=f"{folder}/run")

# %% The same probes at every checkpoint, as one table
table = mechint.runs(f"{folder}/run").over_steps().probe("progress").probe("norms")
frame = table.frame()
columns = ["step", "test.accuracy", "progress.restricted_loss", "progress.excluded_loss"]
frame[[name for name in columns if name in frame]]

# %% What the last checkpoint computes
account = mechint.analyze(run.subject())
account
