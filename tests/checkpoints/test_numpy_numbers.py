"""Numbers that numpy pickled: read as Python's, and nothing else of numpy's is called."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.content import read_content
from mechint.checkpoints.numpy_numbers import LETTERS
from mechint.errors import CheckpointError
from mechint.models import build
from tests.checkpoints.bases import CONFIG
from tests.checkpoints.mutations import _legacy_head


def written(path: Path, content: object, legacy: bool = False) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


@pytest.fixture
def unused(monkeypatch):
    """Fails the test where numpy's own functions make the numbers."""

    def called(*_):
        pytest.fail("numpy ran")

    monkeypatch.setattr(np._core.multiarray, "scalar", called)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", LETTERS)
def test_every_type_of_number_comes_as_pythons(tmp_path, name, legacy):
    kind = np.dtype(name)
    numbers = [kind.type(value) for value in (0, 1, 117)]
    if kind.kind in "iu":
        numbers += [kind.type(np.iinfo(kind).min), kind.type(np.iinfo(kind).max)]
    if kind.kind == "f":
        numbers += [kind.type(-0.1), kind.type(np.inf), np.finfo(kind).max, np.finfo(kind).tiny]
    read = read_content(written(tmp_path / "a.pt", {"a": numbers}, legacy))["a"]
    assert read == [number.item() for number in numbers]
    assert {type(number) for number in read} == {type(kind.type(0).item())}


def test_the_other_order_of_bytes_and_the_name_before_numpy_2(tmp_path, unused):
    scalar, kind = (
        b"cnumpy.core.multiarray\nscalar\n",
        b"cnumpy\ndtype\nX\x02\x00\x00\x00f4\x89\x88",
    )
    state = b"(K\x03X\x01\x00\x00\x00>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = b"c_codecs\nencode\nX\x06\x00\x00\x00\xc2\xbf\xc2\x80\x00\x00X\x06\x00\x00\x00latin1\x86R"
    content = b"\x80\x02" + scalar + kind + b"\x87R" + state + raw + b"\x86R."
    (tmp_path / "a.pt").write_bytes(_legacy_head() + content + pickle.dumps([], 2))
    assert read_content(tmp_path / "a.pt") == -1.0


@pytest.mark.parametrize("inside", [True, False], ids=["configuration", "losses"])
def test_the_configuration_of_a_transformer_lens_model_and_losses_of_numpy(tmp_path, inside):
    from transformer_lens.config import TransformerBridgeConfig

    model = build(CONFIG, seed=1)
    given = TransformerBridgeConfig(
        d_model=4, d_head=2, n_heads=2, n_layers=1, n_ctx=3, d_vocab=6, d_vocab_out=5, d_mlp=6,
        act_fn="gelu", attention_dir="bidirectional", normalization_type=None, eps=1e-3,
    ).to_dict()  # fmt: skip
    assert isinstance(given["initializer_range"], np.generic)
    content = {"model": model.transformer_lens_state()}
    content |= {"config": given} if inside else {"train_losses": [np.float64(2), np.float32(0.5)]}
    opened = load_checkpoint(written(tmp_path / "a.pt", content))
    if inside:
        assert (opened.config.act_fn, opened.config.attention_dir) == ("gelu", "bidirectional")
        assert opened.config.eps == 1e-3 and opened.assumed == {}
    else:
        assert opened.metrics == {"train_loss": 0.5}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.dtype("O"), "holds a numpy value of type 'O8', expected a number"),
        (np.longdouble(1), "of type 'f16'"),
        (np.complex64(1), "of type 'c8'"),
        (np.str_("x"), "of type 'U1'"),
        (np.datetime64("2020-01-01"), "of type 'M8'"),
        (np.void(b"ab"), "of type 'V2'"),
        (np.ones(2), "would run pickled code (numpy._core.multiarray._reconstruct)"),
        (np.random.PCG64(1), "would run pickled code (numpy.random."),
        (np.load, "would run pickled code (numpy.load)"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_everything_else_of_numpys_is_refused(tmp_path, value, said, legacy):
    with pytest.raises(CheckpointError) as caught:
        read_content(written(tmp_path / "a.pt", {"a": value}, legacy))
    assert said in str(caught.value)


DTYPE = b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x89\x88\x87R"
SCALAR = b"cnumpy._core.multiarray\nscalar\n"
EIGHT = b"c_codecs\nencode\nX\x08\x00\x00\x0012345678X\x06\x00\x00\x00latin1\x86R"


@pytest.mark.parametrize(
    "pickled",
    [
        SCALAR + DTYPE + b"K\x07\x86R",  # a number where its bytes should be
        SCALAR + DTYPE + EIGHT.replace(b"\x08", b"\x07", 1).replace(b"8X", b"X") + b"\x86R",
        SCALAR + b"X\x02\x00\x00\x00f8" + EIGHT + b"\x86R",  # the name of a type, not a type
        SCALAR + b"cnumpy\ndtype\n" + EIGHT + b"\x86R",  # the class itself
        SCALAR + b"cnumpy\ndtype\n)\x81" + EIGHT + b"\x86R",  # made without a name
        SCALAR
        + b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85\x81"
        + EIGHT
        + b"\x86R",  # not initialized
        SCALAR + DTYPE + b"(K\x03X\x01\x00\x00\x00!tb" + EIGHT + b"\x86R",
        SCALAR + DTYPE + b"K\x03b" + EIGHT + b"\x86R",
        SCALAR + DTYPE + b"}X\x05\x00\x00\x00orderX\x01\x00\x00\x00<sb" + EIGHT + b"\x86R",
        SCALAR + b"I20000000000\n\x85R",
        b"cnumpy\ndtype\nI20000000000\n\x85R",
        b"cnumpy\nload\nX\x01\x00\x00\x00a\x85R",
        b"cnumpy._core.multiarray\nfromfile\nX\x01\x00\x00\x00a\x85R",
        b"cmechint.checkpoints.numpy_numbers\nNumberType\nX\x02\x00\x00\x00f8\x85R",
    ],
)
def test_pickles_made_by_hand(tmp_path, pickled, unused):
    """The scan refuses, or PyTorch's loader does; each in one line."""
    path = tmp_path / "a.pt"
    path.write_bytes(_legacy_head() + b"\x80\x02" + pickled + b"." + pickle.dumps([], 2))
    with pytest.raises(CheckpointError) as caught:
        read_content(path)
    assert str(caught.value).isprintable()


def test_a_process_that_lets_numpys_own_through_keeps_doing_so(tmp_path):
    path = written(tmp_path / "a.pt", {"a": np.float64(0.1)})
    known = set(torch.serialization.get_safe_globals())
    own = [np._core.multiarray.scalar, np.dtype, np.dtypes.Float64DType]
    with torch.serialization.safe_globals(own):
        assert read_content(path) == {"a": 0.1}
        assert set(torch.serialization.get_safe_globals()) == known | set(own)
    assert read_content(path) == {"a": 0.1}
    assert set(torch.serialization.get_safe_globals()) == known
