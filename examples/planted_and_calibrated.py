"""Is the instrument any good? Plant a mechanism, blur it, and see whether the probe reports what
was planted.

The weights of the model below are written, not trained: it adds modulo 31 by three chosen
frequencies. The probe is told nothing of them, only the model and its task. Beside it stand two
models that hold no such mechanism.
"""

# %% Write the weights, in a rotated basis of the residual stream
import mechint.planted
import probes
import tasks

FREQUENCIES = (3, 7, 12)
plant = mechint.planted.modular_addition(31, FREQUENCIES, rotation_seed=1)
print("accuracy as written:", plant.subject.accuracy()["answer"])

# %% The probe finds them in the logits, against the null of classes in random order
found = {"planted": probes.run("fourier", plant.subject)}
print(found["planted"].finding)

# %% With noise on every weight, relative to the root mean square of its tensor
noisy = mechint.planted.modular_addition(31, FREQUENCIES, rotation_seed=1, noise=0.2)
found["noisy"] = probes.run("fourier", noisy.subject)

# %% Two controls: initial weights, and a model that knows every answer by heart. Its logits are
# peaks, so they hold all waves
# alike: more than classes in random order would, but no wave stands out, and none is a key
by_heart = mechint.planted.lookup_table(tasks.make("modular-arithmetic", p=13), rotation_seed=1)
found["untrained"] = probes.run("fourier", plant.subject.untrained(0))
found["by heart"] = probes.run("fourier", by_heart.subject)

# %% What was planted, and what was found; `mechint calibrate` does this hundreds of times for every
# probe
print(f"{'planted':<12}{FREQUENCIES}")
for name, result in found.items():
    null = result.null["logits.largest_cosine"]
    print(
        f"  {name:<10}{result.metrics['logits.key_frequencies']}  largest cosine "
        f"{null.observed:.2f}, p = {null.p_value:.3f}"
    )
outcome = {name: tuple(result.metrics["logits.key_frequencies"]) for name, result in found.items()}
