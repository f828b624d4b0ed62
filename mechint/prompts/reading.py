"""Prompts from a file or a list: texts or token ids in, prompts and pairs of prompts out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechint.errors import DataError, counted
from mechint.models.foreign.local import opening_of
from mechint.system.files import parse_json, read_bytes

ENDINGS = (".txt", ".jsonl")
OPTIONAL = {"answer", "counterfactual", "at", "variables"}
"""Keys that a prompt may have beside itself."""

Answer = tuple[tuple[int, ...], ...]
"""Tokens of every text that is right: several of one token, or one of several."""
MAX_PROMPTS = 100_000
"""Lines of a file of prompts, or items of a list."""


@dataclass(frozen=True)
class Example:
    """One prompt or text: its tokens, the token that is asked for after it, or behind all tokens
    the number of an answer among `PromptReader.answers` (None of a text, whose own tokens are asked
    for, and of a prompt that is `open` until the model's own answer is taken), the
    number of its line or item, the answer with a space before it where that is one token too (None
    where it is not), the position that answers, the last one when None, and the values of its
    causal variables by name.
    """

    tokens: tuple[int, ...]
    answer: int | None
    line: int
    spaced: int | None = None
    at: int | None = None
    open: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    right: Answer = ()


class PromptReader:
    """The prompts of a file or a list, each once, and the pairs among them.

    path: the file; text: the prompts themselves as JSON lines, in place of a file; tokenizer: None
    where token ids are given; d_vocab: tokens of the model; prepend_bos: whether every text begins
    with the tokenizer's BOS, as its own ``encode`` does when None; d_vocab_out: classes that it
    answers with, its tokens when None.

    Raises:
        DataError: a file, line or token that cannot be used, in one line that names it.
    """

    def __init__(
        self,
        path: Path,
        tokenizer: Any,
        d_vocab: int,
        text: str | None = None,
        prepend_bos: bool | None = None,
        d_vocab_out: int | None = None,
    ) -> None:
        self.path, self.text = path, text
        self.d_vocab_out = d_vocab if d_vocab_out is None else d_vocab_out
        self.tokenizer, self.d_vocab, self.prepend_bos = tokenizer, d_vocab, prepend_bos
        self.source = str(path) if text is None else "data"
        self.where = self.source
        self.examples: list[Example] = []
        self.pairs: dict[tuple[int, int], None] = {}
        self.answers: dict[Answer, int] = {}
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, number: int) -> str:
        """The line or item `number`, in words."""
        return f"{self.source}, {'line' if self.text is None else 'item'} {number}"

    def read(self) -> PromptReader:
        """Add every line or item."""
        for number, row in _rows(self.path) if self.text is None else _items(self.text):
            if number > MAX_PROMPTS:
                raise DataError(
                    f"{self.source}: holds more than {MAX_PROMPTS:,} prompts; give so many or fewer"
                )
            self.where = self.place(number)
            self._add(number, row)
        if not self.examples:
            raise DataError(f"{self.source}: holds no prompts; expected one per line")
        return self

    def _add(self, number: int, row: Any) -> None:
        names = set(row) if isinstance(row, Mapping) else set[str]()
        if names != {"text"} and not ({"prompt"} <= names <= {"prompt", *OPTIONAL}):
            raise DataError(
                f'{self.where}: expected an object with "text", or with "prompt" and, where they '
                'are known, "answer", "at", "variables" and "counterfactual"'
            )
        if "text" in row:
            tokens = self.encode(row["text"], "text")
            if len(tokens) < 2:
                raise DataError(f"{self.where}: the text is one token; expected at least 2")
            self._keep(Example(tuple(tokens), None, number))
            return
        base = self._keep(self._prompt(row, number, paired="counterfactual" in row))
        if "counterfactual" not in row:
            return
        other = row["counterfactual"]
        if self.examples[base].open:
            raise DataError(f'{self.where}: a prompt with a counterfactual needs an "answer"')
        if not isinstance(other, Mapping) or set(other) - {"variables"} != {"prompt", "answer"}:
            raise DataError(
                f'{self.where}: counterfactual: expected an object with "prompt" and "answer"'
            )
        self._pair(base, self._keep(self._prompt(other, number, paired=True)))

    def _pair(self, base: int, other: int) -> None:
        a, b = self.examples[base], self.examples[other]
        if len(a.tokens) != len(b.tokens):
            raise DataError(
                f"{self.where}: the prompt has {counted(len(a.tokens), 'token')} and its "
                f"counterfactual {len(b.tokens)}; expected as many, so that positions can be "
                "patched"
            )
        if {*a.right} & {*b.right}:
            raise DataError(f"{self.where}: prompt and counterfactual have the same answer")
        own, others = (len(one.right[0]) for one in (a, b))
        if own != others:
            raise DataError(
                f"{self.where}: the answer has {counted(own, 'token')} and the counterfactual's "
                f"{others}; expected as many, so that they can be compared"
            )
        self.pairs[base, other] = self.pairs[other, base] = None

    def _keep(self, one: Example) -> int:
        """Its index among the prompts; one that is there already counts once."""
        place = self._places.setdefault(one.tokens, len(self.examples))
        if place == len(self.examples):
            self.examples.append(one)
        first, known = self.examples[0], self.examples[place]
        if (first.answer is None and not first.open) != (one.answer is None and not one.open):
            raise DataError(f"{self.where}: texts and prompts are mixed; expected one of them")
        if known.answer != one.answer:
            raise DataError(
                f"{self.where}: repeats the prompt of {self.place(known.line)} with another answer"
            )
        return place

    def _prompt(self, row: Mapping[str, Any], number: int, *, paired: bool) -> Example:
        prompt, answer = row["prompt"], row.get("answer")
        tokens = self.encode(prompt, "prompt")
        at, spaced = row.get("at"), None
        if at is not None and not (type(at) is int and -len(tokens) <= at < len(tokens)):
            raise DataError(
                f"{self.where}: at: {at!r}: expected a position, 0 to {len(tokens) - 1}"
            )
        at = None if at is None else at % len(tokens)
        if "answer" not in row:
            named = self._variables(row)
            return Example(tuple(tokens), None, number, at=at, open=True, variables=named)
        given = answer if isinstance(answer, list) else [answer]
        right = tuple(sorted({self._answer(prompt, tokens, one, paired) for one in given}))
        longest = max(map(len, right), default=0)
        if not longest or (len(right) > 1 and (longest > 1 or not paired)):
            raise DataError(
                f"{self.where}: answer: {counted(len(right), 'right answer')}, the longest of "
                f"{counted(longest, 'token')}; expected one, or several of one token each in a "
                "prompt with a counterfactual"
            )
        if isinstance(answer, str):
            spaced = self._spaced(prompt, tokens, answer)
        after = min(right)[0]
        if len(right) > 1 or longest > 1:
            after = self.answers.setdefault(right, self.d_vocab_out + len(self.answers))
        named = self._variables(row)
        return Example(tuple(tokens), after, number, spaced, at, variables=named, right=right)

    def _answer(self, prompt: Any, tokens: list[int], answer: Any, paired: bool) -> tuple[int, ...]:
        """Tokens of one right answer; several only of pairs, and where a space is not missing."""
        if isinstance(answer, str) and isinstance(prompt, str):
            after = self._after(prompt, tokens, answer)
            several = paired and self._spaced(prompt, tokens, answer) is None
            if not after or (len(after) > 1 and not several):
                pieces = " + ".join(repr(self.tokenizer.decode([token])) for token in after)
                raise DataError(
                    f"{self.where}: answer {answer[:40]!r}: after the prompt it is "
                    f"{pieces[:80] or 'not a token'}; expected one whole token, with the space "
                    "before it if there is one"
                )
            return after
        if isinstance(prompt, str) and type(answer) is int and self.d_vocab_out == self.d_vocab:
            raise DataError(
                f"{self.where}: answer: the number {answer} after a text; expected a text "
                f'("answer": "{answer}"), or token ids for both'
            )
        if paired and isinstance(answer, list) and answer and not isinstance(prompt, str):
            return tuple(self.encode(answer, "answer"))
        if type(answer) is not int:
            raise DataError(f"{self.where}: answer: expected a text after a text, or a token id")
        if not 0 <= answer < self.d_vocab_out:
            raise DataError(
                f"{self.where}: answer: token {answer}: expected 0 to {self.d_vocab_out - 1}"
            )
        return (answer,)

    def _variables(self, row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Names and values of the prompt's variables."""
        given = row.get("variables", {})
        plain = isinstance(given, Mapping) and all(
            isinstance(name, str) and isinstance(value, str | int) for name, value in given.items()
        )
        if not plain:
            raise DataError(f"{self.where}: variables: expected names and values, texts or numbers")
        if "prompt" in given:
            raise DataError(f'{self.where}: variables: "prompt" is the prompt itself; rename it')
        return tuple(sorted((name, str(value)) for name, value in given.items()))

    def _after(self, prompt: str, tokens: list[int], answer: str) -> tuple[int, ...]:
        """The tokens that `answer` is after the prompt of `tokens`; none where these change."""
        whole = self.encode(prompt + answer, "answer")
        return tuple(whole[len(tokens) :]) if whole[: len(tokens)] == tokens else ()

    def _spaced(self, prompt: str, tokens: list[int], answer: str) -> int | None:
        """The one token that the answer is with a space before it, where it has none."""
        bare = not (answer[:1].isspace() or prompt[-1:].isspace())
        after = self._after(prompt, tokens, f" {answer}") if bare else ()
        return after[0] if len(after) == 1 else None

    def encode(self, value: Any, name: str) -> list[int]:
        """Token ids of a text, with BOS as `prepend_bos` says; or the ids given."""
        if isinstance(value, list) and value and all(type(one) is int for one in value):
            return self._checked(value, name)
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{self.where}: {name}: expected a text or a list of token ids")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise DataError(f"{self.where}: {name}: half of a surrogate pair is no text")
        if self.tokenizer is None:
            raise DataError(
                f"{self.where}: {name}: a text needs a tokenizer, and the model comes without one; "
                "put its tokenizer.json beside it, or give token ids in a .jsonl file"
            )
        opening = opening_of(self.tokenizer, self.prepend_bos)
        tokens = self.tokenizer.encode(value, add_special_tokens=False)
        return self._checked([*opening, *tokens], name)

    def _checked(self, tokens: list[int], name: str) -> list[int]:
        for token in tokens:
            if not 0 <= token < self.d_vocab:
                raise DataError(
                    f"{self.where}: {name}: token {token}: expected 0 to {self.d_vocab - 1}"
                )
        return tokens


def rows_text(data: Sequence[Any]) -> str:
    """A list of texts, lists of token ids or mappings as JSON lines.

    >>> rows_text(["a b", [1, 2]])
    '{"text": "a b"}\\n{"text": [1, 2]}'

    Raises:
        DataError: an item of another kind.
    """
    lines = []
    for number, item in enumerate(data, 1):
        row = dict(item) if isinstance(item, Mapping) else {"text": item}
        try:
            lines.append(json.dumps(row, default=lambda value: value.tolist()))
        except (TypeError, ValueError, AttributeError) as error:
            kind = type(item).__name__
            raise DataError(f"data, item {number}: a {kind}, expected a text or a dict") from error
    return "\n".join(lines)


def _items(text: str) -> list[tuple[int, Any]]:
    return [
        (number, parse_json(line, f"data, item {number}", DataError))
        for number, line in enumerate(text.split("\n"), 1)
        if line
    ]


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number, what it holds) of every line that is not blank."""
    if path.suffix not in ENDINGS:
        raise DataError(f"{path}: expected a file of prompts, named .txt or .jsonl")
    try:
        text = read_bytes(path, error=DataError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text: {error.reason}") from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        texts = path.suffix == ".txt"
        given = line.strip() if texts else parse_json(line, f"{path}, line {number}", DataError)
        yield number, {"text": given} if texts else given


# --- names of tokens -----------------------------------------------------------------------------
REPLACEMENT = "\ufffd"
"""The character that stands in decoded text for bytes that are no character."""


def token_names(tokenizer: Any) -> list[str]:
    """One name per token id: its text, and where that is no text or that of several tokens, the
    tokenizer's own spelling, with its number where several are spelled alike.
    """
    ids = list(range(len(tokenizer)))
    texts = tokenizer.batch_decode([[index] for index in ids])
    raw = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    names = [own if REPLACEMENT in text else text for text, own in zip(texts, raw, strict=True)]
    for other in (raw, [f"{name} #{index}" for name, index in zip(names, ids, strict=True)]):
        count = Counter(names)
        names = [one if count[name] > 1 else name for name, one in zip(names, other, strict=True)]
    return names
