"""Distributed alignment search: subspaces of activations that hold causal variables."""

from mechint.probes._das._swap import SwapSite, interchange_accuracy, swap
from mechint.probes._das.probe import DAS
from mechint.probes._das.search import fit, random_subspace

__all__ = [
    "DAS",
    "SwapSite",
    "fit",
    "interchange_accuracy",
    "random_subspace",
    "swap",
]
