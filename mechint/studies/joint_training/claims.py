"""The claims of the joint-training paper, in order."""

from __future__ import annotations

from mechint.studies.joint_training import claims_curriculum as staged
from mechint.studies.joint_training import claims_hardness as hardness
from mechint.studies.joint_training import claims_nested as nested
from mechint.studies.joint_training import claims_order as difficulty
from mechint.studies.joint_training import claims_sizes as sizes
from mechint.studies.joint_training import claims_triplets as triplets

CLAIMS = (
    difficulty.order,
    sizes.fewer_parameters,
    difficulty.two_hard_operations,
    nested.shuffled_table,
    triplets.mixture_solves_sums,
    sizes.permutation_blocks,
    nested.embeddings,
    nested.norm_ratios_differ,
    staged.curriculum,
    hardness.operands_and_depth,
    hardness.chain_of_thought,
    hardness.modulus,
    hardness.random_tables,
)
