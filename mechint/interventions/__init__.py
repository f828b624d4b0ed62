"""Interventions on activations: small named values at a site, and runs computed again only from
where they act.

    from mechint.interventions import EditedRuns, Mean, Site, Zero, loss_under

    ablate(subject, "L0H3")                                           # accuracy and loss without
    loss_under(subject, [Zero("L0H3")])                               # {"answer": nats}
    EditedRuns(model, tokens, answer_positions).under([Mean(Site.mlp(0)), ...])

`logits_under` applies interventions together in one hooked forward. `EditedRuns.under` applies each
alone, or several in each variant: variants are stacked along the batch and computed only from where
they act.
"""

from mechint.interventions.effects import (
    Ablated,
    ExampleMean,
    ablate,
    fill_means,
    logits_under,
    loss_under,
)
from mechint.interventions.resuming import asked, detached_weights, resumes
from mechint.interventions.runs import At, EditedRuns, path
from mechint.interventions.sites import Site
from mechint.interventions.values import (
    Add,
    Compute,
    Intervention,
    Mean,
    Replace,
    Take,
    Zero,
)
from mechint.subject.activations import select_positions

__all__ = [
    "Ablated",
    "Add",
    "At",
    "Compute",
    "EditedRuns",
    "ExampleMean",
    "Intervention",
    "Mean",
    "Replace",
    "Site",
    "Take",
    "Zero",
    "ablate",
    "asked",
    "detached_weights",
    "fill_means",
    "logits_under",
    "loss_under",
    "path",
    "resumes",
    "select_positions",
]
