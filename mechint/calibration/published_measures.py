"""How each published figure is measured here: functions of a checkpoint's path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mechint.registry import PROBES

TASK_OF: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "baseline.pt": ("modular-arithmetic", {"p": 113}),
    "low_precision_mod_addition.pth": ("modular-arithmetic", {"p": 113}),
    "sum_model.pt": ("digit-sum", {"digits": 4}),
}
"""Files that do not name their task, and what they were trained on."""


@cache
def _opened(path: Path) -> Any:
    from mechint.checkpoints import load_checkpoint

    task, parameters = TASK_OF.get(path.name, (None, {}))
    return load_checkpoint(path, task=task, parameters=parameters)


@cache
def _metrics(path: Path, probe: str) -> Mapping[str, Any]:
    return PROBES[probe]().run(_opened(path).subject()).metrics


def number(probe: str, metric: str, *keys: str) -> Callable[[Path], float]:
    """A metric of a probe, or an entry of one that is a mapping."""

    def read(path: Path) -> float:
        value = _metrics(path, probe)[metric]
        for key in keys:
            value = {str(name): item for name, item in value.items()}[key]
        return float(value)

    return read


def names(probe: str, metric: str) -> Callable[[Path], tuple[Any, ...]]:
    """A metric that is a list, sorted, or a name."""

    def read(path: Path) -> tuple[Any, ...]:
        value = _metrics(path, probe)[metric]
        return (value,) if isinstance(value, str) else tuple(sorted(value))

    return read


def loss(split: str) -> Callable[[Path], float]:
    """The mean loss on a split of the published training (nats), in float64."""

    def read(path: Path) -> float:
        subject = _opened(path).subject()
        assert subject.split is not None
        part = subject.with_data(subject.data[subject.split[split].to(subject.device)])
        return next(iter(part.loss().values()))

    return read


def whole(measure: str) -> Callable[[Path], float]:
    """ "loss" (nats) or "accuracy" over all of the task's examples."""

    def read(path: Path) -> float:
        return next(iter(getattr(_opened(path).subject(), measure)().values()))

    return read


@cache
def _chances(path: Path) -> Any:
    """(answer,) probability of the right digit, over 2,000 random sums."""
    import torch

    subject = _opened(path).subject()
    batch = subject.task.sample(2000, 0)
    with torch.no_grad():
        logits = subject.model(batch.tokens)[:, list(subject.task.answer_positions)]
    return logits.double().log_softmax(-1).gather(-1, batch.answers.targets).flatten().exp()


def chance_of_the_right_digit(summary: str) -> Callable[[Path], float]:
    """ "mean", "median", or "loss", the mean of -log, in nats."""

    def read(path: Path) -> float:
        chances = _chances(path)
        if summary == "loss":
            return float(-chances.log().mean())
        return float(getattr(chances, summary)())

    return read


@cache
def _induction_scores(path: Path) -> Mapping[str, float]:
    probe = PROBES["attention"].from_dict({"examples": 512, "samples": 1})
    return probe.run(_opened(path).subject()).metrics["induction.score"]


def induction_score(head: str) -> Callable[[Path], float]:
    """Of one head, over 512 sequences."""
    return lambda path: _induction_scores(path)[head]


@cache
def _without_attention(path: Path) -> Mapping[str, float]:
    """What the induction model loses without its second attention layer, whose output is replaced
    by its mean: accuracy (0–1) and loss (nats) inside repeats, on sequences of token 0 and three
    blocks of 28 tokens, with a copy of the piece at the same place in each.
    """
    import torch

    model, task = _opened(path).model, _opened(path).task
    generator = torch.Generator().manual_seed(0)
    n, block = 256, (task.n_ctx - 1) // task.copies
    tokens = torch.randint(task.n, (n, task.n_ctx), generator=generator)
    tokens[:, 0] = 0
    piece = torch.rand(n, task.n, generator=generator).argsort(1)[:, : task.length]
    offset = torch.randint(block - task.length + 1, (n, 1), generator=generator)
    inside = offset + torch.arange(task.length)
    for copy in range(task.copies):
        tokens.scatter_(1, 1 + copy * block + inside, piece)
    read = torch.cat([1 + copy * block + inside[:, :-1] for copy in range(1, task.copies)], 1)
    targets = tokens.gather(1, read + 1)

    def scores(hooks: list[Any]) -> tuple[float, float]:
        with torch.no_grad():
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
        logits = logits[torch.arange(n)[:, None], read]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return float((logits.argmax(-1) == targets).double().mean()), float(loss)

    whole_accuracy, whole_loss = scores([])
    mean = ("blocks.1.hook_attn_out", lambda x, hook: x.mean(0, keepdim=True).expand_as(x))
    accuracy, loss = scores([mean])
    return {"accuracy": whole_accuracy - accuracy, "loss": loss - whole_loss}


def lost_without_attention(measure: str) -> Callable[[Path], float]:
    """ "accuracy" (0–1) or "loss" (nats) that the second attention layer is worth."""
    return lambda path: _without_attention(path)[measure]


def carry_dimensions(path: Path) -> float:
    """Dimensions of the subspace that holds the carry from tens to hundreds after the first layer,
    at the last digit; 0 where none does.
    """
    settings = {
        "variable": "carry_1",
        "hook": "blocks.0.hook_resid_post",
        "pos": 8,
        "dimensions": (1, 2),
        "null_samples": 99,
        "pairs": 512,
        "held_out": 256,
        "control_seeds": 1,
    }
    result = PROBES["das"].from_dict(settings).run(_opened(path).subject(), answer=1)
    return float(result.metrics["dimension"]) if result.verdict == "yes" else 0.0
