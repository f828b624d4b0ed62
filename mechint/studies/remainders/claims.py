"""The claims of the remainders paper, in the order of their letters."""

from __future__ import annotations

from mechint.studies.remainders import claims_arms as arms
from mechint.studies.remainders import claims_frequencies as frequencies
from mechint.studies.remainders import claims_learning as learning
from mechint.studies.remainders import claims_structure as structure

CLAIMS = (
    learning.all_primes,
    learning.order_of_primes,
    structure.positions,
    structure.singular_values,
    frequencies.active_frequencies,
    frequencies.shuffled_labels,
    structure.heads,
    arms.ablations,
    arms.masked,
)
