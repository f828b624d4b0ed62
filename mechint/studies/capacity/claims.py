"""The claims of the capacity paper, in order: regressions, then language models."""

from __future__ import annotations

from mechint.studies.capacity import claims_alignment as alignment
from mechint.studies.capacity import claims_language as language
from mechint.studies.capacity import claims_loss as loss
from mechint.studies.capacity import claims_regressions as regressions
from mechint.studies.capacity import claims_retention as retention

CLAIMS = (
    regressions.order_of_utility,
    regressions.critical_width,
    regressions.residual_threshold,
    retention.retained,
    retention.more_data,
    regressions.complexity,
    language.rarer_tasks,
    language.features,
    language.interference,
    alignment.alignment,
    loss.equal_loss,
    loss.less_compute,
)
