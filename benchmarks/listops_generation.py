"""Expressions a second that one core draws, solves, checks against the split, writes and labels: ListOps and its variants.

    python benchmarks/listops_generation.py [--examples 4096] [--repeats 15]

Prints the median and the best of the repeats for the training split, one block of a stream at a time.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from mechint.task import rng
from tasks.listops import ListOps

VARIANTS = {
    "depth 2, 3 operands": {},
    "depth 2, 3 operands, functional": {"spelling": "functional"},
    "depth 2, 3 operands, mod 226": {"n": 226},
    "depth 2, 3 operands, no chain of thought": {"chain_of_thought": False},
    "single triplets": {"depth": 1, "min_operands": 3, "chain_of_thought": False},
    "depth 3, 3 operands": {"depth": 3},
    "depth 5, 5 operands, 512 characters": {"depth": 5, "operands": 5},
}


def rates(task: ListOps, split: str, examples: int, repeats: int) -> list[float]:
    """Examples a second of each repeat, after one to warm up."""
    found = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        task.generate(examples, split, rng("benchmark", repeat))
        found.append(examples / (time.perf_counter() - start))
    return found[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=ListOps.block)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'examples a second on one core':44}{'median':>10}{'best':>10}")
    for name, parameters in VARIANTS.items():
        found = rates(ListOps(**parameters), "train", options.examples, options.repeats)
        print(f"{name:44}{statistics.median(found):10,.0f}{max(found):10,.0f}")


if __name__ == "__main__":
    main()
