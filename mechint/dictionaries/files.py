"""Reading and writing a dictionary as SAELens does: cfg.json and sae_weights.safetensors.

What is read is bounded by the files' own size and checked before it is taken: the architecture,
sizes, shapes, types, and that every number is finite. Nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.content import read_content
from mechint.checkpoints.weights import check_tensors
from mechint.dictionaries.dictionary import ARCHITECTURES, NORMALIZATIONS, Dictionary
from mechint.errors import CheckpointError
from mechint.interventions import Site
from mechint.system.files import read_json, write_bytes, write_text

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"


def load_dictionary(path: str | Path, *, hook: str | None = None) -> Dictionary:
    """The dictionary in directory `path`, in float32 or, where its numbers are, float64.

    hook: the activation it is for, in place of what its configuration says.

    Raises:
        CheckpointError: a file is missing, damaged or of an architecture that is not read
            (standard, jumprelu, topk, gated, batchtopk and matryoshka_batchtopk are), a tensor is
            missing, of another shape or type, or not
            finite, activations would have to be scaled by a factor that the files do not hold, or
            it is of one head of a hook that has none.
    """
    path = Path(path)
    config = read_json(path / CONFIG, CheckpointError)
    if not isinstance(config, Mapping):
        got = "no such file" if config is None else f"a {type(config).__name__}"
        raise CheckpointError(f"{path / CONFIG}: {got}, expected SAELens's configuration")
    settings = _settings(path / CONFIG, config)
    state = _at_inference(path, config, read_content(path / WEIGHTS))
    d_in, d_sae = (_size(path / CONFIG, config, name) for name in ("d_in", "d_sae"))
    shapes: dict[str, tuple[int, ...]] = {
        "W_enc": (d_in, d_sae),
        "b_enc": (d_sae,),
        "W_dec": (d_sae, d_in),
        "b_dec": (d_in,),
    }
    if settings["architecture"] == "jumprelu":
        shapes["threshold"] = (d_sae,)
    if settings["architecture"] == "gated":
        shapes |= {"r_mag": (d_sae,), "b_mag": (d_sae,)}
    if settings["k"] is not None and settings["k"] > d_sae:
        raise CheckpointError(f"{path / CONFIG}: k={settings['k']}, expected at most d_sae={d_sae}")
    tensors = _tensors(path / WEIGHTS, state, shapes)
    if hook is not None:
        settings["hook"] = hook
    name, head = settings["hook"], settings["head"]
    if head is not None and name is not None and not Site(name).per_head:
        raise CheckpointError(f"{path / CONFIG}: hook_head_index={head}: {name} has no heads")
    return Dictionary(**tensors, **settings)


def save_dictionary(dictionary: Dictionary, path: str | Path) -> None:
    """Write `dictionary` into directory `path` such that SAELens reads it too: `rescale` stays a
    setting of topk, and is folded into the weights of the others.

    Raises:
        RunError: a file cannot be written.
    """
    from safetensors.torch import save

    if dictionary.architecture != "topk":
        dictionary = dictionary.folded()
    names = ("W_enc", "b_enc", "W_dec", "b_dec", "threshold", "r_mag", "b_mag")
    gated = dictionary.architecture == "gated"
    tensors = {
        "b_gate" if gated and name == "b_enc" else name: value.detach().cpu().contiguous()
        for name in names
        if (value := getattr(dictionary, name)) is not None
    }
    joined = (dictionary.hook or "").endswith("hook_z") and dictionary.head is None
    config: dict[str, Any] = {
        "architecture": dictionary.architecture,
        "d_in": dictionary.d_in,
        "d_sae": dictionary.d_sae,
        "dtype": str(dictionary.W_enc.dtype).removeprefix("torch."),
        "device": "cpu",
        "apply_b_dec_to_input": dictionary.subtract_b_dec,
        "normalize_activations": dictionary.normalization,
        "reshape_activations": "hook_z" if joined else "none",
        "metadata": {"sae_lens_version": "6.0.0", "hook_name": dictionary.hook},
    }
    if dictionary.head is not None:
        config["metadata"]["hook_head_index"] = dictionary.head
    if dictionary.architecture == "topk":
        config |= {"k": dictionary.k, "rescale_acts_by_decoder_norm": dictionary.rescale}
    write_bytes(Path(path) / WEIGHTS, save(tensors))
    write_text(Path(path) / CONFIG, json.dumps(config, indent=1) + "\n")


def _at_inference(
    path: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors under the names of `Dictionary`; one threshold is that of every latent."""
    state = dict(state)
    if "b_gate" in state:
        state["b_enc"] = state.pop("b_gate")
    threshold = state.pop("topk_threshold", None)
    if threshold is not None and "b_enc" in state:
        if threshold.numel() != 1:
            raise CheckpointError(
                f"{path / WEIGHTS}: topk_threshold: got shape {tuple(threshold.shape)}, "
                "expected one number"
            )
        state["threshold"] = threshold.reshape(1).expand(state["b_enc"].shape).contiguous()
    if config.get("architecture") in BATCH_TOPK and "threshold" not in state:
        raise CheckpointError(
            f"{path}: architecture={config['architecture']!r} without its threshold; save it with "
            "SAELens's save_inference_model"
        )
    return state


