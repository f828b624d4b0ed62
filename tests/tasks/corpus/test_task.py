"""The corpus: its language's entropy against long samples and a parser, injections against the
task, files against their bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint.data import texts
from mechint.errors import DataError, NotApplicableError, ParameterError
from tasks._corpus import language
from tasks._corpus.injection import Injection
from tasks._corpus.task import Corpus
from tasks._running_sign import RunningSign
from tasks.ordering import HiddenComparison

INJECTED = {"inject": "comparison", "inject_parameters": {"n": 20, "equals": False}}


# --- the language ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def automaton():
    return language.build(200, 0.05, 3)


def log_likelihood(machine, tokens: np.ndarray) -> np.ndarray:
    """log P(token | all before) in nats of texts (n, length) from a document's start."""
    edges = zip(machine.source, machine.token, machine.target, machine.probability, strict=True)
    known = {(state, token): (after, np.log(chance)) for state, token, after, chance in edges}
    found = np.zeros(tokens.shape)
    for row, text in zip(found, tokens.tolist(), strict=True):
        state = 0
        for position, token in enumerate(text):
            state, row[position] = known[state, token]
    return found


def test_the_best_loss_on_templates_alone_is_the_closed_form():
    """Which template is not read; then x, and y above x in one of the two, of which z follows."""
    y = (np.mean(np.log(np.arange(1, 16))) + np.log(16)) / 2
    for n_ctx, rest in ((2, 0.0), (3, y)):
        total = (np.log(15) + np.log(16)) / 2 + rest
        task = Corpus(reference_rate=0.5, n_ctx=n_ctx)
        assert task.best_loss == pytest.approx(total / (n_ctx - 1))


def parse(words: Sequence[str]) -> None:
    """Hold a text against the grammar by a stack of its own."""
    stack, topic, i = [], None, 0
    while i < len(words):
        word = words[i]
        if word in ("rises", "sums") and len(words) >= i + 5:
            numbers = [int(number) for number in words[i + 1 : i + (3 if word == "rises" else 4)]]
            assert (
                numbers[0] < numbers[1] if word == "rises" else sum(numbers[:2]) % 16 == numbers[2]
            )
            i += len(numbers)
        elif word.startswith("the"):
            stack.append(word[3:])
        elif word.startswith("verb"):
            assert word[4:].split(".")[0] == stack[-1]
        elif word.startswith("noun"):
            topic = topic or word[4:].split(".")[0]
            assert word[4:].split(".")[0] == topic
        elif word == "<eod>":
            assert not stack
            topic = None
        elif word == "," or (word == "." and stack):
            stack.pop()
            assert bool(stack) == (word == ",")
        i += 1


def test_texts_agree_across_nested_clauses_and_keep_their_topic(automaton):
    machine, words = automaton
    tokens, _ = machine.draw(50, 300, np.random.default_rng(4))
    for row in tokens:
        parse([words[token] for token in row])
    nested = sum(
        [
            words[a].startswith("noun") and words[b].startswith("the")
            for row in tokens
            for a, b in itertools.pairwise(row)
        ]
    )
    assert nested > 100


# --- the stream -----------------------------------------------------------------------------------


def test_reference_tasks_come_at_their_known_frequency_and_are_marked():
    task = Corpus(n_ctx=48, reference_rate=0.1)
    batch = task.sample(6000, seed=0)
    words = task.vocabulary.tokens
    automaton = task.background.automaton
    visits = automaton.occupancy(48)[1:].sum(0)
    for name in ("rises", "sums"):
        mask, expected = batch.masks[name], visits[automaton.kinds == f"{name}_answer"].sum()
        assert mask[:, :-1].sum().item() / 6000 == pytest.approx(expected, rel=0.05)
        for row, position in mask[:, :-1].nonzero()[:30].tolist():
            text = [words[token] for token in batch.tokens[row]]
            numbers = [
                int(number)
                for number in text[text.index(name, max(0, position - 2)) + 1 : position + 2]
            ]
            assert (
                numbers[0] < numbers[1] if name == "rises" else sum(numbers[:2]) % 16 == numbers[2]
            )


