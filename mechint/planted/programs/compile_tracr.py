"""Compiles the RASP programs that are planted, by Tracr, and writes their weights beside this file.

    pip install tracr-pypi jax dm-haiku          # in an environment of its own
    python mechint/planted/programs/compile_tracr.py

Run once; mechint reads what was written and imports none of the three. The files hold Tracr's
parameters by name, as float32, and in `recorded` what else is known of the model, as JSON.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
NUMBERS, LENGTH = 4, 5
"""Lists of LENGTH numbers 1 … NUMBERS, after a token BOS."""

PROGRAMS = ("reverse", "sort", "histogram")


def build(name: str) -> Any:
    """The RASP program, from Tracr's own library."""
    lib = importlib.import_module("tracr.compiler.lib")
    tokens = importlib.import_module("tracr.rasp.rasp").tokens
    if name == "reverse":
        return lib.make_reverse(tokens)
    if name == "sort":
        return lib.make_sort(tokens, tokens, max_seq_len=LENGTH, min_key=1)
    return lib.make_hist()


def compile_program(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Tracr's parameters by name, and what else TransformerLens's loader asks of its models."""
    compiling = importlib.import_module("tracr.compiler.compiling")
    model = compiling.compile_rasp_to_model(
        build(name), vocab=set(range(1, NUMBERS + 1)), max_seq_len=LENGTH, compiler_bos="BOS"
    )
    parameters = {
        f"{module}|{key}": np.asarray(value, np.float32)
        for module, values in model.params.items()
        for key, value in values.items()
    }
    sizes = ("num_layers", "num_heads", "key_size", "mlp_hidden_size", "causal", "layer_norm")
    recorded = {
        "tracr": importlib.metadata.version("tracr-pypi"),
        "model_config": {size: getattr(model.model_config, size) for size in sizes},
        "residual_labels": list(model.residual_labels),
        "inputs": list(model.input_encoder.encoding_map.items()),
        "outputs": list(model.output_encoder.encoding_map.items()),
    }
    return parameters, recorded


def main() -> None:
    for name in PROGRAMS:
        parameters, recorded = compile_program(name)
        text = np.frombuffer(json.dumps(recorded).encode(), np.uint8)
        arrays: dict[str, Any] = {"recorded": text, **parameters}
        np.savez_compressed(HERE / f"{name}.npz", **arrays)


if __name__ == "__main__":
    main()
