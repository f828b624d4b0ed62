"""Prompts of one's own on a language model of a local directory: what is read, what is refused, and
what probes say of a small model that knows six capitals.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mechint
import probes
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, DataError, NotApplicableError
from mechint.models.transformer import HookedTransformer
from mechint.planted import modular_addition
from mechint.prompts import Prompts
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.task import IGNORE
from probes._das.search import count_pairs
from tests.cli.conftest import invoke

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Austria": "Vienna",
    "Poland": "Warsaw",
    "Greece": "Athens",
}
WORDS = ["[UNK]", "the", "capital", "of", "is", *CAPITALS, *CAPITALS.values()]


def sentence(country: str) -> str:
    return f"the capital of {country} is"


def save_tokenizer(folder: Path) -> Any:
    """A tokenizer of whole words in `folder`, as transformers writes it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    table = {word: index for index, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.WordPiece(prefix="##")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of two layers with its tokenizer, trained on six sentences until it knows them."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = save_tokenizer(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shape: dict[str, Any] = {"n_positions": 12, "n_embd": 32, "n_layer": 2, "n_head": 2}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS) + 3, **shape)).eval()
        texts = [f"{sentence(country)} {city}" for country, city in CAPITALS.items()]
        tokens = torch.tensor(tokenizer(texts)["input_ids"])
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(150):
            optimizer.zero_grad()
            model(tokens, labels=tokens).loss.backward()
            optimizer.step()
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "prompts.txt"
    lines = [f"{sentence(country)} {city}" for country, city in CAPITALS.items()]
    file.write_text("\n\n".join([*lines, "the capital of"]) + "\r\n", encoding="utf-8-sig")
    return file


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every country beside the next one."""
    file = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    names = list(CAPITALS)
    rows = [
        row(country) | {"counterfactual": row(other)}
        for country, other in zip(names, names[1:] + names[:1], strict=True)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def row(country: str) -> dict[str, str]:
    return {"prompt": sentence(country), "answer": f" {CAPITALS[country]}"}


# --- what is read ---------------------------------------------------------------------------------
def test_every_token_of_a_text_is_asked_for(gpt2: Path, texts: Path) -> None:
    subject = mechint.load(gpt2, data=texts)
    task = subject.task
    assert isinstance(task, Prompts) and len(subject.data) == 7 and task.n_ctx == 6
    assert subject.data.lengths is not None and subject.data.lengths.tolist() == [6] * 6 + [3]
    words = task.vocabulary.tokens
    assert len(words) == len(WORDS) + 3 and words[: len(WORDS)] == tuple(WORDS)
    for index in range(6):
        tokens, targets = subject.data.tokens[index], subject.data.targets[index, :, 0]
        assert targets[:-1].tolist() == tokens[1:].tolist() and targets[-1] == IGNORE
    assert [words[int(t)] for t in subject.targets[:6, 0]] == list(CAPITALS.values())
    assert (subject.data.targets[6, 2:] == IGNORE).all()
    for tokens, targets in zip(subject.data.tokens, subject.data.targets, strict=True):
        assert task.brute_force(tokens.tolist()) == targets.tolist()


def test_the_answer_is_what_the_model_itself_says(gpt2: Path, pairs: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    model = AutoModelForCausalLM.from_pretrained(gpt2).eval()
    subject = mechint.load(gpt2, data=pairs)
    assert subject.task is not None and subject.task.chance["next token"].accuracy == 1 / 6
    for index, country in enumerate(CAPITALS):
        with torch.no_grad():
            said = model(torch.tensor([tokenizer.encode(sentence(country))])).logits[0, -1]
        torch.testing.assert_close(subject.logits()[index], said, rtol=1e-4, atol=1e-4)
        assert tokenizer.decode([int(said.argmax())]) == CAPITALS[country]
    assert subject.accuracy() == {"next token": 1.0}


def test_token_ids_need_no_tokenizer(gpt2: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((gpt2 / name).read_bytes())
    rows = [{"prompt": [1, 2, 3, 5, 4], "answer": 11}, {"prompt": [1, 2], "answer": 3}]
    subject = mechint.load(bare, data=rows)
    assert subject.accuracy() == {"next token": 1.0}
    assert subject.answer_positions.tolist() == [4, 1]


# --- what probes say ------------------------------------------------------------------------------
def test_patching_finds_where_the_country_is_read(gpt2: Path, pairs: Path) -> None:
    """The country alone differs: before block 0 its position is everything; at the end the last."""
    result = probes.run("patching", mechint.load(gpt2, data=pairs), components=("resid_pre",))
    rows = result.tables["components"].columns
    found = {
        (layer, pos): share
        for layer, pos, share in zip(rows["layer"], rows["pos"], rows["recovered"], strict=True)
    }
    assert result.metrics["pairs"] == 12 and result.metrics["variable"] == "prompt"
    assert found[0, 3] == pytest.approx(1.0, abs=1e-4)
    assert all(found[0, pos] == pytest.approx(0.0, abs=1e-4) for pos in (0, 1, 2, 4))
    # a country's position and the last one carry it between them, the words before carry nothing
    assert all(found[1, pos] == pytest.approx(0.0, abs=1e-4) for pos in (0, 1, 2))
    assert found[1, 3] + found[1, 4] > 0.5


def test_which_prompt_it_is_cannot_be_learned_from_other_prompts(gpt2: Path, pairs: Path) -> None:
    with pytest.raises(NotApplicableError, match="every value of 'prompt' is there once"):
        probes.run("linear", mechint.load(gpt2, data=pairs))


@pytest.mark.full
def test_a_page_of_prompts(gpt2: Path, pairs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = ("--probe", "attention,lens,norms,patching", "--set", "norms.null_models=19")
    result = invoke("analyze", gpt2, "--data", pairs, *asked, "--out", page)
    assert result.exit_code == 0, result.output
    assert "chance 50.0%" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert "Prompts of pairs.jsonl" in text and "capital of France is" in text
    assert f"mechint analyze {gpt2} {' '.join(asked[:2])} --data {pairs} --set" in text
    assert not (gpt2 / "probes").exists(), "a model of others' is left as it is"


def test_chance_of_one_prompt_is_zero(gpt2: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(row("France")))
    assert str(mechint.load(gpt2, data=file).chance["next token"].loss) == "0.0"
    result = invoke("analyze", gpt2, "--data", file, "--probe", "attention")
    assert "nats (chance 0)" in result.stdout, result.output


# --- pairs of prompts -----------------------------------------------------------------------------
def test_no_prompt_is_its_own_source(gpt2: Path, pairs: Path) -> None:
    """Of six prompts every ordered pair of two is drawn once, and there is no other."""
    subject = mechint.load(gpt2, data=pairs)
    variable = choose_variable(subject.task, "prompt")
    drawn = draw(subject, variable, 30, 0)
    both = (variable.value_of(tokens).tolist() for tokens in (drawn.base, drawn.source))
    assert sorted(zip(*both, strict=True)) == list(itertools.permutations(range(6), 2))
    assert count_pairs(6, variable) == 30


def test_das_uses_the_pairs_that_a_file_makes(gpt2: Path, pairs: Path) -> None:
    """Of six prompts four are trained on and two held out: twelve pairs and two."""
    subject = mechint.load(gpt2, data=pairs)
    few: dict[str, Any] = {"steps": 2, "dimensions": (1,), "null_samples": 9, "control_seeds": 1}
    result = probes.run("das", subject, **few)
    assert (result.metrics["pairs_trained_on"], result.metrics["pairs_held_out"]) == (12, 2)
    assert result.verdict == "unclear"


def test_a_model_that_answers_wrongly_needs_other_prompts(gpt2: Path) -> None:
    """A user's language model is not trained further."""
    names = list(CAPITALS)
    wrong = [
        {"prompt": sentence(one), "answer": f" {CAPITALS[other]}"}
        for pair in zip(names[::2], names[1::2], strict=True)
        for one, other in (pair, pair[::-1])
    ]
    rows = [one | {"counterfactual": two} for one, two in zip(wrong[::2], wrong[1::2], strict=True)]
    subject = mechint.load(gpt2, data=rows)
    small = {"pairs": 8, "held_out": 2}
    for name, settings in (("patching", {}), ("attribution", {}), ("das", small)):
        with pytest.raises(
            DataError, match="give prompts that the model answers correctly, or set only_correct"
        ):
            probes.run(name, subject, **settings)


def test_what_fills_short_prompts_is_a_token_of_the_model() -> None:
    """One that makes no two prompts the same, where every token ends a prompt."""
    given = [([0, 1, 0], 1), ([0, 1], 2), ([1, 2], 0)]
    rows = [{"prompt": prompt, "answer": answer} for prompt, answer in given]
    task = Prompts.of(rows, None, 3, 3)
    data = task.examples()
    assert int(data.tokens.max()) < 3 and len(data.tokens.unique(dim=0)) == 3
    assert data.lengths is not None
    for index, (prompt, answer) in enumerate(given):
        assert data.tokens[index, : len(prompt)].tolist() == prompt
        assert data.lengths[index] == len(prompt)
        assert data.targets[index, len(prompt) - 1] == answer
        again = task.batch_of(data.tokens[index : index + 1])
        assert torch.equal(again.targets, data.targets[index : index + 1])
    rows = [{"prompt": [0] * length, "answer": 0} for length in (1, 2)]
    with pytest.raises(DataError, match="1 token fills the shorter prompts, two become the same"):
        Prompts.of(rows, None, 1, 2).examples()


def test_prompts_without_an_answer_have_the_models_own(gpt2: Path) -> None:
    """At the last position, or where it is asked."""
    rows = [[1, 2, 3], [2, 3, 4, 5], [5, 4, 3]]
    open_ = [{"prompt": row, "at": 1} if row[0] == 5 else {"prompt": row} for row in rows]
    subject = mechint.load(gpt2, data=open_)
    assert subject.answer_positions.tolist() == [2, 3, 1]
    for index, row in enumerate(rows):
        logits = subject.model(torch.tensor([row]))[0]
        said = int(logits[subject.answer_positions[index]].argmax())
        assert subject.targets[index].tolist() == [said]
    assert subject.accuracy() == {"next token": 1.0}


def test_nobody_called_the_models_own_answer_right() -> None:
    """What is measured of it is said of its first choice, of a given answer as of any."""
    made = modular_addition(p=7, frequencies=(1, 2)).subject
    rows, right = made.data.tokens.tolist(), made.targets[:, 0].tolist()
    given = [{"prompt": row, "answer": one} for row, one in zip(rows, right, strict=True)]
    for data, own in (([{"prompt": row} for row in rows], True), (given, False)):
        account = mechint.analyze(
            mechint.load(made.model, data=data), "lens", "ablation", "attribution"
        )
        assert bool(account.quality) != own and ("first choices" in account.title) == own
        said = [one.headline for _, one in account.findings("yes")]
        assert len(said) == 3 and all(("first choice" in one) == own for one in said)


@pytest.mark.parametrize("name", ["ablation", "attribution"])
def test_beginnings_of_one_text_have_nothing_that_a_mean_replaces(name: str) -> None:
    """At each position every component is the same in all of them, whatever the answer needs."""
    network = HookedTransformer(ModelConfig(d_model=16, n_heads=1, d_vocab=8, n_ctx=40), seed=0)
    text = torch.randint(7, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    data = [{"prompt": text[:n]} for n in range(2, 40)]
    (finding,) = probes.run(name, mechint.load(network, data=data)).findings
    assert finding.verdict == "unclear" and "nothing is replaced" in finding.reason


def test_prompts_for_a_model_that_answers_with_classes() -> None:
    """A model that was trained on a task is asked about prompts in its place."""
    made = modular_addition(p=7, frequencies=(1, 2)).subject
    tokens = made.data.tokens[:20]
    subject = mechint.load(made.model, data=[{"prompt": row} for row in tokens.tolist()])
    assert (subject.task.name, subject.task.d_vocab_out) == ("prompts", 7)
    assert torch.equal(subject.targets, made.targets[:20])


# --- what is refused ------------------------------------------------------------------------------
BAD = {
    "a.csv": ("x", "expected a file of prompts, named .txt or .jsonl"),
    "empty.txt": ("\n\n", "holds no prompts"),
    "binary.txt": (b"\xff\xfe\x00", "is not UTF-8 text"),
    "one.txt": ("the", "line 1: the text is one token"),
    "long.txt": ("the " * 13, "line 1: 13 tokens; the model reads at most 12"),
    "broken.jsonl": ('{"text": "the capital"}\n{"text": ', "line 2: cannot be read as JSON"),
    "shape.jsonl": ('{"prompt": "the", "label": " is"}', 'line 1: expected an object with "text"'),
    "list.jsonl": ("[1, 2]", 'line 1: expected an object with "text"'),
    "kind.jsonl": ('{"prompt": 3, "answer": " is"}', "prompt: expected a text or a list of token"),
    "nothing.jsonl": ('{"prompt": "the", "answer": null}', "answer: expected a text after a text"),
    "two.jsonl": (
        '{"prompt": "the", "answer": " capital of"}',
        "answer ' capital of': after the prompt it is 'capital' + 'of'; expected one whole token",
    ),
    "range.jsonl": ('{"prompt": [1, 99], "answer": 2}', "prompt: token 99: expected 0 to 19"),
    "mixed.jsonl": (
        '{"text": "the capital"}\n{"prompt": "the", "answer": " is"}',
        "line 2: texts and prompts are mixed",
    ),
    "twice.jsonl": (
        '{"prompt": "the", "answer": " is"}\n{"prompt": "the", "answer": " of"}',
        "line 1 with another answer",
    ),
    "lengths.jsonl": (
        '{"prompt": "the", "answer": " is", '
        '"counterfactual": {"prompt": "the capital", "answer": " of"}}',
        "the prompt has 1 token and its counterfactual 2; expected as many",
    ),
    "same.jsonl": (
        '{"prompt": "the", "answer": " is", "counterfactual": {"prompt": "of", "answer": " is"}}',
        "prompt and counterfactual have the same answer",
    ),
    "half.jsonl": ('{"prompt": "the \\ud83d", "answer": " is"}', "half of a surrogate pair"),
    "none.jsonl": ('{"prompt": "the", "answer": []}', "answer: 0 right answers"),
    "alone.jsonl": (
        '{"prompt": "the", "answer": [" is", " of"]}',
        "a prompt with a counterfactual",
    ),
    "longer.jsonl": (
        '{"prompt": "the", "answer": [" is", " is of"], '
        '"counterfactual": {"prompt": "of", "answer": " of"}}',
        "2 right answers, the longest of 2 tokens; expected one, or several of one token each",
    ),
    "begins.jsonl": (
        '{"prompt": "the", "answer": " is", '
        '"counterfactual": {"prompt": "of", "answer": " is of"}}',
        "the answer has 1 token and the counterfactual's 2; expected as many",
    ),
    "shared.jsonl": (
        '{"prompt": "the", "answer": [" is", " the"], '
        '"counterfactual": {"prompt": "of", "answer": [" is", " of"]}}',
        "prompt and counterfactual have the same answer",
    ),
    "partner.jsonl": (
        '{"prompt": "the", "answer": " is", "counterfactual": "of"}',
        'counterfactual: expected an object with "prompt" and "answer"',
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line(name: str, gpt2: Path, tmp_path: Path) -> None:
    content, expected = BAD[name]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    tokenizer = str(gpt2)
    with pytest.raises(DataError) as error:
        made = Prompts.of(file, Path(tokenizer), len(WORDS) + 3, 12)
        assert made.prompts
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_more_prompts_than_are_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.prompts.reading.MAX_PROMPTS", 3)
    file = tmp_path / "many.jsonl"
    file.write_text('{"prompt": [1, 2]}\n{"prompt": [2, 1]}\n{"prompt": [1, 1]}\n')
    assert len(Prompts.of(file, None, 5, 12).prompts) == 3
    file.write_text(file.read_text() + '{"prompt": [2, 2]}\n')
    with pytest.raises(DataError, match="more than 3 prompts"):
        Prompts.of(file, None, 5, 12).prompts  # noqa: B018


def test_the_command_refuses_in_one_line(gpt2: Path, texts: Path, tmp_path: Path) -> None:
    """A missing file, a text without a tokenizer, a task beside prompts."""
    ours = mechint.example("maximum.pt")
    cases = [
        ((gpt2, "--data", tmp_path / "no.txt"), "no.txt: there is no such file"),
        ((ours, "--data", texts), "a text needs a tokenizer"),
        (
            (ours, "--data", texts, "--task", "modular-arithmetic"),
            "asked about a task and about prompts",
        ),
        ((gpt2, "--data", texts, "--probe", "patching"), "counterfactual"),
    ]
    for arguments, expected in cases:
        result = invoke("analyze", *arguments)
        (line,) = result.stderr.splitlines()
        assert result.exit_code == 2 and expected in line, (arguments, result.stderr)


def test_a_directory_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a b")
    with pytest.raises(CheckpointError, match="no tokenizer: expected tokenizer"):
        assert Prompts(path=str(file), tokenizer=str(tmp_path)).prompts
