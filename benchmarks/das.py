"""DAS against pyvene's own training loop: same model, pairs, rank, optimizer and steps.

pyvene's IntervenableModel runs two whole forwards a step; ours computes the sources and everything
before the site once, and runs only from the site on. `rows` gives the ratio of medians of paired
runs, and both accuracies.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import BenchSettings, Row, paired, timer, versus
from mechint.config import ModelConfig
from mechint.interventions import select_positions
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import draw
from mechint.subject.pairs import Pairs
from probes._das import SwapSite, fit, interchange_accuracy

STEPS, BATCH, LR, HOOK = 100, 256, 0.02, "blocks.1.hook_resid_pre"
TARGET = 2.0


def pyvene_model(model: HookedTransformer, seed: int) -> tuple[Any, nn.Module]:
    """pyvene's IntervenableModel with one trainable rotation at `HOOK`, and the rotation."""
    with contextlib.redirect_stdout(io.StringIO()):  # what it says of packages that are missing
        import pyvene

    torch.manual_seed(seed)
    rotation = pyvene.LowRankRotatedSpaceIntervention(
        embed_dim=model.config.d_model, low_rank_dimension=1
    )
    config = pyvene.IntervenableConfig(
        {"component": "blocks[1].hook_resid_pre.output", "intervention": rotation}
    )
    return pyvene.IntervenableModel(config, model), rotation


def pyvene_logits(intervenable: Any, pairs: Pairs) -> Tensor:
    _, counterfactual = intervenable(
        {"tokens": pairs.base}, [{"tokens": pairs.source}], {"sources->base": 0}
    )
    return select_positions(counterfactual, pairs.reads)


def pyvene_fit(model: HookedTransformer, pairs: Pairs, seed: int) -> Any:
    intervenable, rotation = pyvene_model(model, seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(rotation.parameters(), lr=LR)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    for _ in range(STEPS):
        batch = pairs[torch.randint(len(pairs), (BATCH,), generator=generator)]
        loss = nn.functional.cross_entropy(pyvene_logits(intervenable, batch), batch.labels[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return intervenable


def trained() -> Subject:
    """A comparison model of two layers, 1,000 steps."""
    task = TASKS["comparison"]()
    config = ModelConfig.for_task(task, n_layers=2, d_model=64, init_mode="d_model")
    model = HookedTransformer(config, seed=0)
    data = task.examples()
    data, generator = data[task.split(0)["train"]], torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.3, betas=(0.9, 0.98))
    for _ in range(1000):
        batch = data[torch.randint(len(data), (512,), generator=generator)]
        loss = nn.functional.cross_entropy(model(batch.tokens)[:, -1], batch.targets[:, -1, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Subject(model, task)


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The benchmark's row: seconds of ours and of the peer for one alignment, and both accuracies
    on the same held-out pairs.
    """
    subject = trained()
    assert subject.task is not None
    pairs = draw(subject, subject.task.variables["rank of a"], 3072, 0)
    train, test = pairs[:2048], pairs[2048:]
    pyvene_model(subject.model, 0)  # its import is not what is timed
    found: dict[str, Any] = {}

    def ours() -> None:
        assert subject.task is not None
        found["subspace"], _ = fit(
            SwapSite(subject, train, HOOK, 0),
            subject.task,
            1,
            steps=STEPS,
            batch_size=BATCH,
            lr=LR,
            seed=0,
        )

    def theirs() -> None:
        found["intervenable"] = pyvene_fit(subject.model, train, 0)

    measured = paired(timer(ours), timer(theirs), bench.repeats(3))
    with torch.no_grad():
        iia_theirs = float(
            (pyvene_logits(found["intervenable"], test).argmax(-1) == test.labels[:, 0])
            .double()
            .mean()
        )
    iia = float(
        interchange_accuracy(subject, SwapSite(subject, test, HOOK, 0), found["subspace"])
        .double()
        .mean()
    )
    note = (
        f"IIA on {len(test)} held-out pairs {iia:.3f}, pyvene's {iia_theirs:.3f}; {STEPS} steps "
        f"of {BATCH} pairs"
    )
    row = versus(
        "DAS, comparison, 1-D, 2 layers",
        measured,
        TARGET,
        against="pyvene's loop",
        note=note,
        iia=iia,
        iia_peer=iia_theirs,
    )
    row["met"] = row["met"] and iia >= iia_theirs - sampling_error(iia_theirs, len(test))
    yield row


def sampling_error(share: float, n: int) -> float:
    """Two standard errors of the difference of two shares of `n` pairs near `share`."""
    return 2 * math.sqrt(2 * share * (1 - share) / n)
