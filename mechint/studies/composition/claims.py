"""The claims of the composition paper, in the order of their letters."""

from __future__ import annotations

from mechint.studies.composition import claims_learning as learning
from mechint.studies.composition.claims_attention import attention_patterns

CLAIMS = (
    learning.direct_stays_at_chance,
    learning.mixture_learns_in_order,
    learning.curriculum_learns,
    attention_patterns,
)
