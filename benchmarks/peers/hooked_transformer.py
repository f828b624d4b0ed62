"""Steps of TransformerLens's HookedTransformer, on request: the peer of `benchmarks.steps`.

Runs in an environment of its own (transformer-lens 3.9), and imports nothing of mechint. One JSON
object a line on stdin, one on stdout in answer:

    {"threads": 2}                               -> {"versions": {"transformer-lens": "3.9.0",
    "torch": "2.13.0"}} {"build": NAME, "shape": {…}}                -> {"parameters": 226816}
    {"run": NAME, "steps": 4}                    -> {"seconds": 0.71}
    {"drop": NAME}                               -> {}

A shape is what HookedTransformerConfig takes, besides "batch", and "read": "last" or "all"
positions. A step is forward, mean cross-entropy, backward and AdamW on random tokens: what it costs
does not depend on the tokens.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F

WARM_UP = 3


def stepper(shape: dict[str, Any]) -> tuple[Callable[[], None], int]:
    """One training step as a function, and how many parameters it trains."""
    import transformer_lens

    batch, read, device = shape.pop("batch"), shape.pop("read"), shape.get("device", "cpu")
    model = transformer_lens.HookedTransformer(
        transformer_lens.HookedTransformerConfig(**shape, seed=0)
    )
    tokens = torch.randint(shape["d_vocab"], (batch, shape["n_ctx"]), device=device)
    places = slice(-1, None) if read == "last" else slice(None)
    targets = torch.randint(shape["d_vocab_out"], tokens[:, places].shape, device=device).flatten()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0, betas=(0.9, 0.98))

    def step() -> None:
        loss = F.cross_entropy(model(tokens)[:, places].flatten(0, 1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    return step, sum(parameter.numel() for parameter in model.parameters())


def seconds(step: Callable[[], None], steps: int) -> float:
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return time.perf_counter() - start


def main() -> None:
    warnings.filterwarnings("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # what the peer prints is no answer
    built: dict[str, Callable[[], None]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        if "threads" in request:
            torch.set_num_threads(request["threads"])
            answer = {"versions": {name: version(name) for name in ("transformer-lens", "torch")}}
        elif "build" in request:
            built[request["build"]], answer["parameters"] = stepper(request["shape"])
        elif "run" in request:
            answer = {"seconds": seconds(built[request["run"]], request["steps"])}
        elif "drop" in request:
            del built[request["drop"]]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