def test_best_loss_and_chance_bound_a_models_loss():
    task = Corpus(n_ctx=32, vocab_size=128)
    batch = task.sample(4000, seed=5)
    machine = task.background.automaton
    assert -log_likelihood(machine, batch.tokens.numpy())[:, 1:].mean() == pytest.approx(
        task.best_loss, abs=0.02
    )
    counts = torch.bincount(batch.tokens[:, 1:].flatten(), minlength=task.d_vocab).double()
    assert task.chance["next"].accuracy == pytest.approx(
        float(counts.max() / counts.sum()), abs=0.01
    )
    assert task.best_loss < task.chance["next"].loss < np.log(task.d_vocab)


@settings(max_examples=10, deadline=None)
@given(frequency=st.floats(0, 1), seed=st.integers(0, 100))
def test_injected_instances_are_the_tasks_and_come_at_their_frequency(frequency, seed):
    task = Corpus(n_ctx=12, frequency=frequency, inject_seed=seed, **INJECTED)
    inner, injection = HiddenComparison(n=20, equals=False), task.injection
    batch = task.sample(1000, seed=seed)
    carries = batch.masks["task"].any(1)
    assert abs(carries.float().mean().item() - frequency) < 0.06
    back = {word: token for token, word in enumerate(injection.token_words.tolist())}
    labels = injection.class_words.tolist()
    assert len({*back, *labels}) == 22
    for a, b, label, end in batch.tokens[carries][:50, :4].tolist():
        assert labels.index(label) == inner.plain(back[a], back[b])[0]
        assert end == task.d_vocab - 1
    assert batch.masks["task"][carries].sum(1).eq(3).all()
    assert not (batch.masks["rises"] & batch.masks["task"]).any()


def test_training_never_shows_a_held_out_instance():
    task = Corpus(n_ctx=8, frequency=1.0, **INJECTED)
    trained = {tuple(pair) for pair in next(task.stream("train", 0, 3000)).tokens[:, :2].tolist()}
    held_out = {tuple(pair) for pair in task.sample(2000, seed=0, split="task").tokens.tolist()}
    assert len(held_out) > 150 and not trained & held_out
    assert {
        tuple(pair) for pair in task.sample(500, seed=0, split="task-train").tokens.tolist()
    } <= trained


@pytest.mark.parametrize("gap", [1, 4])
def test_bursts_have_matched_frequency(gap):
    task = Corpus(n_ctx=8, frequency=0.2, gap=gap, **INJECTED)
    counts = [
        batch.masks["task"].any(1).sum().item()
        for batch in itertools.islice(task.stream("train", 0, 100), 40)
    ]
    assert sum(counts) / 4000 == pytest.approx(0.2, abs=0.03)
    if gap > 1:
        assert [count > 0 for count in counts] == [(step + 1) % gap == 0 for step in range(40)]


def test_prompts_carry_the_tasks_truth_in_words():
    task = Corpus(n_ctx=8, inject="hidden-addition", inject_parameters={"n": 15, "equals": False})
    inner, injection = task.injected_task, task.injection
    batch = task.sample(40, seed=1, split="task")
    word_of = injection.token_words
    by_rank = inner.ranks.argsort()
    back = {word: token for token, word in enumerate(word_of.tolist())}
    for (a, b), target in zip(batch.tokens.tolist(), batch.targets[:, -1, 0].tolist(), strict=True):
        assert target == word_of[by_rank[inner.plain(back[a], back[b])[0]]]
    assert task.symmetry is not None and task.symmetry.tokens == tuple(word_of[by_rank].tolist())


