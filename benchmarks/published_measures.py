"""Measures of published figures: functions of a checkpoint's path."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mechint.registry import PROBES

TASK_OF: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "baseline.pt": ("modular-arithmetic", {"p": 113}),
    "low_precision_mod_addition.pth": ("modular-arithmetic", {"p": 113}),
    "sum_model.pt": ("digit-sum", {"digits": 4}),
    "palindromes.pt": ("palindromes", {"n": 6, "half_length": 2}),
    "make_hist/tl_model.pt": ("rasp", {"program": "histogram", "n": 10, "length": 9}),
    "make_reverse/tl_model.pt": ("rasp", {"program": "reverse", "n": 10, "length": 9}),
}
"""Files that do not name their task, and the one they were trained on."""


@cache
def _opened(path: Path) -> Any:
    from mechint.checkpoints import load_checkpoint

    named = (task for end, task in TASK_OF.items() if str(path).endswith(end))
    task, parameters = next(named, (None, {}))
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
    """Loss of the induction model without its second attention layer, whose output is replaced
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
    for rank in range(task.copies):
        tokens.scatter_(1, 1 + rank * block + inside, piece)
    read = torch.cat([1 + rank * block + inside[:, :-1] for rank in range(1, task.copies)], 1)
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


# --- models that state no task --------------------------------------------------------------------
def sorted_right(shortest: int, longest: int) -> Callable[[Path], float]:
    """Share of 200 lists of distinct numbers that the sort model of the zoo sorts without a slip:
    start 150, the list, separator 151, then the sorted list and the end 152.
    """

    def read(path: Path) -> float:
        return _exact(path, shortest, longest, lambda numbers: numbers.sort().values)

    return read


def copied_right(shortest: int, longest: int) -> Callable[[Path], float]:
    """Share of 200 lists of distinct numbers that the copying model of the zoo repeats."""
    return lambda path: _exact(path, shortest, longest, lambda numbers: numbers)


def _exact(path: Path, shortest: int, longest: int, change: Callable[[Any], Any]) -> float:
    import torch

    model = _opened(path).model
    start = model.cfg.d_vocab - 4
    generator = torch.Generator().manual_seed(0)
    right = 0
    for _ in range(200):
        length = int(torch.randint(max(shortest, 1), longest + 1, (), generator=generator))
        numbers = torch.randperm(start, generator=generator)[:length]
        said = [*change(numbers).tolist(), start + 2]
        tokens = torch.tensor([[start, *numbers.tolist(), start + 1, *said[:-1]]])
        with torch.no_grad():
            best = model(tokens)[0, length + 1 :].argmax(-1).tolist()
        right += best == said
    return right / 200


def accuracy_with_block_at(dimension: int) -> Callable[[Path], float]:
    """Accuracy with an unembedding that reads the residual dimensions from `dimension` on."""

    def read(path: Path) -> float:
        import torch

        from mechint.subject import Subject

        opened = _opened(path)
        model = copy.deepcopy(opened.model)
        unembed = torch.zeros_like(model.W_U)
        classes = unembed.shape[1]
        unembed[dimension : dimension + classes] = torch.eye(classes)
        with torch.no_grad():
            model.W_U.copy_(unembed)
        subject = Subject(model, opened.task).with_answer("all")
        return next(iter(subject.accuracy().values()))

    return read


def maximum_right(path: Path) -> float:
    """Accuracy on all lists of five digits: 10 d 11 d 11 d 11 d 11 d 12, asked at the end."""
    import torch

    digits = torch.cartesian_prod(*[torch.arange(10)] * 5)
    between = torch.full((len(digits), 5), 11)
    between[:, -1] = 12
    tokens = torch.stack([digits, between], 2).flatten(1)
    tokens = torch.cat([torch.full((len(digits), 1), 10), tokens], 1)
    model = _opened(path).model
    with torch.no_grad():
        best = [model(part)[:, -1].argmax(-1) for part in tokens.split(4096)]
    return float((torch.cat(best) == digits.max(1).values).double().mean())


def interchange(variable: int, head: int, position: int) -> Callable[[Path], float]:
    """Accuracy on the answer that the palindrome model should give where `head` of layer 0 takes
    its output at `position` from another input, and the pair number `variable` with it.
    """

    def read(path: Path) -> float:
        import torch

        model = _opened(path).model
        generator = torch.Generator().manual_seed(0)
        base, source = torch.randint(6, (2, 5000, 4), generator=generator)
        base[::2, 3], source[1::3, 3] = base[::2, 0], source[1::3, 0]
        base[::3, 2], source[::2, 2] = base[::3, 1], source[::2, 1]
        layout = _opened(path).task.sample(1, 0).tokens[0]  # start, four letters, end
        pairs = ((0, 3), (1, 2))
        equal = [[part[:, a] == part[:, b] for a, b in pairs] for part in (base, source)]
        mixed = [equal[1 if index == variable else 0][index] for index in range(2)]
        first, last = (part.expand(len(base), -1) for part in (layout[:1], layout[5:]))
        base, source = (torch.cat([first, part, last], 1) for part in (base, source))
        name = "blocks.0.attn.hook_z"
        with torch.no_grad():
            kept = model.run_with_cache(source)[1][name][:, position, head]

            def swap(value: Any, hook: Any) -> Any:
                value = value.clone()
                value[:, position, head] = kept
                return value

            logits = model.run_with_hooks(base, fwd_hooks=[(name, swap)])[:, -1]
        return float((logits.argmax(-1) == (mixed[0] & mixed[1]).long()).double().mean())

    return read
