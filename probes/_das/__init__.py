"""Distributed alignment search: subspaces of activations that hold causal variables."""

from probes._das.fit import fit, random_subspace
from probes._das.probe import DAS
from probes._das.swap import SwapSite, interchange, interchange_accuracy, swap

__all__ = [
    "DAS",
    "SwapSite",
    "fit",
    "interchange",
    "interchange_accuracy",
    "random_subspace",
    "swap",
]
