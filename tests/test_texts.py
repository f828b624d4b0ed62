"""Files of token numbers: what is too large, negative or no row of integers is refused."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mechint.data.texts import BLOCK, from_file
from mechint.errors import DataError


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_one_large_token_is_refused_before_its_words_are_made(tmp_path: Path, kind: type) -> None:
    tokens = np.zeros(1000, kind)
    tokens[-1] = 1 << 40
    np.save(tmp_path / "big.npy", tokens)
    tracemalloc.start()
    with pytest.raises(DataError, match="holds token 1099511627776"):
        from_file(str(tmp_path / "big.npy"), "bytes", None)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    assert from_file(str(tmp_path / "big.npy"), "bytes", 50).limit == 50
    with pytest.raises(DataError, match="vocab_size=1099511627776"):
        from_file(str(tmp_path / "big.npy"), "bytes", 1 << 40)


def test_a_negative_token_is_found_wherever_it_stands(tmp_path: Path) -> None:
    tokens = np.zeros(BLOCK + 10, np.int64)
    tokens[BLOCK + 3] = -5
    np.save(tmp_path / "low.npy", tokens)
    with pytest.raises(DataError, match="negative token -5"):
        from_file(str(tmp_path / "low.npy"), "bytes", None)


def test_a_header_of_a_negative_size_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(5000, np.int64))
    data = (tmp_path / "a.npy").read_bytes().replace(b"(5000,),", b"(-500,),")
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(DataError):
        from_file(str(tmp_path / "a.npy"), "bytes", None)
