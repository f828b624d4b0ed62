"""Products by oneDNN against PyTorch's own: values, gradients and bits, and where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from mechint.models import pieces, products
from mechint.models.activations import activation
from mechint.models.forward import Forward
from mechint.models.products import StackedLinear, StackedMLP, by_onednn, repeated_shapes
from mechint.models.transformer import initialize
from mechint.registry import TASKS
from mechint.training import spec
from mechint.training.compact import compact, stack

pytestmark = pytest.mark.skipif(not products.has_onednn(), reason="this PyTorch has no oneDNN")


@pytest.fixture(params=[True, False], ids=["oneDNN adds up", "MKL adds up"])
def everywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """oneDNN multiplies whatever it can, on any processor."""
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "onednn_adds_up_faster", lambda: request.param)
    monkeypatch.setattr(products, "WORTH", 0)
    yield


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).requires_grad_()


def close(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def differentiated(make: Callable[..., Tensor], *inputs: Tensor | None) -> list[Tensor]:
    """What `make` gives, and its gradients under random weights."""
    y = make(*inputs)
    leaves = [one for one in inputs if one is not None]
    return [y, *torch.autograd.grad(y, leaves, drawn(*y.shape, seed=1).detach())]


def stacked_mlp(act: str) -> Callable[..., Tensor]:
    """`StackedMLP` with that nonlinearity, of tensors alone."""
    return lambda *inputs: StackedMLP.apply(*inputs, act)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("models", "d_in", "d_out"), [(1, 5, 7), (3, 7, 5), (2, 4, 4)])
def test_linear(models: int, d_in: int, d_out: int, biased: bool, everywhere: None) -> None:
    x, weight = drawn(models, 6, d_in), drawn(models, d_in, d_out)
    bias = drawn(models, d_out) if biased else None

    def plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return x @ weight if bias is None else x @ weight + bias.unsqueeze(1)

    found = differentiated(StackedLinear.apply, x, weight, bias)
    close(found, differentiated(plain, x, weight, bias))
    assert found[0].shape == (models, 6, d_out)


@pytest.mark.parametrize("act", ["relu", "gelu", "gelu_new", "silu"])
@pytest.mark.parametrize(("models", "biased"), [(1, True), (3, False)])
def test_mlp(act: str, models: int, biased: bool, everywhere: None) -> None:
    x, w_in, w_out = drawn(models, 6, 4), drawn(models, 4, 9), drawn(models, 9, 4)
    b_in, b_out = (drawn(models, 9), drawn(models, 4)) if biased else (None, None)

    def plain(x, w_in, b_in, w_out, b_out):
        pre = x @ w_in + (0 if b_in is None else b_in.unsqueeze(1))
        return activation(act, pre) @ w_out + (0 if b_out is None else b_out.unsqueeze(1))

    inputs = (x, w_in, b_in, w_out, b_out)
    close(differentiated(stacked_mlp(act), *inputs), differentiated(plain, *inputs))


def test_a_second_derivative_is_refused() -> None:
    x, weight = drawn(1, 3, 2), drawn(1, 2, 2)
    y = StackedLinear.apply(x, weight, None)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("modular-arithmetic", {"act_fn": "relu", "normalization_type": None}),
        ("composition", {"act_fn": "gelu", "n_layers": 2}),
        ("max-of-list", {"n_layers": 2, "use_bias": False, "act_fn": "silu"}),
    ],
)
def test_training_descends_the_same_gradient(
    name: str, model: dict, models: int, monkeypatch: pytest.MonkeyPatch, everywhere: None
) -> None:
    """The forward of a training step and its gradients, by either library."""
    task = TASKS[name].from_dict({"p": 7} if name == "modular-arithmetic" else {})
    config = spec(task, {"d_model": 16, "n_heads": 2, **model}).model
    batch = stack([task.sample(16, seed, "train") for seed in range(models)])
    layout = compact(batch, config).layout
    assert layout.repeated
    each = [initialize(config, seed) for seed in range(models)]
    weights = {key: torch.stack([one[key] for one in each]).requires_grad_() for key in each[0]}

    def found() -> list[Tensor]:
        logits = Forward(weights, config).logits(layout)
        loss = (logits * drawn(*logits.shape, seed=2).detach()).sum()
        return [logits, *torch.autograd.grad(loss, list(weights.values()), allow_unused=False)]

    calls: list[tuple[int, ...]] = []
    made = products.product
    monkeypatch.setattr(
        products,
        "product",
        lambda *args, **kw: calls.append(args[0].shape) or made(*args, **kw),
    )
    fast = found()
    assert calls
    monkeypatch.setattr(products, "onednn_is_faster", lambda: False)
    calls.clear()
    close(fast, found())
    assert not calls


def test_the_bits_are_those_of_any_number_of_threads() -> None:
    x, w_in, w_out = drawn(1, 1000, 64), drawn(1, 64, 256), drawn(1, 256, 64)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(differentiated(stacked_mlp("relu"), x, w_in, None, w_out, None))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_where_onednn_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    x, weight = torch.zeros(1, 4096, 64), torch.zeros(1, 64, 64)
    assert not by_onednn(x, weight)  # nobody says that the shapes come again
    with repeated_shapes(True):
        assert by_onednn(x, weight)
        assert not by_onednn(x[:, :64], weight)  # not worth a call
        assert not by_onednn(x[0], weight[0])  # not a stack
        assert not by_onednn(x.double(), weight.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not by_onednn(x, weight)
        monkeypatch.setattr(products, "onednn_is_faster", lambda: False)
        assert not by_onednn(x, weight)
    assert not by_onednn(x, weight)


@pytest.mark.parametrize(
    ("capability", "vendor", "expected"),
    [
        ("AVX512", "AuthenticAMD", True),
        ("AVX512", "GenuineIntel", False),
        ("AVX2", "AuthenticAMD", False),
    ],
)
def test_the_processor_decides(
    capability: str, vendor: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(products.Path, "read_text", lambda self, **_: f"vendor_id : {vendor}\n")
    assert products.onednn_is_faster.__wrapped__() is expected


def test_where_one_large_product_goes_to_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    made = products.product
    monkeypatch.setattr(
        pieces, "product", lambda *args: calls.append(tuple(args[0].shape)) or made(*args)
    )
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "ONCE", 5 * 64 * 32)
    x, weight, bias = drawn(5, 1, 64), drawn(64, 32), drawn(32)
    expected = x @ weight + bias
    with torch.no_grad():
        close([pieces.linear(x, weight, bias)], [expected])
        assert calls == [(5, 64)]
        pieces.linear(x[1:], weight, bias)  # too few for a kernel of their own
        pieces.linear(x.double(), weight.double(), bias.double())
        with torch.autocast("cpu", torch.bfloat16):
            pieces.linear(x, weight, bias)
        monkeypatch.setattr(products, "onednn_is_faster", lambda: False)
        pieces.linear(x, weight, bias)
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    (grad,) = torch.autograd.grad(pieces.linear(x, weight, bias).sum(), x)
    close([grad], [weight.sum(1).expand_as(x)])
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("cpu family\t: 25\nmodel\t\t: 17\n", False),
        ("cpu family\t: 26\nmodel\t\t: 2\n", True),
        ("", False),
    ],
)
def test_the_family_decides_who_adds_up(
    cpuinfo: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products.Path, "read_text", lambda self, **_: cpuinfo)
    assert products.onednn_adds_up_faster.__wrapped__() is expected


def test_exact_layouts_of_changing_length_are_multiplied_by_mkl() -> None:
    task = TASKS["listops"].from_dict({"n": 4, "operands": 2, "depth": 1})
    batch = stack([task.sample(4, 0, "train")])
    config = spec(task, {"d_model": 16}).model
    assert batch.lengths is not None and not compact(batch, config).layout.repeated
