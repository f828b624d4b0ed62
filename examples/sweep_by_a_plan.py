"""A sweep from a plan file on the command line: stopped, gone on with, as a table, JSON and PDF.

What stands behind `mechint` in a terminal is a list here, so that the notebook runs anywhere.
"""

# %% A plan
import json
import tempfile
from pathlib import Path

from click.testing import CliRunner

from mechint.cli import main

folder = Path(tempfile.mkdtemp())
(folder / "plan.toml").write_text(
    """
task = "modular-arithmetic"
[set]
p = 11
train_fraction = 0.8
steps = 300
lr = 1e-2
d_mlp = 64
[over]
seed = "0:2"
d_model = [8, 32]
"""
)


def mechint(*arguments: object) -> str:
    """The output of `mechint ARGUMENTS` on stdout."""
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    if done.exit_code:
        raise SystemExit(done.output)
    return done.stdout


# %% What it would cost, then the sweep, and once more: nothing is left to train
sweep = folder / "S"
print(mechint("sweep", folder / "plan.toml", "--out", sweep, "--dry-run"))
mechint("sweep", folder / "plan.toml", "--out", sweep, "--workers", 1)
print(mechint("sweep", sweep, "--resume", "--workers", 1))

# %% The table as JSON: lists are lists
said = json.loads(mechint("table", sweep, "--probe", "fourier", "--json"))
keys = {row["name"]: row["fourier.logits.key_frequencies"] for row in said["rows"]}
keys

# %% The same rows in Python, best first
from mechint import runs  # noqa: E402

frame = runs(sweep).probe("fourier").frame()
best = frame.sort_values("test.accuracy", ascending=False)
best[["name", "model.d_model", "seed", "test.accuracy", "fourier.logits.key_frequencies"]]

# %% A figure for a paper, and a report that opens offline
pdf, page = folder / "accuracy.pdf", folder / "report.html"
runs(sweep).figure(x="model.d_model", y="test.accuracy").save(pdf)
mechint("table", sweep, "--probe", "fourier", "--out", page)
print(pdf.read_bytes()[:5], page.stat().st_size, "bytes")
