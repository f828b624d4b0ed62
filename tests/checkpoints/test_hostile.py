"""Files that ask for memory they do not fill, hang, hide damage, write on the terminal, or would be
replaced by mistake.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from click.testing import Result
from safetensors.torch import save_file

from mechint.checkpoints import load_checkpoint
from mechint.cli import main
from mechint.errors import CheckpointError, MechintError, RunError
from mechint.system.files import read_json, read_yaml
from tests.checkpoints.bases import native
from tests.checkpoints.bombs import cyclic, deep, members_of, shared, write_members


def refused(path: Path, error: type[Exception] = CheckpointError) -> str:
    with pytest.raises(error) as caught:
        load_checkpoint(path)
    text = str(caught.value)
    assert text.isprintable() and len(text) <= 500
    return text


def changed(path: Path, **changes) -> Path:
    content = torch.load(path, weights_only=True)
    torch.save(content | changes, path)
    return path


# --- memory ---------------------------------------------------------------------------------------


def test_a_storage_larger_than_its_member(tmp_path):
    path = native(tmp_path)
    members = members_of(path)
    name = next(name for name in members if "/data/" in name)
    members[name] = members[name][:-4]
    write_members(path, members)
    assert "storage" in refused(path)


def test_a_zip_bomb(tmp_path):
    path = tmp_path / "bomb.pt"
    write_members(path, {"x/data.pkl": bytes(200 << 20)}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    assert "its members are larger than the file" in refused(path)
    write_members(path, {"x/data.pkl": b"N."}, zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("n_layers", 10**7, "n_layers=10000000: expected 1 to"),
        ("n_loops", 10**7, "n_loops=10000000: expected 1 to"),
        ("d_mlp", 10**9, "d_mlp=1000000000: expected 1 to"),
        ("d_vocab", 10**9, "d_vocab=1000000000: expected 1 to"),
        ("n_ctx", 10**9, "n_ctx=1000000000: expected 1 to"),
        ("d_model", 10**9, "d_model=1000000000: expected 1 to"),
        ("n_layers", 1000, "speaks of 1,000 blocks"),
        ("d_mlp", 2**20, "W_in: got shape (4, 6), expected (4, 1048576)"),
        ("n_ctx", 2**20, "W_pos: got shape (3, 4), expected (1048576, 4)"),
        ("d_model", 2**16, "W_E: got shape (6, 4), expected (6, 65536)"),
    ],
)
def test_a_configuration_is_compared_before_a_model_is_built(
    tmp_path, field, value, said, monkeypatch
):
    path = native(tmp_path)
    config = torch.load(path, weights_only=True)["config"]
    monkeypatch.setattr("mechint.checkpoints.weights.build", lambda *_: pytest.fail("built"))
    assert said in refused(changed(path, config=config | {field: value}))


@pytest.mark.parametrize("value", [deep(70), deep(2000), cyclic(), shared()])
def test_metrics_that_nest_too_deep_or_in_a_circle(tmp_path, value):
    content = torch.load(native(tmp_path), weights_only=True)
    try:
        torch.save(content | {"metrics": {"a": value}}, tmp_path / "a.pt")
    except RecursionError:
        pytest.skip("torch cannot write it")
    assert re.search("nest deeper|more than|before it is whole", refused(tmp_path / "a.pt"))


def test_an_expanded_tensor(tmp_path):
    path = native(tmp_path)
    state = torch.load(path, weights_only=True)["state"]
    changed(path, state=state | {"embed.W_E": torch.ones(1).expand(10**6, 10**6)})
    assert "is larger than the 4 bytes that hold it" in refused(path)


# --- damage ---------------------------------------------------------------------------------------
def test_a_changed_byte_of_a_tensor_is_seen(tmp_path):
    path = native(tmp_path)
    with zipfile.ZipFile(path) as archive:
        member = next(item for item in archive.infolist() if "/data/" in item.filename)
    data = bytearray(path.read_bytes())
    start = member.header_offset
    name, extra = struct.unpack("<HH", data[start + 26 : start + 30])
    data[start + 30 + name + extra] ^= 1
    path.write_bytes(data)
    assert "the checksum of archive/data/0 is wrong" in refused(path)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.ones(6, 4, dtype=torch.complex64), "holds complex64 numbers"),
        (lambda: torch.ones(6, 4, dtype=torch.int64), "holds int64 numbers, expected floating"),
        (lambda: torch.ones(6, 4, dtype=torch.bool), "holds bool numbers"),
        (lambda: torch.eye(6, 4).to_sparse(), "is a sparse_coo tensor, expected a dense one"),
        (lambda: torch.empty(6, 4, device="meta"), "meta"),
        (
            lambda: torch.quantize_per_tensor(torch.ones(6, 4), 0.1, 0, torch.qint8),
            "is a quantized tensor",
        ),
        (lambda: torch.full((6, 4), torch.nan), "holds 24 of 24 values that are not finite"),
        (lambda: torch.ones(6, 4) / 0, "not finite"),
    ],
    ids=["complex", "integer", "bool", "sparse", "meta", "quantized", "nan", "inf"],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_weights_of_other_types(tmp_path, make, text):
    path = native(tmp_path)
    state = torch.load(path, weights_only=True)["state"]
    changed(path, state=state | {"embed.W_E": make()})
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": -1}, "whose seed is damaged"),
        ({"seed": 2**70}, "whose seed is damaged"),
        ({"seed": True, "step": "x"}, "whose step, seed are damaged"),
        ({"step": -3}, "whose step is damaged"),
        ({"metrics": {1: 2}}, "whose metrics is damaged"),
        ({"metrics": {"a": b"x"}}, "whose metrics is damaged"),
        ({"task": {"name": 3, "parameters": {}}}, "whose task is damaged"),
        ({"task": {"name": "modular-arithmetic", "parameters": [1]}}, "whose task is damaged"),
        ({"train": [1], "versions": 3}, "whose train, versions are damaged"),
    ],
)
def test_a_header_of_other_types(tmp_path, changes, text):
    assert text in refused(changed(native(tmp_path), **changes))


# --- the terminal and the file system -------------------------------------------------------------
def test_names_from_the_file_are_printed_without_control_characters(tmp_path):
    path = native(tmp_path)
    state = torch.load(path, weights_only=True)["state"]
    changed(path, state=state | {"\x1b[31mred\u202e" * 200: torch.ones(1)})
    assert "\\x1b[31mred\\u202e" in refused(path)


@pytest.fixture
def mechint():
    from click.testing import CliRunner

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


def test_a_pipe_and_a_device_do_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe.pt")
    assert "it is a pipe or a device, expected a regular file" in refused(tmp_path / "pipe.pt")
    assert "it is a pipe or a device" in refused(Path("/dev/zero"))
    os.mkfifo(tmp_path / "cfg.json")
    with pytest.raises(RunError, match="it is a pipe"):
        read_json(tmp_path / "cfg.json")


def test_paths_that_cannot_be_opened(tmp_path):
    (tmp_path / "loop.pt").symlink_to(tmp_path / "loop.pt")
    assert "symbolic links" in refused(tmp_path / "loop.pt")
    assert "cannot be read: embedded null byte" in refused(Path("a\x00b.pt"))


def test_markup_in_a_path_is_text(tmp_path, monkeypatch, mechint):
    monkeypatch.chdir(tmp_path)  # a long path is shortened
    place = Path("[bold]x[/red]")
    place.mkdir(parents=True)
    path = native(place)
    for command in (["checkpoint", "info", path], ["analyze", path, "--probe", "lens"]):
        result = mechint(*command)
        assert result.exit_code == 0, result.output
        assert "[bold]x[/red]" in "".join(result.stdout.split())  # wrapped or not


def test_json_and_yaml_beside_a_file_are_bounded(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 10**5)
    (tmp_path / "number.json").write_text("9" * 5000)
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    for name in ("deep.json", "number.json", "latin.json"):
        with pytest.raises(RunError, match="cannot be read as JSON"):
            read_json(tmp_path / name)
    bomb = [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in pairwise("abcdefghi")]
    (tmp_path / "bomb.yaml").write_text("\n".join(["a: &a [1]", *bomb]))
    (tmp_path / "code.yaml").write_text("a: !!python/object/apply:os.system ['true']\n")
    (tmp_path / "deep.yaml").write_text("[" * 5000)
    for name, said in (
        ("bomb.yaml", "holds more than"),
        ("code.yaml", "cannot be read as YAML"),
        ("deep.yaml", "cannot be read as YAML: nested too deep"),
    ):
        with pytest.raises(RunError, match=said):
            read_yaml(tmp_path / name)
    (tmp_path / "good.yaml").write_text("model: {d_model: 4, act_fn: null}\n")
    assert read_yaml(tmp_path / "good.yaml") == {"model": {"d_model": 4, "act_fn": None}}
    assert read_yaml(tmp_path / "none.yaml") is None


# --- Hugging Face directories ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"n_layer": 10**7}, "n_layer=10000000: expected at most 1000"),
        (
            {"model_type": "gptj", "n_positions": 10**9, "rotary_dim": 64},
            "other numbers, its files",
        ),
        ({"n_positions": 10**9}, "its files hold 25"),
        ({"vocab_size": 10**9, "n_embd": 16, "n_head": 2}, "its files hold 25"),
    ],
)
def test_a_model_directory_larger_than_its_weights(tmp_path, config, text):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"} | config))
    save_file({"transformer.wte.weight": torch.zeros(5, 5)}, tmp_path / "model.safetensors")
    assert text in refused(tmp_path)


@pytest.mark.parametrize("value", ["!!bool x", "!!int ''", "!!float ''", "!!timestamp x", "[" * 99])
def test_yaml_that_breaks_its_reader_is_refused_in_one_line(tmp_path, value):
    (tmp_path / "mapping.yaml").write_text(f"a: {value}")
    with pytest.raises(MechintError, match="cannot be read as YAML"):
        read_yaml(tmp_path / "mapping.yaml")
