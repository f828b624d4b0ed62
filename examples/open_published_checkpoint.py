"""Open a checkpoint that somebody else trained, and read how it adds.

    python examples/open_published_checkpoint.py model.pth modular-arithmetic p=113

The format is recognized from the file: progress-measures, rep-theory, pizza, nanoGPT,
TransformerLens and others. Without an argument it opens a small model of this repository.
"""

# %% Which file
import json
import sys

import mechint

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]  # a notebook has a kernel's
path, task, *settings = arguments or [mechint.example("clock.pt"), "modular-arithmetic", "p=29"]
parameters = {name: json.loads(value) for name, value in (one.split("=") for one in settings)}

# %% A Subject is the model with its task and all its inputs
subject = mechint.load(path, task=task, **parameters)
accuracy = subject.accuracy()
subject

# %% How it adds
account = mechint.analyze(subject, "fourier", "clock-pizza")
account

# %% The same numbers as a table, and one neuron over all pairs of inputs, (p, p)
result = account.results["fourier"]
neurons = subject.grid(subject.activation("blocks.0.mlp.hook_post", at="answer"))
result.to_frame().dropna(subset=["p_value"])
