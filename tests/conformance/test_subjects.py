"""Every probe on every kind of subject that is asked about: it measures, or refuses in one line.
Native models are held to the whole contract by `test_probes`.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import MechintError
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.models.transformer import HookedTransformer
from mechint.planted.library import prompted_induction
from mechint.probe import Need
from mechint.probe.results import ProbeResult
from mechint.registry import PROBES
from mechint.subject import Subject
from mechint.task import IGNORE
from mechint.testing.probes import CAUSAL
from tests.conformance import test_architectures
from tests.conformance.models_table import SETTINGS, subject_of
from tests.test_schema import errors


def addition() -> Subject:
    return planted.modular_addition(7, (2,)).subject


def zeros() -> Subject:
    model = copy.deepcopy(addition().model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    return addition().with_model(model)


def overflowing() -> Subject:
    """One weight of the unembedding is as large as float32 holds."""
    model = copy.deepcopy(subject_of("transformer").model)
    with torch.no_grad():
        model.get_parameter("unembed.W_U")[0, 0] = 3.4e38
        model.get_parameter("ln_final.b").fill_(1e3)
    return subject_of("transformer").with_model(model)


def some(order: Callable[[int], Any]) -> Callable[[], Subject]:
    """Examples of the task's inputs that are not all of them, in their order."""
    return lambda: addition().with_data(addition().data[order(49)])


def hops() -> Subject:
    """A transformer that follows pointers by doubling, with one answer per node."""
    subject = planted.composition(n=3, k=4, hops=(2,)).subject
    return subject.with_data(subject.data[:64]).with_answer("all")


