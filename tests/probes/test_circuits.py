"""Circuits against a forward node by node, hooks of bridges, finite differences, linear models and
planted mechanisms.
"""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import DataError, NotApplicableError, ParameterError
from mechint.interventions import EditedRuns
from mechint.models.foreign.bridge import bridge_of
from mechint.models.transformer import HookedTransformer
from mechint.planted import library
from mechint.probe.results import ProbeResult
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import pair_all, unpaired
from probes._circuits import (
    Cut,
    Edge,
    Graph,
    Node,
    Scorer,
    edge_attribution,
    find_circuit,
    from_mib,
    path_patching,
    random_circuits,
    sender_outputs,
    to_mib,
)
from probes._circuits.choosing import paired, shape_of, split
from probes._circuits.graph import Shape
from probes._circuits.search import curve_of, needed_components, without_each, without_others
from probes._effects import Effects
from tests.conformance import architectures

N, POS = 4, 5

MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "layer norm": {"normalization_type": "LN"},
    "bidirectional, attention only": {"attention_dir": "bidirectional", "attn_only": True},
    "weight-tied": {"n_layers": 1, "n_loops": 2, "normalization_type": "LNPre"},
}
every = pytest.mark.parametrize("kind", MODELS)


@cache
def made(kind: str) -> HookedTransformer:
    sizes = {"n_layers": 2, "d_model": 6, "n_heads": 2, "d_mlp": 5, "d_vocab": 7, "n_ctx": POS}
    config = ModelConfig(**{**sizes, "d_vocab_out": 7, "init_mode": "d_model", **MODELS[kind]})
    model = HookedTransformer(config, seed=1).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.rpartition(".")[2].startswith("b"):
                value.copy_(torch.randn(value.shape, generator=generator).double())
    return model


