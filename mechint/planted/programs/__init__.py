"""RASP programs compiled to weights by Tracr: reverse, sort and histogram (Lindner et al. 2023).

The weights that Tracr compiled lie beside this file, as float32, with what is recorded of them;
nothing of Tracr or JAX is imported. Every entry of the residual stream has a label there, so what
is written where is known: a variable of the program has one entry per value.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mechint.errors import UnknownNameError
from mechint.planted.assembly import SHARP, Perturbation, Planted, assemble, make_task

PROGRAMS = ("reverse", "sort", "histogram")
HERE = Path(__file__).parent


def rasp_program(
    program: str = "reverse", *, noise: float = 0.0, rotation_seed: int | None = None, seed: int = 0
) -> Planted:
    """A compiled program; accuracy 1.0 on the task rasp, of four numbers in lists of five.

    Args:
        program: reverse (four layers), sort (three) or histogram (one); one head per layer, every
            position sees every other.
        noise, rotation_seed, seed: see `Perturbation`; right up to a noise of 0.001, for
            compiled weights differ by factors of a thousand.

    Returns:
        truth: "heads" {variable of the program: (layer, 0) that writes it}, "variables" {variable:
            "L0 attention" or "L0 MLP", which writes it first}, "subspaces" {hook: what its sublayer
            writes}.

    Raises:
        UnknownNameError: no such program.

    >>> plant = rasp_program("histogram")
    >>> plant.truth["variables"]
    {'hist_selector_width_attn_output': 'L0 attention', 'hist': 'L0 MLP'}
    """
    from mechint.checkpoints.formats.transformer_lens_native import from_tracr

    if program not in PROGRAMS:
        raise UnknownNameError.of("program", program, PROGRAMS)
    model = recorded(program)
    config, weights = from_tracr(model)
    task = make_task("rasp", program=program)
    # the last token of Tracr's pads lists that are too short, which do not occur here
    weights["embed.W_E"] = weights["embed.W_E"][: task.d_vocab]
    weights["unembed.W_U"] = SHARP * weights["unembed.W_U"]
    config = dataclasses.replace(config, d_vocab=task.d_vocab)
    weights = {name: weight.double() for name, weight in weights.items()}
    written = _written(weights, model.residual_labels, config.n_layers)
    eye = torch.eye(config.d_model, dtype=torch.float64)
    truth: dict[str, Any] = {
        "mechanism": f"RASP program {program}",
        "heads": {},
        "variables": {},
        "subspaces": {},
    }
    for (part, layer), variables in written.items():
        hook = f"blocks.{layer}.hook_{'attn' if part == 'attention' else 'mlp'}_out"
        entries = [index for some in variables.values() for index in some]
        truth["subspaces"][hook] = eye[:, entries]
        for variable in variables:
            truth["variables"].setdefault(variable, f"L{layer} {part.replace('mlp', 'MLP')}")
            if part == "attention":
                truth["heads"][variable] = (layer, 0)
    return assemble(config, weights, task, truth, Perturbation(noise, rotation_seed, seed))


@cache
def recorded(program: str) -> Any:
    """The parameters of a compiled model, for TransformerLens's loader, from its file."""
    with np.load(HERE / f"{program}.npz", allow_pickle=False) as file:
        known = json.loads(file["recorded"].tobytes())
        parameters: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
        for name in file.files:
            if name != "recorded":
                module, _, key = name.partition("|")
                parameters[module][key] = file[name]
    return SimpleNamespace(
        params=dict(parameters),
        model_config=SimpleNamespace(**known["model_config"]),
        residual_labels=known["residual_labels"],
        output_encoder=SimpleNamespace(encoding_map=dict(known["outputs"])),
    )


def _written(
    weights: dict[str, Tensor], labels: list[str], n_layers: int
) -> dict[tuple[str, int], dict[str, list[int]]]:
    """(part, layer) → variable → entries of the residual stream that the sublayer writes."""
    found: dict[tuple[str, int], dict[str, list[int]]] = {}
    for layer in range(n_layers):
        for part, name in (("attention", "attn.W_O"), ("mlp", "mlp.W_out")):
            columns = weights[f"blocks.{layer}.{name}"].abs().flatten(0, -2).sum(0).nonzero()
            variables: dict[str, list[int]] = defaultdict(list)
            for index in columns.flatten().tolist():
                variables[_variable(labels[index])].append(index)
            if variables:
                found[part, layer] = dict(variables)
    return found


def _variable(label: str) -> str:
    """The variable of an entry's label, without the number that Tracr gives each expression.

    >>> _variable("length_5:3"), _variable("one"), _variable("opp_idx-1_3:-5")
    ('length', 'one', 'opp_idx-1')
    """
    name = label.rpartition(":")[0] or label
    return re.sub(r"_\d+(?=_|$)", "", name)
