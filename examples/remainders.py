"""Remainders by many primes at once: which primes generalize first?

One network reads a two-digit number in base p and answers x mod q for primes q < p. Small primes
generalize before large ones. The control gives every number the remainders of another one.
"""

# %% The task and its control
import mechint
import tasks

task = tasks.make("remainders", preset="fast")
control = task.control("shuffled")
print("low digit first:", task.text(task.inputs()[40]))

# %% Train both
(learned,) = mechint.train(task, preset="fast")
(shuffled,) = mechint.train(control, preset="fast")

# %% Held-out accuracy of every prime, with chance 1/q
for output, chance in task.chance.items():
    row = [run.final[f"test.accuracy.{output}"] for run in (learned, shuffled)]
    print(f"{output:<8} {row[0]:6.1%}   shuffled {row[1]:6.1%}   chance {chance.accuracy:6.1%}")

# %% The mean over primes
outcome = {
    "task": learned.final["test.accuracy"],
    "control": shuffled.final["test.accuracy"],
    "chance": sum(one.accuracy for one in task.chance.values()) / len(task.chance),
}
outcome
