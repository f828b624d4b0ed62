"""Layer × position × head patching against TransformerLens's own, on the same pairs of a one-layer
model mod 113.

TransformerLens runs one hooked forward a head and position; ours records two forwards and runs all
heads stacked from where they enter the residual stream. Both give the logit difference of every
patch; they are held equal first.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import torch
from torch import Tensor
from transformer_lens import patching

from benchmarks.timing import BenchSettings, Row, paired, timer, versus
from mechint.config import ModelConfig
from mechint.errors import MechintError
from mechint.interventions import Site, Take
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.subject.pairs import Pairs, logit_difference
from probes._effects import Cases

PAIRS, TARGET = 512, 4.0


def made() -> tuple[Subject, Pairs]:
    task = TASKS["modular-arithmetic"](p=113)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=128), seed=0).eval()
    subject = Subject(model, task)
    return subject, draw(
        subject, choose_variable(task, None), PAIRS, 0, only_correct=False, relation="minimal"
    )


def ours(subject: Subject, pairs: Pairs) -> Tensor:
    """(layer · pos · head,) mean logit difference of every patch."""
    assert subject.task is not None
    config = subject.model.config
    components = [
        Site.head(layer, head, pos)
        for layer in range(config.depth)
        for pos in range(pairs.base.shape[1])
        for head in range(config.n_heads)
    ]
    cases = Cases(subject, pairs.base, pairs.reads, {"own": pairs.source})
    _, runs, base, sources = next(cases.parts())
    source = sources["own"]
    logits = runs.under([Take(one, source) for one in components], base)
    return logit_difference(subject.task, logits, pairs).mean(-1)


def theirs(subject: Subject, pairs: Pairs) -> Tensor:
    """The same by TransformerLens: the base is its corrupted run, the source its clean one."""
    task = subject.task
    assert task is not None

    def metric(logits: Tensor) -> Tensor:
        return logit_difference(task, logits[:, -1], pairs).mean()

    with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):  # its progress bars
        _, cache = subject.model.run_with_cache(pairs.source)
        by_place = patching.get_act_patch_attn_head_out_by_pos(
            subject.model, pairs.base, cache, metric
        )
    return by_place.flatten()


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The benchmark's row: seconds of ours and of the peer for all patches."""
    subject, pairs = made()
    if not torch.allclose(ours(subject, pairs), theirs(subject, pairs), atol=1e-5):
        raise MechintError("patching: ours and TransformerLens's numbers differ")
    measured = paired(
        timer(lambda: ours(subject, pairs)),
        timer(lambda: theirs(subject, pairs)),
        bench.repeats(11),
    )
    yield versus(
        "patching, layer × position × head, 1 layer mod 113",
        measured,
        TARGET,
        against="TransformerLens's patching",
        note=f"{PAIRS} pairs",
    )
