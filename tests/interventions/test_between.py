"""The stream between attention and MLP in models of another library: what their own block passes
on, or a refusal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions import RecordedForward, ResidSite, resume
from mechint.models import bridge
from tests.conformance.test_edits import model_of
from tests.conformance.test_models import inputs

TOKENS = torch.randint(20, (3, 4), generator=torch.Generator().manual_seed(1))
READS = torch.full((3,), 3)


def bloom(place: Path, norm_is_added_to: bool) -> tuple[Any, Any]:
    """Transformers' own Bloom, and a bridge to another copy of it."""
    import transformers

    sizes = {"vocab_size": 20, "hidden_size": 16, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    config = transformers.BloomConfig(
        **sizes, **ends, apply_residual_connection_post_layernorm=norm_is_added_to
    )
    noise = torch.Generator().manual_seed(2)
    own = transformers.BloomForCausalLM(config).eval()
    with torch.no_grad():
        for weight in own.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=noise))
    own.save_pretrained(place)
    return own, bridge.boot(place)


def passed_on(own: Any, part: str, replaced: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What `part` of the second block passes on, which holds the stream in a Bloom, and the logits
    at the answers, by PyTorch's hooks alone; with `replaced` in its place.
    """
    seen: list[Tensor] = []

    def hook(module: Any, args: Any, output: Any) -> Any:
        several = isinstance(output, tuple)
        seen.append(output[0] if several else output)
        if replaced is None:
            return None
        return (replaced, *output[1:]) if several else replaced

    handle = own.get_submodule(f"transformer.h.{part}").register_forward_hook(hook)
    with torch.no_grad():
        logits = own(TOKENS).logits[:, 3]
    handle.remove()
    return seen[0], logits


SITES = {ResidSite.pre(1): "0", ResidSite.mid(1): "1.self_attention", ResidSite.final(): "1"}


@pytest.mark.full
@pytest.mark.parametrize("site", SITES, ids=str)
@pytest.mark.parametrize("norm_is_added_to", [False, True])
def test_a_bloom_s_stream_is_its_own_block_s_or_refused(
    tmp_path: Path, norm_is_added_to: bool, site: ResidSite
) -> None:
    own, model = bloom(tmp_path, norm_is_added_to)
    if norm_is_added_to and site.after_attention:
        recorded = RecordedForward(model, TOKENS, READS)
        for ask in (
            lambda: recorded.residual(site),
            lambda: resume(model, torch.zeros(3, 4, 16), site, READS, tokens=TOKENS),
        ):
            with pytest.raises(ParameterError, match=r"^resid_mid 1: a BloomForCausalLM of this"):
                ask()
        return
    stream, plain = passed_on(own, SITES[site])
    recorded = RecordedForward(model, TOKENS, READS)
    torch.testing.assert_close(recorded.residual(site), stream, atol=1e-5, rtol=1e-5)
    x = stream + torch.randn(stream.shape, generator=torch.Generator().manual_seed(3))
    _, expected = passed_on(own, SITES[site], x)
    assert not torch.allclose(expected, plain, atol=1e-2)
    found = resume(model, x, site, READS, tokens=TOKENS)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "adds"),
    [("gpt2", True), ("llama", True), ("gpt_neox", True), ("opt, norms behind", False)],
)
def test_only_what_is_not_a_sum_is_refused(kind: str, adds: bool) -> None:
    """With its norms behind, an OPT passes on the norm of the sum; a NeoX has no place between."""
    model, tokens = model_of(kind), inputs(kind)
    recorded = RecordedForward(model, tokens, torch.full((len(tokens),), 1))
    for layer in (0, 1):
        if adds:
            assert recorded.residual(ResidSite.mid(layer)).shape == (*tokens.shape, 16)
        else:
            with pytest.raises(ParameterError, match=r"OPTForCausalLM .* is not their sum"):
                recorded.residual(ResidSite.mid(layer))
