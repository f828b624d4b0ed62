"""The contract of tasks: which targets are answers, and what the parts of a batch keep."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tasks
from mechint.errors import ParameterError
from mechint.task import IGNORE, Batch, Chance, TargetKind
from mechint.task.batch import epochs


@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=5))
def test_answers_are_the_positions_of_that_kind_in_order(rows: list[list[int]]) -> None:
    kinds = torch.tensor(rows, dtype=torch.int8)
    targets = torch.where(kinds > 0, torch.arange(4) + 10, IGNORE).unsqueeze(-1)
    answers = Batch(torch.zeros(len(rows), 4).long(), targets, kinds=kinds).answers
    for row, positions, found in zip(rows, answers.positions, answers.targets, strict=True):
        where = [p for p, kind in enumerate(row) if kind == TargetKind.ANSWER]
        assert positions[: len(where)].tolist() == where
        assert found[: len(where), 0].tolist() == [p + 10 for p in where]
        assert (positions[len(where) :] == IGNORE).all() and (found[len(where) :] == IGNORE).all()


def test_an_answer_is_counted_from_each_example_s_own_end() -> None:
    targets = torch.tensor([[5, 6, 7], [8, -1, -1], [-1, -1, -1]]).unsqueeze(-1)
    answers = Batch(torch.zeros(3, 3).long(), targets).answers
    positions, found = answers.at(-1)
    assert positions.tolist() == [2, 0, -1] and found[:, 0].tolist() == [7, 8, -1]
    assert answers.at(1)[0].tolist() == [1, -1, -1] and answers.at(-3)[0].tolist() == [0, -1, -1]
    with pytest.raises(ParameterError, match="answer=3: expected 0 to 2"):
        answers.at(3)


def test_a_batch_without_examples_or_targets_has_no_answers() -> None:
    empty = Batch(torch.zeros(0, 1).long(), torch.zeros(0, 1, 1).long())
    assert len(empty.answers) == 0
    with pytest.raises(ParameterError, match="these examples have no answers"):
        empty.answers.at(-1)


@pytest.mark.parametrize("loss_on", ["answer", "output", "all"])
def test_the_answer_of_listops_is_the_character_after_the_equals_sign(loss_on: str) -> None:
    task = tasks.make("listops", n=16, depth=2, loss_on=loss_on)
    batch = task.sample(40, seed=0)
    assert batch.kinds is not None
    positions, targets = batch.answers.at(0)
    for tokens, kinds, p, target in zip(
        batch.tokens, batch.kinds, positions.tolist(), targets[:, 0].tolist(), strict=True
    ):
        text = task.vocabulary.decode(tokens)
        written = text.partition("e")[0] + "e"
        assert p == written.index("=") and text[p + 1] == task.vocabulary.tokens[target]
        assert kinds.tolist().count(TargetKind.ANSWER) == 1
        assert kinds[len(written) - 2] == TargetKind.FORM  # the end is no answer
        steps = [text[i + 1] for i, kind in enumerate(kinds.tolist()) if kind == TargetKind.STEP]
        value = written[written.index("=") + 1 : -1]
        thought = "" if loss_on == "answer" else "".join(written[:p].split(">")[1:])
        assert "".join(steps) == thought + value[1:]


def test_the_answer_of_a_corpus_is_the_injected_label() -> None:
    task = tasks.make("corpus", inject="comparison", inject_parameters={"n": 20}, frequency=0.5)
    texts = task.sample(64, seed=0)
    instance = texts.masks["task"].any(1)
    positions, targets = texts.answers.at(-1)
    assert ((positions != IGNORE) == instance).all() and 0 < instance.sum() < 64
    own = task.injection.class_words
    assert torch.isin(targets[instance, 0], own).all() and len(texts.answers) == 1
    prompts = task.sample(16, seed=0, split=task.probe_split)
    assert (prompts.answers.positions != IGNORE).all()


def test_several_hops_have_one_named_answer_per_query() -> None:
    task = tasks.make("composition", n=3, k=4, hops=(2, 4))
    batch = task.sample(5, seed=0)
    assert task.n_answers == 9 and task.answer_names[4] == "from 1:1"
    assert batch.answers.positions.tolist() == [list(range(9))] * 5
    assert batch.answers.at(4)[1][:, 1].eq(IGNORE).all()  # no four hops from the second layer


def test_classes_have_the_names_a_reader_knows() -> None:
    digits = tasks.make("listops").class_names["token"]
    assert digits[:10] == tuple("0123456789") and digits[-1] == "e"
    assert tasks.make("groups", group="S3").class_names["answer"][4] == "201"
    assert tasks.make("comparison").class_names["a < b"] == ("a ≥ b", "a < b")


@pytest.mark.parametrize("name", ["modular-arithmetic", "listops-triplets"])
def test_test_examples_are_those_held_out_and_probes_see_all(name: str) -> None:
    task = tasks.make(name)
    parts, every = task.split(2), task.examples().tokens.tolist()
    held_out = {tuple(every[i]) for i in parts["test"].tolist()}
    assert {tuple(row) for row in task.sample(200, 2, "test").tokens.tolist()} <= held_out
    other = task.sample(200, 5, "test", split_seed=2).tokens.tolist()
    assert {tuple(row) for row in other} <= held_out
    assert task.probe_split == "all"
    seen = {tuple(row) for row in task.sample(2000, 2).tokens.tolist()}
    assert seen - held_out and seen & held_out


@pytest.mark.parametrize(("batch_size", "per_epoch"), [(5, 2), (3, 4), (7, 1)])
def test_an_epoch_has_as_many_batches_as_examples_fill(batch_size: int, per_epoch: int) -> None:
    """Each example once at most, in another order every epoch; a stream may start anywhere."""
    data = Batch(torch.arange(12)[:, None], torch.zeros(12, 1, 1, dtype=torch.long))
    whole = epochs(data, 0, batch_size)
    drawn = [next(whole).tokens[:, 0].tolist() for _ in range(3 * per_epoch)]
    flat = [example for batch in drawn for example in batch]
    size = per_epoch * batch_size
    orders = [flat[i : i + size] for i in range(0, len(flat), size)]
    assert all(len(set(order)) == size for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    for start, expected in enumerate(drawn):
        assert next(epochs(data, 0, batch_size, start)).tokens[:, 0].tolist() == expected


def test_a_split_has_the_shares_asked_for_and_its_stream_no_other_examples() -> None:
    task = tasks.make("modular-arithmetic", p=11, train_fraction=0.5, validation_fraction=0.2)
    parts, every = task.split(3), task.examples().tokens
    assert [len(parts[name]) for name in ("train", "validation", "test")] == [60, 24, 37]
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(121))
    for name, index in parts.items():
        assert torch.equal(next(task.stream(name, 3, None)).tokens, every[index])


def test_what_is_generated_hangs_on_the_split_and_the_seed() -> None:
    for task in (tasks.make("repeated-tokens"), tasks.make("single-index")):
        for draw in (
            task.sample,
            lambda n, seed, split, task=task: next(task.stream(split, seed, n)),
        ):
            keys = [(seed, split) for split in ("train", "validation", "test") for seed in (0, 1)]
            drawn, again = ([str(draw(9, *key).tokens.tolist()) for key in keys] for _ in range(2))
            assert drawn == again and len(set(drawn)) == len(keys)


def test_an_example_that_lacks_an_output_has_no_part_in_the_chance_of_all() -> None:
    rows = [[0, 1], [0, 1], [1, 1]] + [[1, IGNORE]] * 3
    assert Chance.of(torch.tensor(rows)).accuracy == pytest.approx(2 / 3)


def test_an_empty_split_is_refused_in_one_line() -> None:
    task = tasks.make("modular-arithmetic", p=7)
    message = r"^modular-arithmetic: its validation split is empty, a share of 0; expected some"
    for ask in (
        lambda: task.sample(3, 0, "validation"),
        lambda: next(task.stream("validation", 0, 4)),
    ):
        with pytest.raises(ParameterError, match=message):
            ask()
    assert len(
        tasks.make("modular-arithmetic", p=7, validation_fraction=0.2).sample(3, 0, "validation")
    )


@pytest.mark.parametrize("name", ["modular-arithmetic", "listops", "digit-sum"])
def test_examples_that_do_not_fit_are_refused_before_they_are_made(name: str) -> None:
    with pytest.raises(ParameterError, match=r"need about .* GiB; .* GiB are free; ask for fewer"):
        tasks.make(name).sample(10**12, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_memory_is_what_the_machine_and_its_limits_leave(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files as Linux writes them: a job in a container, and the container around it."""
    from mechint.task import batch as memory

    proc, groups = tmp_path / "proc", tmp_path / "groups"
    job = groups / ("memory/all/job" if version == 1 else "all/job")
    (proc / "self").mkdir(parents=True), job.mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    (proc / "self/statm").write_text("100 50 20 1 0 40 0\n")
    kinds = "5:cpu,memory:" if version == 1 else "0::"
    (proc / "self/cgroup").write_text(f"9:devices:/x\n{kinds}/all/job\n")
    monkeypatch.setattr(memory, "PROC", proc)
    monkeypatch.setattr(memory, "GROUPS", groups)
    assert memory.free_memory() == 8000 << 10
    limit, used = ("memory.limit_in_bytes", "rss") if version == 1 else ("memory.max", "anon")
    for place, allowed, taken in ((job, "max", 5), (job.parent, 6 << 20, 1 << 20)):
        (place / limit).write_text(f"{allowed}\n")
        (place / "memory.stat").write_text(f"cache 7\n{used} {taken}\n")
    assert memory.free_memory() == 5 << 20
    (job / limit).write_text(f"{4 << 20}\n")
    assert memory.free_memory() == (4 << 20) - 5
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (3 << 20, -1))
    assert memory.free_memory() == (3 << 20) - 100 * memory.resource.getpagesize()


def test_all_examples_are_planned_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from mechint.task import batch as memory

    task = tasks.make("remainders", p=1024)
    needed = 1024**2 * 3 * 8 * (1 + len(task.outputs))  # tokens and targets, once
    assert memory.example_bytes(1024**2, 3, len(task.outputs)) >= needed
    monkeypatch.setattr(memory, "free_memory", lambda: needed)
    with pytest.raises(ParameterError, match="1048576 examples of 3 tokens and 172 outputs"):
        task.examples()
