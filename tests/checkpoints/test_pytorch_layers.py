"""PyTorch's encoders: by the page's mapping where they have a final norm before the head, by its
recipe for `wrap` where they have not; a norm is never made up without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import mechint
from mechint.checkpoints import load_checkpoint
from mechint.errors import CheckpointError
from mechint.interventions import Zero, logits_under

PAGE = Path(__file__).parents[2] / "docs" / "pytorch-layers.md"
TOKENS = torch.tensor([[1, 2, 3], [0, 6, 5], [4, 4, 2]])


class Encoder(nn.Module):
    def __init__(self, *, before: bool, final: bool) -> None:
        super().__init__()
        self.embed, self.pos = nn.Embedding(7, 8), nn.Parameter(torch.randn(3, 8))
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": before}
        layer = nn.TransformerEncoderLayer(8, 2, 16, **options)
        norm = nn.LayerNorm(8) if final else None
        self.encoder = nn.TransformerEncoder(layer, 2, norm=norm, enable_nested_tensor=False)
        self.head = nn.Linear(8, 7)
        for parameter in self.parameters():  # norms and biases far from where they begin
            parameter.data += 0.3 * torch.randn_like(parameter)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens) + self.pos))


def made(before: bool, final: bool) -> Encoder:
    torch.manual_seed(3)
    return Encoder(before=before, final=final).eval()


def mapping() -> dict[str, Any]:
    return yaml.safe_load(PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0])


def hooks_of() -> Callable[[int], dict[str, str]]:
    text = PAGE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(text, names)
    return names["hooks_of"]


def test_a_mapping_is_exact_where_norms_come_first(tmp_path: Path) -> None:
    module = made(before=True, final=True)
    torch.save(module.state_dict(), tmp_path / "encoder.pt")
    opened = load_checkpoint(tmp_path / "encoder.pt", mapping=mapping())
    with torch.no_grad():
        logits, cache = opened.model.run_with_cache(TOKENS)
        assert torch.allclose(logits, module(TOKENS), atol=1e-5)
        layer = module.encoder.layers[0]
        x = layer.norm1(module.embed(TOKENS) + module.pos)
        _, pattern = layer.self_attn(x, x, x, average_attn_weights=False)
    assert torch.allclose(cache["pattern", 0], pattern, atol=1e-5)


@pytest.mark.parametrize(("before", "final"), [(True, False), (False, False), (False, True)])
def test_a_norm_that_the_file_lacks_is_not_made_up(
    tmp_path: Path, before: bool, final: bool
) -> None:
    module, file = made(before, final), tmp_path / "encoder.pt"
    torch.save(module.state_dict(), file)
    given = mapping()
    if not final:
        without = {key: one for key, one in given["weights"].items() if "ln_final" not in key}
        with pytest.raises(CheckpointError, match=r"has no final norm .* mechint\.wrap"):
            load_checkpoint(file, mapping={**given, "weights": without})
        made_up = {"ln_final.w": {"ones": [8]}, "ln_final.b": {"zeros": [8]}}
        opened = load_checkpoint(file, mapping={**given, "weights": without | made_up})
        assert "ln_final.w, ln_final.b; the file has no such norm" in opened.assumed["norms"].why
    model = mechint.wrap(module, hooks_of()(2), weights={"W_E": "embed.weight"}, n_ctx=3)
    subject = mechint.load(model, data=[{"prompt": one, "answer": 1} for one in TOKENS.tolist()])
    rows = subject.data.tokens
    with torch.no_grad():
        assert torch.allclose(subject.logits(), module(rows)[:, -1], atol=1e-6)
        layer = module.encoder.layers[1]
        handle = layer.dropout2.register_forward_hook(lambda *args: torch.zeros_like(args[2]))
        expected = module(rows)[:, -1]
        handle.remove()
    assert torch.allclose(logits_under(subject, [Zero("L1 MLP")]), expected, atol=1e-6)
    assert not torch.allclose(expected, subject.logits(), atol=1e-3)


def test_the_lens_reads_the_stream_of_a_wrapped_encoder() -> None:
    """Against the head of the module itself on what each layer gives; not through a final norm."""
    weights: dict[str, Any] = {"W_U": lambda module: module.head.weight.T, "b_U": "head.bias"}
    weights |= {"W_E": "embed.weight"}
    data = [
        {"prompt": [i % 7, j % 7, (i + j) % 7], "answer": j % 7} for i in range(7) for j in (1, 4)
    ]
    for final in (False, True):
        module = made(before=False, final=final)
        subject = mechint.load(
            mechint.wrap(module, hooks_of()(2), weights=weights, n_ctx=3), data=data
        )
        if final:
            assert "W_U and b_U" in str(mechint.probes.PROBES["lens"]().applicable(subject))
            continue
        found = mechint.probes.run("lens", subject).tables["lens"].columns
        rows, answers = subject.data.tokens, torch.tensor([one["answer"] for one in data])
        x = module.embed(rows) + module.pos
        for place, layer in enumerate([None, *module.encoder.layers]):
            x = x if layer is None else layer(x)
            loss = nn.functional.cross_entropy(module.head(x[:, -1]), answers)
            assert found["loss"][place] == pytest.approx(float(loss.detach()), rel=1e-4)
