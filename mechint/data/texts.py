"""Tokens of text files, of files of token numbers, and of Hugging Face data sets.

Files are memory-mapped: bytes and token files as they lie on disk, words and datasets through a
temporary file of token numbers that is written once, a block at a time. No source is ever held in
memory as a whole.
"""

from __future__ import annotations

import socket
import tempfile
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from mechint.errors import DataError

BLOCK = 1 << 20
MAX_VOCABULARY = 1 << 21
"""Tokens of a file of token numbers, each of which has a word."""
SHARES = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}
"""Parts of a file, as a range of its tokens."""

BYTES = tuple(chr(i) if 33 <= i < 127 else chr(256 + i) for i in range(256))
"""One visible character a byte: itself where ASCII prints it, U+0100 + byte where not (a space is
Ġ).
"""


@dataclass(frozen=True, eq=False)
class TextTokens:
    """Windows at random places of an array of tokens on disk, each split in a part of its own."""

    data: np.ndarray
    words: tuple[str, ...]
    separator: str
    origin: str
    limit: int
    """Tokens below it may stand in the data."""

    def part(self, split: str) -> tuple[int, int]:
        """First token of the split, and the one after its last."""
        low, high = SHARES[split]
        return int(low * len(self.data)), int(high * len(self.data))

    def check(self, length: int) -> None:
        """DataError unless every split holds a text of `length` tokens."""
        for split in SHARES:
            low, high = self.part(split)
            if high - low < length:
                share = round(100 * (SHARES[split][1] - SHARES[split][0]))
                need = -(-100 * length // share)
                raise DataError(
                    f"{self.origin}: its {split} part ({share}%) has {high - low} of "
                    f"{len(self.data)} tokens, less than a context of {length}; "
                    f"expected about {need} tokens: give a longer file or a smaller n_ctx"
                )

    def draw(
        self, n: int, length: int, split: str, generator: np.random.Generator
    ) -> Int[np.ndarray, "n length"]:
        """`n` texts of `length` tokens, at random places of the split."""
        low, high = self.part(split)
        starts = generator.integers(low, high - length + 1, n)
        tokens = self.data[starts[:, None] + np.arange(length)].astype(np.int64)
        if tokens.size and int(tokens.max()) >= self.limit:
            raise DataError(
                f"{self.origin}: holds token {int(tokens.max())}; expected less than "
                f"vocab_size={self.limit}"
            )
        return tokens


# --- sources --------------------------------------------------------------------------------------
def from_file(path: str, tokenizer: str, vocab_size: int | None, label: str = "data") -> TextTokens:
    """Tokens of a text file, or of a ``.npy`` or ``.bin`` (uint16) file of token numbers.

    tokenizer: "bytes" or "words"; vocab_size: words that are kept; label: what begins an error.

    Raises:
        DataError: no such file, an empty one, or one that holds no tokens.
    """
    origin = f"{label}: path={path}"
    file = Path(path)
    if not file.is_file():
        raise DataError(
            f"{origin}: {'is a directory' if file.is_dir() else 'no such file'}; expected a "
            "text, .npy or .bin file"
        )
    if file.stat().st_size == 0:
        raise DataError(f"{origin}: the file is empty")
    if file.suffix in (".npy", ".bin"):
        return _token_file(file, vocab_size, origin)
    if tokenizer == "bytes":
        return TextTokens(np.memmap(file, np.uint8, "r"), (*BYTES, "␄"), "", origin, 257)
    return _by_words(lambda: _file_words(file, origin), vocab_size, origin)


def _token_file(file: Path, vocab_size: int | None, origin: str) -> TextTokens:
    try:
        data = (
            np.load(file, mmap_mode="r", allow_pickle=False)
            if file.suffix == ".npy"
            else np.memmap(file, np.uint16, "r")
        )
    except (ValueError, OSError, EOFError, OverflowError) as error:  # the last of a negative size
        raise DataError(f"{origin}: cannot be read as tokens: {error}") from error
    if data.ndim != 1 or data.dtype.kind not in "iu" or not len(data):
        raise DataError(
            f"{origin}: holds an array of shape {data.shape}, {data.dtype}; expected one row "
            "of integers"
        )
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    if (least := min(int(block.min()) for block in blocks)) < 0:
        raise DataError(f"{origin}: holds the negative token {least}")
    size = vocab_size or 1 + max(int(block.max()) for block in blocks)
    if size > MAX_VOCABULARY:
        raise DataError(
            f"{origin}: {f'vocab_size={size}' if vocab_size else f'holds token {size - 1}'}; "
            f"expected tokens below {MAX_VOCABULARY:,}"
        )
    return TextTokens(data, (*(f"<{token}>" for token in range(size)), "<eod>"), " ", origin, size)


def from_dataset(
    name: str, field: str, tokenizer: str, vocab_size: int | None, label: str = "data"
) -> TextTokens:
    """Tokens of the text column `field` of a Hugging Face dataset: a name on the hub, or a local
    directory.

    Raises:
        DataError: the package `datasets` is not installed, the dataset cannot be read, or has no
            such column.
    """
    origin = f"{label}: dataset={name}"
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{origin}: the package datasets is not installed; install it, or give a file as path"
        ) from error

    if not Path(name).exists() and not _hub_answers():
        raise DataError(
            f"{origin}: cannot be opened: there is no such directory, and the hub of data sets "
            "cannot be reached"
        )

    def documents() -> Iterator[str]:
        try:
            saved = (Path(name) / "state.json").is_file()
            rows: Any = (
                datasets.load_from_disk(name)
                if saved
                else datasets.load_dataset(name, split="train", streaming=True)
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(
                f"{origin}: cannot be opened: {' '.join(str(error).split())}"
            ) from error
        for row in rows:
            if field not in row:
                raise DataError(
                    f"{origin}: has no column {field!r}; expected one of {', '.join(row)}"
                )
            yield row[field]

    if tokenizer == "words":
        return _by_words(
            lambda: (word for text in documents() for word in (*text.split(), None)),
            vocab_size,
            origin,
        )
    encoded = (np.array([*text.encode(), 256], np.uint16) for text in documents())
    return TextTokens(_spool(encoded, np.uint16, origin), (*BYTES, "␄"), "", origin, 257)


def _hub_answers() -> bool:
    """Return whether the hub has an address or a proxy here, to spare half a minute of retries."""
    from huggingface_hub import constants

    host = urllib.parse.urlsplit(constants.ENDPOINT).hostname
    if urllib.request.getproxies():
        return True
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


# --- words ----------------------------------------------------------------------------------------
def _file_words(file: Path, origin: str) -> Iterator[str]:
    """Whitespace-separated words, read a block at a time."""
    try:
        with file.open(encoding="utf-8") as text:
            rest = ""
            while block := text.read(BLOCK):
                words = (rest + block).split()
                rest = words.pop() if words and not block[-1].isspace() else ""
                yield from words
            yield from rest.split()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{origin}: is not UTF-8 text ({error.reason} at byte {error.start}); expected "
            "text, or tokenizer=bytes"
        ) from error