def inputs(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    base, source = torch.randint(7, (2, N, POS), generator=generator)
    return base, source, torch.full((N,), POS - 1)


def cut_of(kind: str, groups: int, stack: int = 1 << 24) -> tuple[Graph, Cut]:
    model, (base, source, reads) = made(kind), inputs()
    graph = Graph(model.config, groups, (POS - 1,))
    written = sender_outputs(EditedRuns(model, source, reads), graph)
    return graph, Cut(EditedRuns(model, base, reads, stack=stack), graph, written)


# --- the forward ----------------------------------------------------------------------------------
def written(cache: Any, model: HookedTransformer, node: Node) -> Tensor:
    """What a sender adds to the residual stream, from the cache of a hooked forward."""
    if node.kind in ("embed", "pos"):
        return cache["hook_embed" if node.kind == "embed" else "hook_pos_embed"]
    if node.kind == "mlp":
        return cache[f"blocks.{node.layer}.hook_mlp_out"]
    weights = model.weights()[f"blocks.{node.layer % model.config.n_layers}.attn.W_O"]
    return cache[f"blocks.{node.layer}.attn.hook_z"][:, :, node.head] @ weights[node.head]


def normed(model: HookedTransformer, x: Tensor, name: str) -> Tensor:
    kind = model.config.normalization_type
    if kind is None:
        return x
    x = x - x.mean(-1, keepdim=True)
    x = x / (x.var(-1, keepdim=True, unbiased=False) + model.config.eps).sqrt()
    p = model.weights()
    return x * p[f"{name}.w"] + p[f"{name}.b"] if kind == "LN" else x


def node_by_node(kind: str, graph: Graph, kept: np.ndarray, group: bool) -> Tensor:
    """The circuit's logits by one node after the other, its inputs summed edge by edge."""
    model, (base, source, _) = made(kind), inputs()
    p, config = model.weights(), model.config
    _, other = model.run_with_cache(source)
    _, clean = model.run_with_cache(base)
    members = {
        (str(e.sender), str(e.receiver), e.group)
        for e, k in zip(graph.edges, kept, strict=True)
        if k
    }
    now: dict[str, Tensor] = {}

    def given(receiver: Node) -> Tensor:
        total = torch.zeros(N, POS, config.d_model, dtype=torch.float64)
        for sender in graph.senders:
            if sender.depth >= receiver.depth:
                continue
            for pos in range(POS):
                edge = (str(sender), str(receiver), pos if group else None)
                run = now[str(sender)] if edge in members else written(other, model, sender)
                total[:, pos] += run[:, pos]
        for layer in range(config.depth):
            if 2 * layer < receiver.depth:
                total = total + p[f"blocks.{layer % config.n_layers}.attn.b_O"]
        return total

    for sender in graph.senders:
        block = f"blocks.{sender.layer % config.n_layers}"
        if sender.depth < 0:
            now[str(sender)] = written(clean, model, sender)
        elif sender.kind == "mlp":
            x = normed(model, given(sender), f"{block}.ln2")
            hidden = (x @ p[f"{block}.mlp.W_in"] + p[f"{block}.mlp.b_in"]).relu()
            now[str(sender)] = hidden @ p[f"{block}.mlp.W_out"] + p[f"{block}.mlp.b_out"]
        else:
            q, k, v = (
                normed(model, given(Node(one, sender.layer, sender.head)), f"{block}.ln1")
                @ p[f"{block}.attn.W_{one.upper()}"][sender.head]
                + p[f"{block}.attn.b_{one.upper()}"][sender.head]
                for one in "qkv"
            )
            scores = q @ k.transpose(1, 2) / config.scale
            if config.attention_dir == "causal":
                scores = scores.masked_fill(torch.ones(POS, POS).triu(1).bool(), -torch.inf)
            now[str(sender)] = scores.softmax(-1) @ v @ p[f"{block}.attn.W_O"][sender.head]
    x = normed(model, given(graph.receivers[-1]), "ln_final")
    return (x @ p["unembed.W_U"] + p["unembed.b_U"])[:, POS - 1]


@every
@pytest.mark.parametrize("groups", [1, POS])
def test_path_patching_is_the_circuit_without_one_edge(kind: str, groups: int) -> None:
    graph, patched = cut_of(kind, groups)
    kept = ~np.eye(len(graph.edges), dtype=bool)
    alone = patched.logits(torch.from_numpy(kept))
    for i in range(0, len(graph.edges), 5 if groups == 1 else 29):
        expected = node_by_node(kind, graph, kept[i], groups > 1)
        assert torch.allclose(alone[i], expected, atol=1e-10), str(graph.edges[i])


@every
@pytest.mark.parametrize("groups", [1, POS])
def test_circuits_are_those_of_a_forward_node_by_node(kind: str, groups: int) -> None:
    graph, patched = cut_of(kind, groups)
    kept = np.random.default_rng(0).random((3, len(graph.edges))) < 0.6
    kept[0], kept[1] = True, False
    found = patched.logits(torch.from_numpy(kept))
    base, source, reads = inputs()
    assert torch.allclose(found[0], made(kind)(base)[:, reads[0]], atol=1e-10)
    assert torch.allclose(found[1], made(kind)(source)[:, reads[0]], atol=1e-10)
    expected = node_by_node(kind, graph, kept[2], groups > 1)
    assert torch.allclose(found[2], expected, atol=1e-10)
    _, alone = cut_of(kind, groups, stack=0)  # one case at a time
    assert torch.allclose(alone.logits(torch.from_numpy(kept)), found, atol=1e-12)


# --- bridges --------------------------------------------------------------------------------------
@cache
def bridge(kind: str) -> Any:
    return bridge_of(architectures.made(kind)).double()


def by_repeated_runs(model: Any, graph: Graph, kept: np.ndarray) -> Tensor:
    """The circuit's logits by plain hooks: every receiver is given the source's stream and what the
    kept senders changed in the run before, until a change has passed through all nodes.
    """
    (base, other, reads), depth = inputs(), graph.config.depth
    chosen = [edge for edge, k in zip(graph.edges, kept, strict=True) if k]
    points = ("hook_resid_pre", "attn.hook_z", "hook_attn_out", "hook_mlp_out", "hook_resid_post")

    def run(tokens: Tensor, hooks: Any = ()) -> tuple[Tensor, Any]:
        seen: dict[tuple[int, str], Tensor] = {}
        for place in itertools.product(range(depth), points):
            name = "blocks.{}.{}".format(*place)
            hooks = [*hooks, (name, lambda x, hook, at=place: seen.__setitem__(at, x.clone()))]
        return model.run_with_hooks(tokens, fwd_hooks=hooks), seen

    def written(seen: Any, node: Node) -> Tensor:
        if node.kind == "embed":
            return seen[0, "hook_resid_pre"]
        if node.kind == "mlp":
            return seen[node.layer, "hook_mlp_out"]
        attn, z = model.blocks[node.layer].attn, seen[node.layer, "attn.hook_z"]
        each = torch.einsum("bphd,hdm->hbpm", z, attn.W_O)
        out = seen[node.layer, "hook_attn_out"] - (0 if attn.b_O is None else attn.b_O)
        return each[node.head] * out / each.sum(0)  # as a norm behind attention scales it

    def change(edge: Edge) -> Tensor:
        return written(now, edge.sender) - written(source, edge.sender)

    (logits, now), (_, source) = run(base), run(other)
    for _ in range(2 * depth + 1):
        hooks = []
        for (kind, layer), nodes in itertools.groupby(
            graph.receivers, lambda one: (one.kind, min(one.layer, depth - 1))
        ):
            given = source[layer, "hook_resid_post" if kind == "logits" else "hook_resid_pre"]
            if kind == "mlp" and not graph.config.parallel:
                given = given + source[layer, "hook_attn_out"]
            streams = [
                given + sum(change(edge) for edge in chosen if edge.receiver == node)
                for node in nodes
            ]
            value = torch.stack(streams, 2) if kind in "qkv" else streams[0]
            name = {"mlp": "hook_mlp_in", "logits": "hook_resid_post"}.get(
                kind, f"hook_{kind}_input"
            )
            hooks.append((f"blocks.{layer}.{name}", lambda x, hook, v=value: v))
        logits, now = run(base, hooks)
    return logits[torch.arange(N), reads]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox", "gemma3_text", "olmo2"])
def test_circuits_of_a_bridge_are_those_of_its_hooks(kind: str) -> None:
    model = bridge(kind)
    base, source, reads = inputs()
    shape = shape_of(model)
    assert isinstance(shape, Shape) and shape.parallel == (kind == "gpt_neox")
    graph = Graph(shape, 1, (POS - 1,))
    assert graph.n_edges == len(graph.edges)
    written = sender_outputs(EditedRuns(model, source, reads), graph)
    cut = Cut(EditedRuns(model, base, reads), graph, written)
    kept = np.random.default_rng(0).random((3, len(graph.edges))) < 0.6
    kept[0], kept[1] = True, False
    found = cut.logits(torch.from_numpy(kept))
    with torch.no_grad():
        assert torch.allclose(found[0], model(base)[torch.arange(N), reads], atol=1e-5)
        assert torch.allclose(found[1], model(source)[torch.arange(N), reads], atol=1e-5)
        for turn in (model.set_use_split_qkv_input, model.set_use_hook_mlp_in):
            turn(True)
        expected = by_repeated_runs(model, graph, kept[2])
        for turn in (model.set_use_split_qkv_input, model.set_use_hook_mlp_in):
            turn(False)
    assert torch.allclose(found[2], expected, atol=1e-5)
    assert (found[2] - found[:2]).abs().amax((1, 2)).min() > 0.05
    # the gradient along an edge, by a small step
    slopes = cut.attributed(1.0, lambda logits, rows: logits[:, 3])
    nearly = np.ones((2, len(graph.edges)))
    nearly[[0, 1], [0, -1]] -= 1e-3
    step = (found[0] - cut.logits(torch.from_numpy(nearly)))[..., 3].sum(1) / 1e-3
    assert step.numpy() == pytest.approx(slopes[[0, -1]], abs=1e-2 * np.abs(slopes).max())


def test_an_mlp_that_reads_what_attention_reads_is_refused() -> None:
    assert "hook_mlp_in: it does not run" in str(shape_of(bridge("phi")))
    assert "wrapped module" in str(shape_of(mechint.wrap(torch.nn.Embedding(5, 3), {})))


# --- effects --------------------------------------------------------------------------------------
def scorer(model: Any, groups: int = 1, ablation: Any = "resample") -> Scorer:
    task = TASKS["modular-arithmetic"](p=5)
    subject = Subject(model, task)
    pairs = pair_all(subject, subject.data, None, 0)
    if ablation == "mean":
        pairs = unpaired(subject, subject.data[:9])  # of all inputs a linear model's score is 0
    return Scorer(subject, Graph(model.config, groups, (2,), ("pos",)), pairs, ablation)


def small(**changes: Any) -> HookedTransformer:
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_mlp": 6, "d_vocab": 6, "n_ctx": 3}
    config = ModelConfig(**{**sizes, "d_vocab_out": 5, "init_mode": "d_model", **changes})
    return HookedTransformer(config, seed=2).double().eval()


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("ablation", ["resample", "mean"])
def test_edge_attribution_is_exact_where_the_model_is_linear(groups: int, ablation: str) -> None:
    one = scorer(small(attention_rate=0.0, attn_only=True), groups, ablation)
    exact = path_patching(one)
    assert np.abs(exact).max() > 0.05
    assert edge_attribution(one) == pytest.approx(exact, abs=1e-9)
    assert edge_attribution(one, steps=3) == pytest.approx(exact, abs=1e-9)


# --- search and random circuits -------------------------------------------------------------------
def test_no_edge_of_a_found_circuit_can_go() -> None:
    one = scorer(small())
    for threshold in (0.5, 0.9):
        kept = find_circuit(one, path_patching(one), threshold)
        assert one.faithfulness(kept[None])[0] >= threshold
        assert (one.effects(without_each(kept)).shares().low < threshold).all()


def test_random_circuits_have_the_size_and_are_made_of_paths() -> None:
    graph = Graph(made("plain").config, POS, (POS - 1,))
    for size in (1, 6, len(graph.edges) - 1):
        drawn = random_circuits(graph, size, 5, 0)
        assert (drawn.sum(1) == size).all() and len(np.unique(drawn, axis=0)) == len(drawn) == 5
    assert len(random_circuits(graph, len(graph.edges), 5, 0)) == 1
    generator = np.random.default_rng(0)
    for _ in range(50):
        path = [graph.edges[i] for i in graph._random_path(generator)]
        assert path[0].receiver.kind == "logits" and path[-1].sender.depth == -1
        for later, earlier in itertools.pairwise(path):
            assert later.sender.component == earlier.receiver.component
            assert earlier.group <= later.group  # type: ignore[operator]


# --- planted mechanisms ---------------------------------------------------------------------------
def edges_of(result: ProbeResult) -> set[tuple[str, str]]:
    columns = result.tables["edges"].columns
    return set(zip(columns["sender"], columns["receiver"], strict=True))


SMALL = {"pairs": 48, "held_out": 64, "null_samples": 99}


def test_planted_induction_is_found_edge_by_edge() -> None:
    plant = planted.induction_head(8, 4, noise=0.02, rotation_seed=1, seed=1)
    heads = {role: "L{}H{}".format(*place) for role, place in plant.truth["heads"].items()}
    previous, induction = heads["previous token"], heads["induction"]
    result = probe.run("circuits", plant.subject, by_position=False, **SMALL)
    assert edges_of(result) == {
        ("embed", f"{previous}.v"),
        (previous, f"{induction}.k"),
        ("embed", f"{induction}.q"),
        ("embed", f"{induction}.v"),
        (induction, "logits"),
    }
    assert result.verdict == "yes" and result.metrics["accuracy"] == 1.0
    assert result.metrics["faithfulness"] == pytest.approx(1, abs=0.05)
    assert result.metrics["completeness"] == pytest.approx(1, abs=0.05)


def test_planted_addition_is_found_at_its_positions() -> None:
    plant = planted.modular_addition(11, (2, 5), rotation_seed=1)
    a, b = ("L{}H{}".format(*plant.truth["heads"][role]) for role in "ab")
    result = probe.run("circuits", plant.subject, **SMALL)
    columns = result.tables["edges"].columns
    found = set(zip(*(columns[name] for name in ("sender", "receiver", "position")), strict=True))
    assert found == {
        ("embed", f"{a}.v", "x"),
        ("embed", f"{b}.v", "y"),
        (a, "L0 MLP", "="),
        (b, "L0 MLP", "="),
        ("L0 MLP", "logits", "="),
    }
    assert result.metrics["all_inputs"] and result.metrics["pairs_judged"] == 121
    assert result.verdict == "yes" and result.hero == "circuit"
    one = probe.run("circuits", plant.subject, variable="x", **SMALL)
    assert edges_of(one) == {("embed", f"{a}.v"), (a, "L0 MLP"), ("L0 MLP", "logits")}
    assert one.metrics["minimality"] == pytest.approx(1, abs=1e-3)


def test_all_answers_are_asked_about_together() -> None:
    subject = library.pointer_doubling(0.0, 0).subject.with_answer("all")
    every = len(subject.answers.positions.unique())
    for variable, reads in ((None, every), ("2-hop of 0", 1)):
        chosen = None if variable is None else subject.task.variables[variable]
        ablation: Any = "mean" if variable is None else "counterfactual"
        pairs, share = paired(subject, ablation, chosen, 0, True)
        assert len(pairs.reads.unique()) == reads and share == 1


@pytest.mark.parametrize(("size", "sets"), [(0, 1), (1, 7), (2, 15), (5, 1), (8, 1)])
def test_edges_outside_a_circuit_are_taken_out_in_every_way_once(size: int, sets: int) -> None:
    """Of 8 edges; the sets by enumeration, of which 2 of 6 alone are more than 9."""
    kept = np.isin(np.arange(8), np.random.default_rng(size).permutation(8)[:size])
    others = np.flatnonzero(~kept)
    possible = {tuple(chosen) for chosen in itertools.combinations(others, min(size, len(others)))}
    assert len(possible) == sets
    for asked in (9, 40):
        drawn = [tuple(np.flatnonzero(~one)) for one in without_others(kept, asked, 0)]
        assert len(drawn) == len(set(drawn)) == min(asked, sets) and set(drawn) <= possible


@pytest.mark.parametrize("held_out", [64, 4096])
def test_all_answers_of_an_example_are_on_one_side(held_out: int) -> None:
    """Of 40 examples all 34 that the search had seen were among those called held-out."""
    subject = planted.composition(5, 4).subject
    subject = subject.with_data(subject.data[:40]).with_answer("all")
    every, _ = paired(subject, "mean", None, 0, False)
    search, judged, unseen = split(subject, every, 48, held_out)
    seen, held, fresh = (
        {tuple(row) for row in one.base.tolist()} for one in (search, judged, unseen)
    )
    count = len(subject.answers)
    assert len(every) == 40 * count and every.n_examples == 40
    assert 10 < len(seen) <= 20 and not seen & held and not seen & fresh
    assert (len(search), len(judged), len(unseen)) == (48, min(held_out, 20 * count), 48)
    assert judged.n_examples == len(held) <= 20


# --- exact tests, one class, and circuits by size -------------------------------------------------
def test_a_small_graph_is_decided_by_all_its_circuits() -> None:
    """5 edges of 13: the 8 others make 56 sets of as many, of which none does what the circuit
    does, so that p is 1 / 57; it was p ≤ 0.005 once, and then no answer.
    """
    subject = planted.modular_addition(11, (1, 2)).subject
    settings = {"pairs": 16, "held_out": 64, "null_samples": 199, "by_position": False}
    result = probe.run("circuits", subject, **settings)
    assert (result.metrics["edges"], result.metrics["graph_edges"]) == (5, 13)
    null = result.null["necessity"]
    assert null.samples == 56 and math.isclose(null.p_value, 1 / 57)
    (finding,) = result.findings
    assert finding.verdict == "yes" and finding.p_value == null.p_value
    assert finding.alpha == pytest.approx(1 / 57) and "56" in finding.caveat


def test_examples_of_one_answer_judge_no_circuit() -> None:
    """Their score is a bias, which no edge is needed for: shares of 23084285.9% were printed."""
    subject = planted.modular_addition(11, (2, 5)).subject
    alone = subject.with_data(subject.data[subject.data.targets[:, -1, 0] == 3])
    result = probe.run("circuits", alone, **SMALL)
    assert result.verdict == "unclear" and "faithfulness" not in result.metrics
    assert "one answer" in result.findings[0].reason


def test_cpr_and_cmd_are_integrals_over_the_share_of_edges() -> None:
    """Of faithfulness that is the square root of the share: 2/3, and 1/3 away from the model."""
    n = 4000
    one = np.arange(1)
    root: Any = SimpleNamespace(
        effects=lambda kept: Effects(0.0 * one, one + 1.0, np.sqrt(kept.mean(1))[:, None], one)
    )
    curve, _ = curve_of(root, np.arange(n, 0.0, -1))
    assert curve.sizes.tolist() == [0, 4, 8, 20, 40, 80, 200, 400, 800, 2000, 4000]
    x = curve.sizes / n
    areas = np.diff(x) * (np.sqrt(x[1:]) + np.sqrt(x[:-1])) / 2
    assert curve.cpr == pytest.approx(areas.sum()) == pytest.approx(2 / 3, abs=0.02)
    assert curve.cmd == pytest.approx(1 - curve.cpr)


@pytest.mark.parametrize("groups", [1, POS])
def test_circuits_are_written_and_read_as_mib_does(groups: int) -> None:
    """Its names by hand; 2 layers of 2 heads have 1 + 4 + 2 senders, and the logits."""
    graph = Graph(made("plain").config, groups, (POS - 1,), ("pos",))
    effects = np.random.default_rng(0).normal(size=len(graph.edges))
    kept = effects > 0.5
    made_up = json.loads(json.dumps(to_mib(graph, kept, effects)))
    assert set(made_up["nodes"]) == {
        *("input", "a0.h0", "a0.h1", "m0", "a1.h0", "a1.h1", "m1", "logits")
    }
    assert {"input->a0.h0<q>", "a0.h1->m0", "m0->a1.h0<v>", "m1->logits"} <= set(made_up["edges"])
    assert made_up["cfg"]["n_layers"] == 2
    again, scores = from_mib(graph, made_up)
    assert (again >= kept).all()
    if groups == 1:
        assert (again == kept).all() and scores == pytest.approx(effects)
    ends = {
        end
        for name, one in made_up["edges"].items()
        if one["in_graph"]
        for end in name.split("<")[0].split("->")
    }
    assert {name for name, one in made_up["nodes"].items() if one["in_graph"]} == ends
    with pytest.raises(DataError, match="edge 'm7->logits' is none of this model's"):
        from_mib(graph, {"edges": {"m7->logits": {"in_graph": True}}})


@pytest.mark.full
@pytest.mark.parametrize(("variable", "head"), [("pair_1", "L0H0"), ("pair_0", "L0H1")])
def test_a_mechanism_enforced_by_training_is_found(
    variable: str, head: str, published: Path
) -> None:
    """Equality of a pair, held by one head of the first layer (strict interchange training), at
    default settings: of the test split only 17 different inputs change their answer with a pair.
    """
    path = published / "siit" / "palindromes.pt"
    subject = mechint.load(path, task="palindromes", n=6, half_length=2)
    result = probe.run("circuits", subject, variable=variable)
    first = {one for one in result.metrics["components"] if one.startswith("L0H")}
    assert first == {head} and result.verdict == "yes" and result.metrics["accuracy"] == 1.0
    assert result.metrics["examples_judged"] > 48
    whole = probe.run("circuits", subject, pairs=64, held_out=128)
    assert whole.verdict == "yes" and 0.8 < whole.metrics["faithfulness"] < 1.1
    assert {"L0H0", "L0H1"} <= set(whole.metrics["components"])


def test_components_that_carry_little_together_are_not_named() -> None:
    """Edges that each carry a share of their own: L0H1 2%, L0H2 2.5%, L0H0 and the MLP the rest."""
    config = ModelConfig(n_layers=1, d_model=12, n_heads=3, n_ctx=3, d_vocab=5, d_vocab_out=5)
    graph, shares = Graph(config), {"L0H0": 0.3, "L0H1": 0.02, "L0H2": 0.025, "L0 MLP": 0.655}
    kept = np.array([one.receiver.kind in ("v", "mlp", "logits") for one in graph.edges])
    worth = np.array(
        [
            shares.get(one.sender.component, 0.0) * (one.receiver.kind == "logits")
            for one in graph.edges
        ]
    )
    scorer: Any = SimpleNamespace(graph=graph, faithfulness=lambda circuits: circuits @ worth)
    assert set(graph.components(kept)) == {*shares}
    found = needed_components(scorer, kept, 0.05)
    assert found == pytest.approx({"L0H0": 0.3, "L0 MLP": 0.655})
    assert set(needed_components(scorer, kept, 0.03)) == {"L0H0", "L0H2", "L0 MLP"}
    assert needed_components(scorer, ~kept & False, 0.05) == {}


def test_of_few_examples_each_has_several_sources() -> None:
    subject = planted.modular_addition(7, (1, 2)).subject
    metrics = probe.run("circuits", subject, variable="x", null_samples=19).metrics
    assert metrics["examples_judged"] <= 49 and metrics["pairs_judged"] > 4 * 49


# --- where it must be silent ----------------------------------------------------------------------


def test_refusals_are_one_line() -> None:
    subject = planted.modular_addition(7, (1, 2)).subject

    class Foreign(HookedTransformer):
        """A model that only runs from its tokens."""

        capabilities = frozenset()

    with pytest.raises(NotApplicableError, match="ask patching, attribution or heads") as caught:
        probe.run("circuits", subject.with_model(Foreign(subject.model.config)))
    assert "\n" not in str(caught.value)
    with pytest.raises(ParameterError, match="none with ablation=mean"):
        probe.run("circuits", subject, variable="x", ablation="mean")


@pytest.mark.parametrize("seed", [0, 1])
def test_shares_are_of_a_score_that_the_edges_raise(seed: int) -> None:
    """All edges of an untrained model may score what none scores: that has no shares."""
    subject = planted.modular_addition(11, (2, 5)).subject.untrained(seed)
    result = probe.run("circuits", subject, only_correct=False, **SMALL)
    low, high = result.metrics["score_without_edges"], result.metrics["score"]
    assert result.verdict != "yes"
    assert ("faithfulness" in result.metrics) <= (high - low >= 0.05 * max(abs(low), abs(high)))
