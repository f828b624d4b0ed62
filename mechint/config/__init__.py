"""Configurations of tasks, probes, models and training; see `mechint.config.settings`."""

from mechint.config.model import LLAMA, ModelConfig, centers, has_bias, has_weight
from mechint.config.settings import Settings, assign, assignment, parse_assignment, setting
from mechint.config.train import TrainConfig

__all__ = [
    "LLAMA",
    "ModelConfig",
    "Settings",
    "TrainConfig",
    "assign",
    "assignment",
    "centers",
    "has_bias",
    "has_weight",
    "parse_assignment",
    "setting",
]
