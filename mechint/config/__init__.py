"""Configurations of tasks, probes, models and training; see `mechint.config.settings`."""

from mechint.config._assign import assign, assignment, parse_assignment
from mechint.config.model import ModelConfig
from mechint.config.settings import Settings, setting
from mechint.config.train import TrainConfig

__all__ = [
    "ModelConfig",
    "Settings",
    "TrainConfig",
    "assign",
    "assignment",
    "parse_assignment",
    "setting",
]
