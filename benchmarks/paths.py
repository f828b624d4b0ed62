"""Path patching of every edge against TransformerLens's way: one hooked forward per edge.

The model has two layers on addition mod 59. TransformerLens's hooks patch an edge by replacing one
input of the receiver, a head's q, k or v, an MLP's input or the last residual stream, in a forward
of its own from the tokens; ours records two forwards and runs all edges stacked, each from its
receiver on. Both give the mean logit difference of every edge; they are held equal first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import BenchSettings, Row, paired, timer, versus
from mechint.config import ModelConfig
from mechint.errors import MechintError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import pair_all
from mechint.subject.pairs import Pairs
from probes._circuits import Edge, Graph, Node, Scorer
from probes._circuits.scoring import score

PAIRS, TARGET = 128, 4.0


def made() -> tuple[Subject, Pairs, Graph]:
    task = TASKS["modular-arithmetic"](p=59)
    config = ModelConfig.for_task(task, n_layers=2, d_model=64, init_mode="d_model")
    subject = Subject(HookedTransformer(config, seed=0).eval(), task)
    pairs = pair_all(subject, subject.data, None, 0)[:PAIRS]
    return subject, pairs, Graph(config, 1, (), ("pos",))


def ours(subject: Subject, pairs: Pairs, graph: Graph) -> np.ndarray:
    """(edge,) mean score when the edge alone carries the source."""
    scorer = Scorer(subject, graph, pairs, "resample")
    return scorer.path_scores().mean(1)


def theirs(subject: Subject, pairs: Pairs, graph: Graph) -> np.ndarray:
    """The same by plain hooks, one edge after the other."""
    model: Any = subject.model
    with torch.no_grad():
        _, clean = model.run_with_cache(pairs.base)
        _, other = model.run_with_cache(pairs.source)
        found = []
        for edge in graph.edges:
            change = _written(model, other, edge.sender) - _written(model, clean, edge.sender)
            name, edit = _edit(model, clean, edge, change)
            logits = model.run_with_hooks(pairs.base, fwd_hooks=[(name, edit)])[:, -1]
            assert subject.task is not None
            found.append(float(score(subject.task, logits, pairs, "resample").mean()))
    return np.array(found)


def _written(model: Any, cache: Any, sender: Node) -> Tensor:
    if sender.kind == "embed":
        return cache["hook_embed"]
    if sender.kind == "mlp":
        return cache[f"blocks.{sender.layer}.hook_mlp_out"]
    z = cache[f"blocks.{sender.layer}.attn.hook_z"][:, :, sender.head]
    return z @ model.blocks[sender.layer].attn.W_O[sender.head]


def _edit(model: Any, cache: Any, edge: Edge, change: Tensor) -> tuple[str, Any]:
    """The hook of the receiver's input, and what replaces it."""
    to = edge.receiver
    if to.kind == "logits":
        last = model.cfg.n_layers - 1
        return f"blocks.{last}.hook_resid_post", lambda x, hook: x + change
    if to.kind == "mlp":
        mlp = model.blocks[to.layer].mlp
        return f"blocks.{to.layer}.mlp.hook_pre", lambda x, hook: x + change @ mlp.W_in
    weight = getattr(model.blocks[to.layer].attn, f"W_{to.kind.upper()}")[to.head]

    def put(x: Tensor, hook: Any) -> Tensor:
        x = x.clone()
        x[:, :, to.head] += change @ weight
        return x

    return f"blocks.{to.layer}.attn.hook_{to.kind}", put


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The benchmark's row: seconds of ours and of the peer for all edges."""
    subject, pairs, graph = made()
    if not np.allclose(ours(subject, pairs, graph), theirs(subject, pairs, graph), atol=1e-4):
        raise MechintError("paths: ours and the hooked forwards' numbers differ")
    measured = paired(
        timer(lambda: ours(subject, pairs, graph)),
        timer(lambda: theirs(subject, pairs, graph)),
        bench.repeats(11),
    )
    yield versus(
        "path patching, every edge, 2 layers mod 59",
        measured,
        TARGET,
        against="TransformerLens's hooks, one forward per edge",
        note=f"{len(graph.edges)} edges, {PAIRS} pairs",
    )