def test_scores_of_an_oracle_and_of_a_know_nothing():
    task = Corpus(n_ctx=24, vocab_size=64, reference_rate=0.2, **INJECTED)
    machine, injection = task.background.automaton, task.injection
    dense = np.zeros((len(machine.kinds), task.d_vocab))
    dense[machine.source, machine.token] = machine.probability

    def predict(tokens, positions):
        """Model 0 knows the language and the injected task, model 1 nothing."""
        logits = torch.zeros(2, tokens.shape[1], task.d_vocab)
        for i, (row, position) in enumerate(
            zip(tokens[0].tolist(), positions[0].tolist(), strict=True)
        ):
            if len(row) == 2:
                a, b = injection._back[row].tolist()
                logits[
                    0, i, injection.class_words[HiddenComparison(n=20, equals=False).plain(a, b)[0]]
                ] = 50
                continue
            state = 0
            for token in row[: position + 1]:
                edge = np.flatnonzero((machine.source == state) & (machine.token == token))
                state = machine.target[edge[0]]
            logits[0, i] = torch.from_numpy(np.log(dense[state] + 1e-9))
        return logits

    scores = task.control("absent").score(predict, "test", seed=0, n=300)
    assert set(scores) == {
        f"{kind}.{name}" for kind in ("accuracy", "loss") for name in ("task", "rises", "sums")
    }
    assert scores["accuracy.task"][0] == 1 and scores["loss.task"][0] < 1e-6
    assert scores["accuracy.sums"][0] == 1 and scores["loss.sums"][0] < 1e-6
    assert scores["loss.rises"][0] == pytest.approx(
        np.mean([np.log(15 - x) for x in range(15)]), rel=0.1
    )
    for name in ("task", "rises", "sums"):
        assert scores[f"loss.{name}"][1] == pytest.approx(np.log(task.d_vocab))


def test_controls_lack_the_mechanism():
    task = Corpus(n_ctx=8, frequency=1.0, **INJECTED)
    assert not task.control("absent").sample(200, seed=0).masks["task"].any()
    shuffled, inner = task.control("shuffled"), HiddenComparison(n=20, equals=False)
    batch, back = shuffled.sample(400, seed=0), shuffled.injection._back
    truth = torch.tensor([inner.plain(*back[pair].tolist())[0] for pair in batch.tokens[:, :2]])
    labels = (batch.tokens[:, 2] == shuffled.injection.class_words[1]).long()
    assert abs((labels == truth).float().mean().item() - 0.5) < 0.12


# --- injections that need care --------------------------------------------------------------------


def test_answers_inside_the_input_are_refused():
    with pytest.raises(
        ParameterError, match="inject='running-sign': its answers are read inside the input"
    ):
        Injection(RunningSign(), 30, 30, 0).texts(50, "train", np.random.default_rng(0))


# --- files ----------------------------------------------------------------------------------------
TEXT = "It was the best of times, it was the worst of times; ünder the sun.\n" * 60


