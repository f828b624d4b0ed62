"""Training follows from the plan, whatever the caller's settings of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tasks
from mechint.models import build
from mechint.training import spec
from tests.torch_settings import MODES
from tests.training.conftest import files_of, tiny

MODELS = {
    "transformer": ("modular-arithmetic", {"p": 5}, {"d_model": 8, "n_heads": 1}),
    "copy": ("modular-arithmetic", {"p": 5}, {"d_model": 8, "n_heads": 1, "init_mode": "copy"}),
    "torch": ("modular-arithmetic", {"p": 5}, {"d_model": 8, "n_heads": 1, "init_mode": "torch"}),
    "bottleneck": ("regression-mixture", {"n": 4, "n_tasks": 2, "rank": 1}, {"width": 2}),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    place = tmp_path_factory.mktemp("whole")
    tiny(place, (4, 5))
    return files_of(place)


@pytest.mark.parametrize("mode", [*MODES, "device meta"])
def test_a_run_is_the_same_byte_for_byte(
    whole: dict[str, bytes], tmp_path: Path, mode: str
) -> None:
    with MODES[mode]() if mode in MODES else torch.device("meta"):
        tiny(tmp_path, (4, 5))
        tiny(tmp_path, (4, 5), resume=True)
    assert files_of(tmp_path) == whole


@pytest.mark.parametrize("mode", ["float64", "float16", "no_grad"])
@pytest.mark.parametrize("kind", MODELS)
def test_initial_weights_are_float32_of_the_seed(kind: str, mode: str) -> None:
    name, parameters, model = MODELS[kind]
    config = spec(tasks.make(name, **parameters), model).model
    expected = build(config, seed=3).state_dict()
    with MODES[mode]():
        got = build(config, seed=3).state_dict()
    for key, value in expected.items():
        assert got[key].dtype == torch.float32 and torch.equal(got[key], value), key
