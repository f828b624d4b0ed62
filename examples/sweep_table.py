"""A sweep as one table: every seed and width is a row, every probe's numbers are columns.

Models of one shape train together. The table shows at which width addition is learned, and what
each model computes.
"""

# %% Train three seeds at two widths
import tempfile

import mechint
import tasks

folder = tempfile.mkdtemp()
task = tasks.make("modular-arithmetic", p=23, train_fraction=0.8)
for width in (8, 32):
    mechint.train(
        task,
        {"d_model": width, "n_heads": 1, "d_mlp": 4 * width},
        {"steps": 300, "lr": 1e-2},
        seeds=range(3),
        out=f"{folder}/width-{width}",
    )

# %% One row per model
table = mechint.runs(folder).probe("fourier")
frame = table.frame()
frame[["name", "model.d_model", "seed", "test.accuracy", "fourier.verdict"]]

# %% Accuracy by width
by_width = frame.groupby("model.d_model")["test.accuracy"].median()
by_width