BATCH_TOPK = ("batchtopk", "matryoshka_batchtopk")
"""Architectures that SAELens runs as jumprelu once they are trained."""


def _settings(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the configuration under the names of `Dictionary`; of SAELens 6 or before."""
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    hook, head = (
        metadata.get(f"hook_{name}", config.get(f"hook_{name}", config.get(f"hook_point{old}")))
        for name, old in (("name", ""), ("head_index", "_head_index"))
    )
    if head is not None and (isinstance(head, bool) or not isinstance(head, int) or head < 0):
        raise CheckpointError(f"{path}: hook_head_index={head!r}: expected a head, from 0, or null")
    architecture = config.get("architecture", "standard")
    function = config.get("activation_fn", config.get("activation_fn_str", "relu"))
    arguments = config.get("activation_fn_kwargs")
    k = config.get("k", arguments.get("k") if isinstance(arguments, Mapping) else None)
    if architecture == "standard" and function == "topk":
        architecture = "topk"
    architecture = "jumprelu" if architecture in BATCH_TOPK else architecture
    normalization = config.get("normalize_activations") or "none"
    for name, value, known in (
        ("architecture", architecture, ARCHITECTURES),
        ("activation_fn", function, ("relu", "topk") if architecture == "topk" else ("relu",)),
        ("normalize_activations", normalization, NORMALIZATIONS),
    ):
        if value not in known:
            extra = (
                "; fold the factor into the weights before saving"
                if value in (True, "expected_average_only_in")
                else ""
            )
            raise CheckpointError(
                f"{path}: {name}={value!r}: expected one of {', '.join(known)}{extra}"
            )
    return {
        "architecture": architecture,
        "k": _size(path, {"k": k}, "k") if architecture == "topk" else None,
        "hook": hook if isinstance(hook, str) else None,
        "head": head,
        "subtract_b_dec": _flag(path, config, "apply_b_dec_to_input", True),
        "normalization": normalization,
        "rescale": _flag(path, config, "rescale_acts_by_decoder_norm", False),
    }


def _size(path: Path, config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
        raise CheckpointError(f"{path}: {name}={value!r}: expected a positive number")
    return value


def _flag(path: Path, config: Mapping[str, Any], name: str, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{path}: {name}={value!r}: expected true or false")
    return value


def _tensors(
    path: Path, state: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    strange = sorted(set(state) - set(shapes))
    if strange:
        raise CheckpointError(
            f"{path}: holds {', '.join(strange[:4])}, which this architecture does not have; "
            f"expected {', '.join(shapes)}"
        )
    check_tensors(path, shapes, state)
    whole = all(state[name].dtype == torch.float64 for name in shapes)
    return {name: state[name].to(torch.float64 if whole else torch.float32) for name in shapes}
