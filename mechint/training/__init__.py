"""Training through the task registry: one model, a range of seeds, or any list of runs.

    from mechint.training import train
    (run,) = train(tasks.make("modular-arithmetic", p=29), train={"steps": 600})
    subject = run.subject()

Read `api` first, then `plan` (what trains together), `part` (one ensemble of it), `trainer` (the
loop), `learners` (losses), `mechint.models.rows` (the rows of a forward), `optimizer`,
`run_directory` and `state` (what is saved).
"""

from mechint.training.api import seed_specs, spec, train, train_many, workers_on
from mechint.training.run import Run, Spec
from mechint.training.schedule import Progress

__all__ = [
    "Progress",
    "Run",
    "Spec",
    "seed_specs",
    "spec",
    "train",
    "train_many",
    "workers_on",
]
