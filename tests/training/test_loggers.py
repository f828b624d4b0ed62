"""Metrics sent to TensorBoard and Weights & Biases: what arrives is what the runs wrote, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import mechint
import tasks
from mechint.errors import UnknownNameError
from mechint.training import loggers
from mechint.training.loggers import Forwarder

SMALL = {"d_model": 8, "n_heads": 1, "d_mlp": 8}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    task = tasks.make("modular-arithmetic", p=5)
    steps = {"steps": 4, "evaluate_every": 2, "checkpoints": "last"}
    mechint.train(task, SMALL, steps, seeds=(0,), out=tmp_path / "run")
    return tmp_path / "run"


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Stand:
    """A service that notes what it is sent."""

    opened: list[tuple[str, str]]
    sent: list[Mapping[str, Any]]

    def __init__(self, run: Path, config: Mapping[str, Any], known: str) -> None:
        self.id = known or f"id-{len(self.opened)}"
        self.opened.append((config["task"]["name"], known))

    def send(self, step: int, numbers: Mapping[str, float]) -> None:
        self.sent.append({"step": step, **numbers})

    def close(self) -> None:
        self.sent.append({"closed": self.id})


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> type[Stand]:
    Stand.opened, Stand.sent = [], []
    monkeypatch.setattr(loggers, "LOGGERS", {"stand": Stand})
    return Stand


def test_every_evaluation_is_sent_once_and_a_run_goes_on(run: Path, stand: type[Stand]) -> None:
    rows, times = rows_of(run), iter([0.0, 0.5, 9.0])
    whole = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(whole[:2]))
    forwarder = Forwarder([run, run.parent / "later"], ["stand"], lambda: next(times))
    forwarder.poll()
    assert stand.sent == rows[:2]
    (run / "metrics.jsonl").write_text("".join(whole))
    forwarder.poll()
    assert stand.sent == rows[:2], "it does not look again so soon"
    forwarder.poll()
    assert stand.sent == rows
    # a process that was killed closes nothing; the next one goes on under the same identifier
    again = Forwarder([run], ["stand"])
    again.close()
    assert stand.sent == rows and stand.opened == [("modular-arithmetic", "")]
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 9, "test.loss": 1.0}) + "\n" + '{"step": 1')
    again = Forwarder([run], ["stand"])
    again.close()
    assert stand.sent[len(rows) :] == [{"step": 9, "test.loss": 1.0}, {"closed": "id-0"}]
    assert stand.opened[1:] == [("modular-arithmetic", "id-0")]


def test_no_logger_looks_at_nothing(run: Path) -> None:
    Forwarder([run], []).close()
    assert not (run / "logged.json").exists()
    with pytest.raises(UnknownNameError, match="tensorbord"):
        Forwarder([run], ["tensorbord"])


def test_tensorboard_holds_every_number(run: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    Forwarder([run], ["tensorboard"]).close()
    Forwarder([run], ["tensorboard"]).close()
    read = EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    for name in ("train.loss", "test.accuracy"):
        events = read.Scalars(name.replace(".", "/"))
        assert [event.step for event in events] == [row["step"] for row in rows_of(run)]
        assert [event.value for event in events] == pytest.approx(
            [row[name] for row in rows_of(run)], rel=1e-6
        )


def records_of(data: bytes) -> list[bytes]:
    """The records of a .wandb file below one block (32 KiB): after a header of 7 bytes, each has a
    checksum (4), its length (2, little endian) and its kind (1; 1 is a whole record).
    """
    assert data.startswith(b":W&B") and len(data) < 1 << 15
    found, place = [], 7
    while place + 7 <= len(data):
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        assert kind == 1
        found.append(data[place + 7 : place + 7 + size])
        place += 7 + size
    return found


@pytest.mark.slow
def test_wandb_works_offline(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    Forwarder([run], ["wandb"]).close()
    (file,) = run.rglob("run-*.wandb")
    history = []
    for data in records_of(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = record.history.item
            history.append({i.key or i.nested_key[0]: json.loads(i.value_json) for i in items})
    assert [row["test.loss"] for row in history] == [row["test.loss"] for row in rows_of(run)]
    assert [row["_step"] for row in history] == [row["step"] for row in rows_of(run)]
