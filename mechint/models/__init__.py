"""The architectures a checkpoint may hold, and the device they run on; nothing heavy is imported
before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

from mechint.config import Settings
from mechint.errors import ParameterError, UnknownNameError

ARCHITECTURES = {
    "transformer": (
        "mechint.config.model:ModelConfig",
        "mechint.models.transformer:HookedTransformer",
        "mechint.models.parameters:parameter_shapes",
    ),
    "linear-bottleneck": (
        "mechint.models.linear_bottleneck:LinearBottleneckConfig",
        "mechint.models.students:LinearBottleneck",
        "mechint.models.linear_bottleneck:parameter_shapes",
    ),
    "two-layer": (
        "mechint.models.two_layer:TwoLayerConfig",
        "mechint.models.students:TwoLayerStudent",
        "mechint.models.two_layer:parameter_shapes",
    ),
    "pair-network": (
        "mechint.models.pair_network:PairNetworkConfig",
        "mechint.models.pair_network:PairNetwork",
        "mechint.models.pair_network:parameter_shapes",
    ),
}
"""Kind → its configuration; its module, which is made as ``Module(config, seed=0)``; and the
function that names a configuration's parameters with their shapes.
"""


def _resolve(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def kind_of(config: Settings) -> str:
    """The kind of architecture that `config` describes.

    >>> from mechint.config import ModelConfig
    >>> kind_of(ModelConfig())
    'transformer'
    """
    name = f"{type(config).__module__}:{type(config).__qualname__}"
    return next(kind for kind, (target, *_) in ARCHITECTURES.items() if target == name)


def config_class(kind: str) -> type[Settings]:
    """The configuration class of `kind`; UnknownNameError names the kinds there are."""
    if kind not in ARCHITECTURES:
        raise UnknownNameError.of("architecture", kind, ARCHITECTURES)
    return _resolve(ARCHITECTURES[kind][0])


def parameter_shapes(config: Settings) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter of a model of `config`, which is not built.

    >>> from mechint.models.two_layer import TwoLayerConfig
    >>> parameter_shapes(TwoLayerConfig(d=8, width=3))
    {'W': (3, 8)}
    """
    return _resolve(ARCHITECTURES[kind_of(config)][2])(config)


def build(config: Settings, seed: int | None = 0) -> Any:
    """A new model of `config` with the initial weights of `seed`, on the CPU; a transformer without
    a seed has any, for others to be loaded.
    """
    return _resolve(ARCHITECTURES[kind_of(config)][1])(config, seed=seed)


def find_device(name: str) -> Any:
    """The torch.device called `name` ("cpu", "cuda", "cuda:1"); ParameterError when it is not
    there.

    >>> find_device("cpu")
    device(type='cpu')
    """
    import torch

    there = ["cpu"] + [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ParameterError(f"device {name!r}: expected one of {', '.join(there)}") from error
    if f"{device.type}:{device.index or 0}" not in (*there, "cpu:0"):
        raise ParameterError(f"device {name!r} is not there; this machine has {', '.join(there)}")
    return device