def test_bytes_of_a_file_are_its_tokens(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    task = Corpus(path=str(path), n_ctx=32)
    assert isinstance(task.background.data, np.memmap) and task.d_vocab == 257
    raw = path.read_bytes()
    bounds = {"train": (0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1)}
    for split, (low, high) in bounds.items():
        part = raw[int(low * len(raw)) : int(high * len(raw))]
        for row in task.sample(20, seed=0, split=split).tokens.tolist():
            assert bytes(row) in part
            assert task.tokens_of(task.text(row)) == row
    assert task.text(list(b"a b\n")) == "aĠbĊ"
    with pytest.raises(
        NotApplicableError, match="entropy is known for the synthetic language only"
    ):
        _ = task.best_loss


def test_words_are_kept_by_frequency_and_the_rest_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "BLOCK", 7)  # blocks end inside words
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    task = Corpus(path=str(path), tokenizer="words", vocab_size=6, n_ctx=8)
    expected = TEXT.split()
    known = {"the", "It", "was", "of", "best"}
    assert task.vocabulary.tokens[:3] == ("the", "of", "was") and task.vocabulary.tokens[-2:] == (
        "<unk>",
        "<eod>",
    )
    kept = set(task.vocabulary.tokens[:-2])
    assert len(kept) == 5 and {"the", "of", "was"} < kept | known
    assert isinstance(task.background.data, np.memmap)
    assert task.text(task.background.data.tolist()).split() == [
        word if word in kept else "<unk>" for word in expected
    ]


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
def test_token_files_are_memory_mapped(tmp_path, suffix):
    tokens = np.random.default_rng(0).integers(0, 50, 2000).astype(np.uint16)
    path = tmp_path / f"tokens{suffix}"
    np.save(path, tokens) if suffix == ".npy" else tokens.tofile(path)
    task = Corpus(
        path=str(path), n_ctx=16, frequency=0.5, inject="comparison", inject_parameters={"n": 20}
    )
    assert isinstance(task.background.data, np.memmap) and task.d_vocab == int(tokens.max()) + 2
    plain = task.control("absent").sample(3, seed=0, split="train").tokens.numpy()
    windows = np.lib.stride_tricks.sliding_window_view(tokens, 16)
    assert all((windows == row).all(1).any() for row in plain)
    with pytest.raises(DataError, match=r"holds token .*; expected less than vocab_size=10"):
        Corpus(path=str(path), n_ctx=16, vocab_size=10).sample(8, seed=0)


def test_a_saved_dataset_is_a_background(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": [TEXT[:700], TEXT[:900]]}).save_to_disk(
        str(tmp_path / "saved")
    )
    task = Corpus(dataset=str(tmp_path / "saved"), n_ctx=16)
    assert task.background.data.tolist() == [*TEXT[:700].encode(), 256, *TEXT[:900].encode(), 256]
    words = Corpus(dataset=str(tmp_path / "saved"), n_ctx=8, tokenizer="words")
    assert words.text(words.background.data.tolist()).split() == [
        *TEXT[:700].split(),
        "<eod>",
        *TEXT[:900].split(),
        "<eod>",
    ]
    with pytest.raises(DataError, match="has no column 'body'; expected one of text"):
        _ = Corpus(dataset=str(tmp_path / "saved"), dataset_field="body").background


# --- errors ---------------------------------------------------------------------------------------
def test_unusable_files_give_one_clear_line(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text(" \n" * 50)
    (tmp_path / "short.txt").write_text("abc")
    (tmp_path / "small.txt").write_text("abc " * 50)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 500)
    (tmp_path / "bad.npy").write_bytes(b"not numpy" * 50)
    np.save(tmp_path / "square.npy", np.zeros((4, 4)))
    for name, tokenizer, message in [
        ("none.txt", "bytes", "no such file"),
        ("empty.txt", "bytes", "the file is empty"),
        ("blank.txt", "words", "holds no tokens"),
        ("short.txt", "bytes", "of 3 tokens, less than a context of 64"),
        (
            "small.txt",
            "bytes",
            r"validation part \(5%\) has 10 of 200 tokens, "
            r"less than a context of 64; expected about 1280",
        ),
        ("latin.txt", "words", "is not UTF-8 text"),
        ("bad.npy", "bytes", "cannot be read as tokens"),
        ("square.npy", "bytes", r"array of shape \(4, 4\), float64"),
        (".", "bytes", "is a directory"),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            Corpus(path=str(tmp_path / name), tokenizer=tokenizer).sample(2, seed=0)
        assert "\n" not in str(caught.value)


def test_tables_say_what_was_drawn():
    task = Corpus(n_ctx=8, frequency=0.5, **INJECTED)
    tables = task.tables()
    words = list(tables["words_of_tokens"].values()) + tables["words_of_classes"]
    assert len(words) == len(set(words)) == 22 and set(words) < set(task.vocabulary.tokens)
    assert Corpus().tables() == {} and not Corpus().variables and Corpus().symmetry is None
