"""Open a checkpoint that somebody else trained, and ask it how it adds.

    python examples/open_published_checkpoint.py model.pth modular-arithmetic p=113

The format is recognized from the file: those of progress-measures, rep-theory, pizza, nanoGPT,
TransformerLens and others. The task is named where the file does not say it. Without an argument a
model is written here and saved, so that the script runs anywhere.
"""

# %% Which file
import json
import sys
from pathlib import Path

import mechint
import mechint.planted
import probes
from mechint.checkpoints import save_checkpoint

arguments = [] if "ipykernel" in sys.modules else sys.argv[1:]  # a notebook has a kernel's
if arguments:
    path, task, *settings = arguments
    parameters = {
        name: json.loads(value) for name, value in (setting.split("=") for setting in settings)
    }
else:
    plant = mechint.planted.modular_addition(31, (3, 7, 12), noise=0.05, rotation_seed=1).subject
    path, task, parameters = Path("runs") / "planted.pt", "modular-arithmetic", {"p": 31}
    path.parent.mkdir(exist_ok=True)
    save_checkpoint(
        path,
        config=plant.model.config,
        weights=plant.model.state_dict(),
        task=plant.task,
        step=0,
        metrics={},
    )
    print("no checkpoint given: a written model is saved as", path)

# %% Open it: a Subject is the model with its task and all its inputs
subject = mechint.load(path, task=task, **parameters)
accuracy = subject.accuracy()
print("format:", subject.provenance["checkpoint"]["format"], " accuracy on all inputs:", accuracy)

# %% One probe, one finding, with its null; the same numbers are in `result.metrics` and
# `result.to_frame()`
result = probes.run("fourier", subject)
print(result.finding)
print(result.to_frame().dropna(subset=["p_value"]).to_string(index=False))

# %% One neuron over all pairs of inputs, (p, p): the stripes of a wave
neurons = subject.grid(subject.activation("blocks.0.mlp.hook_post", at="answer"))
print("neurons over the input grid:", tuple(neurons.shape))
outcome = {"accuracy": accuracy, "frequencies": tuple(result.metrics["logits.key_frequencies"])}
