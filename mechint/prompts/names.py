"""Names of a tokenizer's tokens for showing, each different from all others."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

REPLACEMENT = "\ufffd"
"""The character that stands in decoded text for bytes that are no character."""


def token_names(tokenizer: Any) -> list[str]:
    """One name per token id: its text, and where that is no text or that of several tokens, its
    bytes (``<0xE7>``), the tokenizer's own spelling, or its number.
    """
    ids = list(range(len(tokenizer)))
    texts = tokenizer.batch_decode([[index] for index in ids])
    raw = [str(token) for token in tokenizer.convert_ids_to_tokens(ids)]
    names = [
        byte_name(own) if REPLACEMENT in text else text
        for text, own in zip(texts, raw, strict=True)
    ]
    for other in (raw, [f"{name} #{index}" for name, index in zip(names, ids, strict=True)]):
        count = Counter(names)
        names = [one if count[name] > 1 else name for name, one in zip(names, other, strict=True)]
    return names


def byte_name(token: str) -> str:
    """The bytes of a token of a byte-level vocabulary; `token` itself in any other.

    >>> byte_name("\u0120\u00e7"), byte_name("<0xE7>")
    ('<0x20><0xE7>', '<0xE7>')
    """
    bytes_ = _byte_alphabet()
    if not all(letter in bytes_ for letter in token) or token.startswith("<0x"):
        return token
    return "".join(f"<0x{bytes_[letter]:02X}>" for letter in token)


@cache
def _byte_alphabet() -> dict[str, int]:
    """Letter → byte of byte-level vocabularies (Radford et al. 2019): printable Latin-1 characters
    are themselves, the other bytes follow in order from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + rank): byte for rank, byte in enumerate(others)}
