"""A hidden order, found from comparisons and from sums of ranks.

Each token has a secret rank. Comparison asks which of two comes first, hidden addition for the sum
of both ranks modulo n. Pairs that were never shown are answered; shuffled answers are not.
"""

# %% Two tasks on one kind of hidden order
import mechint
import tasks

families = [tasks.make(name, preset="fast") for name in ("comparison", "hidden-addition")]
for task in families:
    print(f"{task.name}: {task.text(task.inputs()[7])}")

# %% Train each, and its shuffled control
trained = {
    task.name: [mechint.train(one, preset="fast")[0] for one in (task, task.control("shuffled"))]
    for task in families
}

# %% Accuracy on pairs that were not trained on
outcomes = {}
for task in families:
    learned, shuffled = (run.final["test.accuracy"] for run in trained[task.name])
    (chance,) = task.chance.values()
    outcomes[task.name] = {"task": learned, "control": shuffled, "chance": chance.accuracy}
outcomes

# %% Where the first token's rank is: a direction of its embedding
subject = trained["comparison"][0].subject()
result = mechint.analyze(subject, "linear", settings={"linear": {"kind": "number", "pos": 0}})
result