RANDOM = ("blocks of Llama", "gpt2", "pair network", "linear bottleneck", "wrapped module")
"""Kinds of random weights, which answer nothing right."""
KINDS: dict[str, tuple[Callable[[], Subject], set[str]]] = {
    "weights of zero": (zeros, {"llc", "das", "weights", "attention"}),
    "no task": (lambda: Subject(addition().model, None), {*PROBES} - {"weights"}),
    "all answers": (hops, {"llc", "das", "weights", "circuits", "gradients"}),
    "examples in another order": (some(lambda n: torch.arange(n).flip(0)), {*PROBES}),
    "examples that come again": (some(lambda n: torch.arange(n) % 7), {*PROBES}),
    "few examples": (some(lambda n: slice(20)), {"das", "llc", "circuits"}),
    "logits that overflow": (overflowing, {*PROBES} - {"lens", "ablation", "circuits", "das"}),
    "pairs of prompts": (lambda: prompted_induction(0.0, 0).subject, {*PROBES} - {"heads"}),
    **{kind: (lambda kind=kind: subject_of(kind), {*PROBES}) for kind in RANDOM},
    "latent attention": (lambda: test_architectures.opened("deepseek_v3")[0], {*PROBES}),
    "blocks without attention": (lambda: test_architectures.opened("qwen3_next")[0], {*PROBES}),
}
"""Kind → how it is made, and the probes that are asked about it in `make test-all` alone."""
made = cache(lambda kind: KINDS[kind][0]())
SLOW = {"gpt2": pytest.mark.slow}
SAMPLED = {"latent attention", "blocks without attention", "gpt2", "wrapped module"}
"""Kinds of which sampling would take minutes."""
PAIRS = [
    pytest.param(name, kind, marks=[SLOW.get(kind, pytest.mark.full)] if name in full else [])
    for kind, (_, full) in KINDS.items()
    for name in PROBES.names()
    if (name, kind in SAMPLED) != ("llc", True)
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_a_probe_measures_or_refuses(name: str, kind: str) -> None:
    """Nothing is found in weights of zero, no number of a sentence is none, and what needs every
    input of the task in its order refuses others. The result has the published schema, comes back
    from JSON as it was, and its figures are drawn.
    """
    calibration, subject = PROBES[name].calibration(), made(kind)
    suited = calibration.suited.get("composition", {}) if kind == "all answers" else {}
    random = SETTINGS.get(name, {}) if kind in RANDOM else {}
    probe = PROBES[name].from_dict({**calibration.test_settings, **suited, **random})
    try:
        result = probe.run(subject, seed=0)
    except MechintError as refused:
        assert "\n" not in str(refused)
        assert kind != "pairs of prompts" or name != "heads"
        needed = PROBES[name]().applicable(subject_of("transformer")) is None
        assert not (kind == "blocks of Llama" and needed and name != "norms")
        return
    assert kind != "logits that overflow" or Need.ANSWERS not in PROBES[name].needs
    assert not re.search(r"\bnan\b|\binf\b", result.finding), result.finding
    data = json.loads(result.to_json())
    assert not errors(data) and ProbeResult.from_dict(data) == result
    assert all(figure.drawing_html(key) for key, figure in result.figures.items())
    assert result.provenance["probe"]["answer"] == subject.answer
    if name == "lens" and subject.task is not None:  # of all answers each is counted
        right = subject.correct()[subject.targets != IGNORE].double().mean()
        assert result.metrics["lens.final_accuracy"] == pytest.approx(float(right), nan_ok=True)
    assert "examples" not in kind or Need.GRID not in PROBES[name].needs
    found = [one.headline for one in result.findings if one.verdict == "yes"]
    assert kind != "weights of zero" or not any(map(CAUSAL.search, found)), found
    # its sublayers write nothing, as none does at first
    assert kind != "weights of zero" or name == "norms" or not found, found


def early() -> Subject:
    """Output groups that are read after different layers."""
    sizes = {"d_model": 8, "d_vocab": 8, "d_vocab_out": 7, "n_layers": 2, "output_sizes": (3, 4)}
    model = HookedTransformer(ModelConfig(**sizes, n_heads=2, read_layers=(1, 2)))
    return Subject(model, tasks.make("modular-arithmetic", p=7))


def two_embeddings(**join: Any) -> Subject:
    sizes = {"d_vocab": 7, "d_vocab_out": 7, "d_embed": 6, "widths": (16,), "n_ctx": 3}
    model = PairNetwork(PairNetworkConfig(**sizes, join="concat", **join), seed=0)
    return Subject(model, tasks.make("modular-arithmetic", p=7))


def squares() -> Subject:
    return planted.lookup_table(tasks.make("modular-arithmetic", p=7, operation="x^2+y^2")).subject


def bottleneck() -> Subject:
    return planted.bottleneck(width=3, n=6, n_tasks=2, rank=2).subject


@pytest.mark.parametrize(
    ("name", "build", "settings", "reason"),
    [
        ("attribution", early, {}, "leave after different layers"),
        ("circuits", early, {}, "leave after different layers"),
        ("clock-pizza", lambda: two_embeddings(separate=True), {}, "embedding each"),
        ("clock-pizza", lambda: two_embeddings(separate=False), {}, "embedding each"),
        ("clock-pizza", squares, {}, "not a sum of two operands|neither the sum"),
        ("fourier", lambda: planted.group_product("S3").subject, {}, "irreps serves other groups"),
        ("heads", lambda: planted.induction_head(6, 4).subject, {}, "no pairs of prompts"),
        ("irreps", addition, {}, "cyclic: see fourier"),
        ("lens", early, {}, "leave after different layers"),
        ("llc", lambda: Subject(addition().model, None), {}, "no targets"),
        ("llc", bottleneck, {}, "example by example"),
        ("neurons", lambda: planted.comparison(12).subject, {}, "no input grid|all pairs|no MLP"),
        ("neurons", addition, {"most": 6}, "most allows 6"),
        ("subspace", addition, {}, "no encoder W_enc"),
        ("weights", bottleneck, {}, "no token embedding"),
        ("weights", lambda: Subject(addition().model, None), {}, "one layer of heads"),
    ],
)
def test_a_refusal_names_its_reason(
    name: str, build: Callable[[], Subject], settings: dict[str, Any], reason: str
) -> None:
    assert re.search(reason, PROBES[name].from_dict(settings).applicable(build()) or "")