def _by_words(
    words: Callable[[], Iterable[str | None]], vocab_size: int | None, origin: str
) -> TextTokens:
    """Two passes: count, then write the number of each word; None ends a document. The rarest words
    become <unk>. A text that writes <unk> or <eod> itself means these tokens.
    """
    counts = Counter(word for word in words() if word not in (None, "<unk>", "<eod>"))
    kept = sorted(counts, key=lambda word: (-counts[word], word))[: (vocab_size or 8192) - 1]
    number: dict[str | None, int] = {word: i for i, word in enumerate(kept)}
    unknown = len(kept)
    number[None] = number["<eod>"] = unknown + 1

    def encoded() -> Iterator[np.ndarray]:
        block = []
        for word in words():
            block.append(number.get(word, unknown))
            if len(block) == BLOCK:
                yield np.array(block, np.uint32)
                block = []
        yield np.array(block, np.uint32)

    return TextTokens(
        _spool(encoded(), np.uint32, origin), (*kept, "<unk>", "<eod>"), " ", origin, unknown + 2
    )


def _spool(arrays: Iterable[np.ndarray], dtype: Any, origin: str) -> np.ndarray:
    """The arrays one after another in a temporary file without a name, memory-mapped."""
    try:
        with tempfile.TemporaryFile() as file:
            for array in arrays:
                file.write(array.tobytes())
            if not file.tell():
                raise DataError(f"{origin}: holds no tokens")
            file.flush()
            return np.memmap(file, dtype, "r")
    except OSError as error:
        raise DataError(
            f"{origin}: its tokens need a temporary file in {tempfile.gettempdir()}: "
            f"{error.strerror or error}; set TMPDIR to a directory with room"
        ) from error
