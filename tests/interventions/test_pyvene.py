"""Subspaces in pyvene: the same logits and IIA there as here, and back from a save."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, ParameterError
from mechint.interventions.pyvene_bridge import PyveneIntervention, _pyvene, to_pyvene
from mechint.models.transformer import HookedTransformer
from mechint.probe.results import ProbeResult
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.task import IGNORE, Batch
from probes._das import SwapSite, interchange_accuracy

HOOK = "hook_embed"


@pytest.fixture(scope="module")
def found() -> tuple[Subject, ProbeResult]:
    """A planted comparison, and the subspace that holds its first operand."""
    plant = planted.comparison(n=8)
    direction = plant.truth["read"].float()
    direction = direction / direction.norm()
    array = direction.reshape(-1, 1).numpy()
    result = ProbeResult("das", "?", {"hook": HOOK, "pos": 0}, (), arrays={"subspace": array})
    return plant.subject, result


def test_the_iia_in_pyvene_is_the_iia_here(found) -> None:
    subject, result = found
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 64, 0)
    columns = torch.from_numpy(result.arrays["subspace"])
    site = SwapSite(subject, pairs, HOOK, 0)
    here = interchange_accuracy(subject, site, columns)
    intervenable = result.to_pyvene(subject.model)
    _, logits = intervenable(
        {"tokens": pairs.base}, [{"tokens": pairs.source}], {"sources->base": (0, 0)}
    )
    logits = logits[torch.arange(64), pairs.reads]
    there = subject.correct(logits, pairs.labels)
    assert torch.equal(there.float(), here) and 0.9 < float(here.mean())


BLOCK = ("hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out")
PER_HEAD = ("attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "attn.hook_result")
SITES = ["hook_embed", *(f"blocks.0.{name}" for name in (*BLOCK, *PER_HEAD, "mlp.hook_post"))]


@pytest.mark.parametrize("hook", SITES)
def test_every_site_goes_to_pyvene_and_back(hook: str, tmp_path: Path) -> None:
    """Heads stand side by side in the subspace; expected is the projection, written out."""
    config = ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=12, d_vocab=7, n_ctx=3)
    model = HookedTransformer(config).eval()
    model.set_use_attn_result(True)
    base, source = torch.randint(7, (2, 20, 3), generator=generator(0))
    subject = Subject(model, None, data=Batch(base, torch.full((20, 3, 1), IGNORE)))
    width = subject.activation(hook, 1).flatten(1).shape[1]
    columns = torch.linalg.qr(torch.randn(width, 3, generator=generator(1)))[0]
    other = subject.activation(hook, 1, data=Batch(source, torch.full((20, 3, 1), IGNORE)))

    def project(x: torch.Tensor, hook: object) -> torch.Tensor:
        x, change = x.clone(), other.flatten(1) - x[:, 1].flatten(1)
        x[:, 1] += (change @ columns @ columns.T).view_as(x[:, 1])
        return x

    with torch.no_grad():
        expected = model.run_with_hooks(base, fwd_hooks=[(hook, project)])
        assert not torch.allclose(expected, model(base), atol=1e-3)
        intervenable = to_pyvene(model, columns, hook)
        _, there = intervenable({"tokens": base}, [{"tokens": source}], {"sources->base": (1, 1)})
    assert torch.allclose(there, expected, atol=1e-5)
    intervenable.save(str(tmp_path))
    loaded = PyveneIntervention.load(tmp_path)
    again = loaded.logits(subject, base, source, positions=1, read=1)
    assert loaded.hook == hook and torch.allclose(again, expected[:, 1], atol=1e-5)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_an_intervention_saved_on_a_hugging_face_model_runs_on_its_bridge(tmp_path) -> None:
    pyvene = _pyvene()
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 8, "vocab_size": 11}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    kind = pyvene.LowRankRotatedSpaceIntervention
    config = pyvene.IntervenableConfig(
        [
            {
                "layer": 0,
                "component": "mlp_output",
                "low_rank_dimension": 3,
                "intervention_type": kind,
            }
        ]
    )
    intervenable = pyvene.IntervenableModel(config, model)
    base, source = torch.randint(11, (2, 5, 6), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, theirs = intervenable(
            {"input_ids": base}, [{"input_ids": source}], {"sources->base": (2, 2)}
        )
    intervenable.save(str(tmp_path))
    subject = bridged(model)
    ours = PyveneIntervention.load(tmp_path).logits(subject, base, source, positions=2)
    assert torch.allclose(ours, theirs.logits[:, -1], atol=1e-5)
    assert not torch.allclose(ours, model(base).logits[:, -1], atol=1e-4)


def bridged(model: GPT2LMHeadModel) -> Subject:
    import mechint

    hooks = {"blocks.0.hook_mlp_out": "transformer.h.0.mlp"}
    wrapped = mechint.wrap(model, hooks, call=lambda module, tokens: module(tokens).logits)
    return Subject(wrapped, None)


MODEL = HookedTransformer(ModelConfig(d_model=4, n_heads=1, d_vocab=5, d_vocab_out=5))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: to_pyvene(MODEL, torch.ones(4, 2), HOOK), "not orthonormal"),
        (lambda: to_pyvene(MODEL, torch.eye(4), "blocks.7.hook_resid_pre"), "no module at hook"),
        (lambda: ProbeResult("fourier", "?", {}, ()).to_pyvene(MODEL), "found no subspace"),
    ],
)
def test_what_is_no_subspace_is_refused(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        ask()


def saved(found, folder: Path, kind: str = "LowRankRotatedSpaceIntervention") -> Path:
    """A save of one intervention, with pyvene's own `save`."""
    pyvene = _pyvene()
    intervention = getattr(pyvene, kind)(embed_dim=6, low_rank_dimension=2)
    place = {"component": "blocks[0].hook_resid_pre.output", "unit": "pos"}
    place["low_rank_dimension"] = 2
    config = pyvene.IntervenableConfig([{**place, "intervention": intervention}])
    pyvene.IntervenableModel(config, found[0].model).save(str(folder))
    return folder


ENTRIES = [
    *(("representations", one) for one in ([], 5, None, [[]], [{"component": 3}])),
    *(("intervention_types", one) for one in ([None], ["<class 'pyvene.Intervention'>"], "x")),
    *(("intervention_dimensions", [one]) for one in ("x", -1, 0, 60_000, 1 << 40, None, True)),
]
TEXTS = ["", "[]", "[" * 100_000, '{"a": 1}', "{"]
WEIGHTS = [{}, torch.eye(3), {"rotate_layer.weight": torch.eye(6)}, [1], b"truncated", None, ...]


@pytest.mark.parametrize("damage", [*ENTRIES, *TEXTS, *WEIGHTS], ids=lambda one: str(one)[:40])
def test_a_damaged_save_is_refused(found, tmp_path, damage) -> None:
    """An entry of its configuration, the configuration, or its weights."""
    file = saved(found, tmp_path) / "config.json"
    (weights,) = tmp_path.glob("intkey_*.bin")
    if isinstance(damage, tuple):
        damage = json.dumps(json.loads(file.read_text()) | dict([damage]))
    if isinstance(damage, str):
        file.write_text(damage)
    elif isinstance(damage, bytes):
        weights.write_bytes(damage)
    elif damage in (None, ...):
        (weights if damage is None else file).unlink()
    else:
        torch.save(damage, weights)
    with pytest.raises(CheckpointError):
        PyveneIntervention.load(tmp_path)
