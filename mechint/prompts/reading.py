"""Reading a file of prompts: texts or token ids in, prompts and pairs of prompts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechint.errors import DataError, counted
from mechint.files import parse_json, read_bytes

ENDINGS = (".txt", ".jsonl")
FORMS = ({"text"}, {"prompt", "answer"}, {"prompt", "answer", "counterfactual"})


@dataclass(frozen=True)
class Example:
    """One prompt or text: its tokens, the token that is asked for after it (None of a text, whose
    own tokens are), and the line of the file that it stands in.
    """

    tokens: tuple[int, ...]
    answer: int | None
    line: int


class PromptFile:
    """The prompts of a file, each once, and the pairs among them.

    path: the file; tokenizer: None where the file holds token ids; d_vocab: tokens of the model.

    Raises:
        DataError: a file, line or token that cannot be used, in one line that names it.
    """

    def __init__(self, path: Path, tokenizer: Any, d_vocab: int) -> None:
        self.path, self.tokenizer, self.d_vocab = path, tokenizer, d_vocab
        self.where = str(path)
        self.examples: list[Example] = []
        self.pairs: dict[tuple[int, int], None] = {}
        self._places: dict[tuple[int, ...], int] = {}

    def read(self) -> PromptFile:
        """Add every line of the file."""
        for number, row in _rows(self.path):
            self.where = f"{self.path}, line {number}"
            self._add(number, row)
        if not self.examples:
            raise DataError(f"{self.path}: holds no prompts; expected one per line")
        return self

    def _add(self, number: int, row: Any) -> None:
        if not isinstance(row, Mapping) or set(row) not in FORMS:
            raise DataError(
                f'{self.where}: expected an object with "text", or with "prompt" and "answer" and, '
                'where it is one of a pair, "counterfactual"'
            )
        if "text" in row:
            tokens = self.encode(row["text"], "text")
            if len(tokens) < 2:
                raise DataError(f"{self.where}: the text is one token; expected at least 2")
            self._keep(Example(tuple(tokens), None, number))
            return
        base = self._keep(self._prompt(row, number))
        if "counterfactual" not in row:
            return
        other = row["counterfactual"]
        if not isinstance(other, Mapping) or set(other) != {"prompt", "answer"}:
            raise DataError(
                f'{self.where}: counterfactual: expected an object with "prompt" and "answer"'
            )
        self._pair(base, self._keep(self._prompt(other, number)))

    def _pair(self, base: int, other: int) -> None:
        a, b = self.examples[base], self.examples[other]
        if len(a.tokens) != len(b.tokens):
            raise DataError(
                f"{self.where}: the prompt has {counted(len(a.tokens), 'token')} and its "
                f"counterfactual {len(b.tokens)}; expected as many, so that positions can be "
                "patched"
            )
        if a.answer == b.answer:
            raise DataError(f"{self.where}: prompt and counterfactual have the same answer")
        self.pairs[base, other] = self.pairs[other, base] = None

    def _keep(self, one: Example) -> int:
        """Its index among the prompts; one that is there already counts once."""
        place = self._places.setdefault(one.tokens, len(self.examples))
        if place == len(self.examples):
            self.examples.append(one)
        first, known = self.examples[0], self.examples[place]
        if (first.answer is None) != (one.answer is None):
            raise DataError(f"{self.where}: texts and prompts are mixed; expected one of them")
        if known.answer != one.answer:
            raise DataError(
                f"{self.where}: repeats the prompt of line {known.line} with another answer"
            )
        return place

    def _prompt(self, row: Mapping[str, Any], number: int) -> Example:
        prompt, answer = row["prompt"], row["answer"]
        tokens = self.encode(prompt, "prompt")
        if isinstance(answer, str) and isinstance(prompt, str):
            after = self._after(prompt, tokens, answer)
        elif type(answer) is int:
            (after,) = self._checked([answer], "answer")
        else:
            raise DataError(f"{self.where}: answer: expected a text after a text, or a token id")
        return Example(tuple(tokens), after, number)

    def _after(self, prompt: str, tokens: list[int], answer: str) -> int:
        """The one token that `answer` is after the prompt."""
        whole = self.encode(prompt + answer, "answer")
        after = whole[len(tokens) :]
        if whole[: len(tokens)] != tokens or len(after) != 1:
            pieces = " + ".join(repr(self.tokenizer.decode([token])) for token in after)
            raise DataError(
                f"{self.where}: answer {answer[:40]!r}: after the prompt it is "
                f"{pieces[:80] or 'not a token'}; expected one whole token, with the space before "
                "it if there is one"
            )
        return after[0]

    def encode(self, value: Any, name: str) -> list[int]:
        """Token ids of a text, opened as the tokenizer opens texts; or the ids given."""
        if isinstance(value, list) and value and all(type(one) is int for one in value):
            return self._checked(value, name)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{self.where}: {name}: expected a text or a list of token ids")
        if self.tokenizer is None:
            raise DataError(
                f"{self.where}: {name}: a text needs a tokenizer, and the model comes without one; "
                "put its tokenizer.json beside it, or give token ids in a .jsonl file"
            )
        opening = self.tokenizer.encode("")[:1]
        opening = opening if opening == [self.tokenizer.bos_token_id] else []
        tokens = self.tokenizer.encode(value, add_special_tokens=False)
        return self._checked([*opening, *tokens], name)

    def _checked(self, tokens: list[int], name: str) -> list[int]:
        for token in tokens:
            if not 0 <= token < self.d_vocab:
                raise DataError(
                    f"{self.where}: {name}: token {token}: expected 0 to {self.d_vocab - 1}"
                )
        return tokens


def _rows(path: Path) -> list[tuple[int, Any]]:
    """(line number, what it holds) of every line that is not blank."""
    if path.suffix not in ENDINGS:
        raise DataError(f"{path}: expected a file of prompts, named .txt or .jsonl")
    try:
        text = read_bytes(path, error=DataError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text: {error.reason}") from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path.suffix == ".txt":
        return [(number, {"text": line.strip()}) for number, line in lines]
    return [
        (number, parse_json(line, f"{path}, line {number}", DataError)) for number, line in lines
    ]
