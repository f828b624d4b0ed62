"""The packages without which no part of `make gpu` runs, looked up before anything imports them."""

from __future__ import annotations

import importlib.util

NEEDED = (
    "torch",
    "transformer_lens",
    "transformers",
    "datasets",
    "dill",
    "multiprocess",
    "pyarrow",
    "xxhash",
    "einops",
    "jaxtyping",
    "numpy",
    "scipy",
    "pandas",
    "click",
    "rich",
    "jinja2",
    "yaml",
)
"""By the names they are imported by: of what mechint and TransformerLens require, that which is
imported to train, to measure and to run a study. TransformerLens imports datasets with it.
"""


DRAWING = ("plotly", "matplotlib")
"""What the report of a study is drawn with."""


def missing(names: tuple[str, ...] = NEEDED) -> list[str]:
    """Those of `names` that no package here brings.

    >>> missing(("torch", "torchh"))
    ['torchh']
    """
    return [name for name in names if importlib.util.find_spec(name) is None]
