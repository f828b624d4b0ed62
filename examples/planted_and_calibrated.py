"""Calibration: plant a mechanism, add noise, and see whether the probe reports what was planted.

The weights of this model are written, not trained: it adds modulo 31 by three chosen frequencies.
The probe knows only the model and its task. Two controls hold no such mechanism.
"""

# %% Write the weights, in a rotated basis of the residual stream
import mechint.planted
import probes
import tasks

FREQUENCIES = (3, 7, 12)
plant = mechint.planted.modular_addition(31, FREQUENCIES, rotation_seed=1)
noisy = mechint.planted.modular_addition(31, FREQUENCIES, rotation_seed=1, noise=0.2)
memorized = mechint.planted.lookup_table(tasks.make("modular-arithmetic", p=13), rotation_seed=1)

# %% The probe on the plant, with noise on every weight, and on two controls
found = {
    "planted": probes.run("fourier", plant.subject),
    "noisy": probes.run("fourier", noisy.subject),
    "untrained": probes.run("fourier", plant.subject.untrained(0)),
    "memorized": probes.run("fourier", memorized.subject),
}
outcome = {name: tuple(one.metrics["logits.key_frequencies"]) for name, one in found.items()}
outcome

# %% `mechint calibrate` does this hundreds of times for every probe
found["planted"]
