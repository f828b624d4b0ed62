"""The arms of the joint-training study's nested expressions: name → ListOps parameters; and the
models that learn them.

The operation that is judged stands first in the name of a mixture, "ADD in ADD+PROD"; where the
name has no mixture, the whole test is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SUMS = ("MAX", "MED", "ADD")

Arms = Mapping[str, Mapping[str, Any]]

TOGETHER: Arms = {
    "ADD": {"n": 10, "operations": ("ADD",)},
    "ADD in MAX+MED+ADD": {"n": 10, "operations": SUMS},
    "ADD in ADD+PROD": {"n": 10, "operations": ("ADD", "PROD")},
}
"""Sums alone and beside others at n = 10."""

THREE_LAYERS: Arms = {
    f"{arm}, three layers": TOGETHER[arm] for arm in ("ADD in MAX+MED+ADD", "ADD")
}
"""The two whose norm ratios are compared, the mixture first."""

RECURRENT = {"n_layers": 1, "n_loops": 3}
"""The paper's main text: one block applied repeatedly, its output fed back."""

LAYERED = {"n_layers": 3}
"""The model of the paper's norm ratios: three layers with weights of their own."""

OVERNIGHT_ARMS: Arms = {
    "MAX": {"n": 10, "operations": ("MAX",)},
    "MED": {"n": 10, "operations": ("MED",)},
    **{
        f"{name}, no steps": {"n": 10, "operations": (name,), "chain_of_thought": False}
        for name in ("MAX", "MED", "ADD")
    },
}
"""The other arms of a night."""

BLOCKS: Arms = {
    "OP": {"algebra": "permutation-blocks", "operations": ("OP",)},
    "OP in OP+OP_TOP+OP_BOTTOM": {"algebra": "permutation-blocks"},
}
"""Products of 6 by 6 permutation matrices with two blocks, whole and block by block."""

MODULI: Arms = {
    f"{name}, n = {n}": {"n": n, "operations": (name,)} for name in ("MAX", "ADD") for n in (10, 26)
}
"""Whose moduli are compared, with data in proportion to them."""

FULL_ARMS: Arms = {
    **{
        name: {"n": 20, "operations": (name,)}
        for name in ("MAX", "MIN", "MED", "ADD", "NADD", "PROD")
    },
    "PROD prime": {"n": 19, "operations": ("PROD",)},
    "PROD prime in MAX+PROD": {"n": 19, "operations": ("MAX", "PROD")},
    "ADD in ADD+PROD": {"n": 20, "operations": ("ADD", "PROD")},
    "ADD, n = 19": {"n": 19, "operations": ("ADD",)},
    "ADD in ADD+PROD, n = 19": {"n": 19, "operations": ("ADD", "PROD")},
    "ADD in MAX+MED+ADD": {"n": 20, "operations": SUMS},
    "ADD in MAX+MED+ADD, n = 26": {"n": 26, "operations": SUMS},
    "shuffled ADD in MAX+MED+ADD, n = 26": {
        "n": 26,
        "operations": SUMS,
        "addition": "shuffled",
    },
    "shuffled ADD, n = 26": {"n": 26, "operations": ("ADD",), "addition": "shuffled"},
    "ADD, even table": {"n": 20, "operations": ("ADD",), "addition": "random-uniform"},
    "ADD, uneven table": {"n": 20, "operations": ("ADD",), "addition": "random-skewed"},
    **{
        f"{name}, no steps": {"n": 20, "operations": (name,), "chain_of_thought": False}
        for name in ("MAX", "MED", "ADD")
    },
    **MODULI,
    **BLOCKS,
    **{
        f"{m} operands, depth {k}": {"n": 10, "operations": SUMS, "operands": m, "depth": k}
        for m in (3, 4, 5)
        for k in (3, 4, 5)
    },
}
"""The arms of the paper's own size."""


def judged_operation(arm: str) -> str:
    """The operation on which an arm is judged; empty where it is the whole test.

    >>> judged_operation("shuffled ADD in MAX+MED+ADD, n = 26"), judged_operation("ADD, no steps")
    ('ADD', '')
    """
    if arm == "curriculum":
        return "ADD"
    return arm.removeprefix("shuffled ").partition(" in ")[0].split()[0] if " in " in arm else ""
