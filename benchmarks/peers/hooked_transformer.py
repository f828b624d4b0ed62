"""Steps of TransformerLens's HookedTransformer, on request: the peer of `benchmarks.steps`.

Runs in an environment of its own (transformer-lens 3.9), and imports nothing of mechint. One JSON
object a line on stdin, one on stdout in answer:

    {"threads": 2}                               -> {"versions": {"transformer-lens": "3.9.0",
    "torch": "2.13.0"}} {"build": NAME, "shape": {…}}                -> {"parameters": 226816}
    {"run": NAME, "steps": 4}                    -> {"seconds": 0.71}
    {"drop": NAME}                               -> {}
    {"session": {"shape": {…}, "p": 29, "fraction": 0.7}, "models": 4, "steps": 100}
                                                 -> {"seconds": 3.2}

A session trains models of addition modulo p one after another, and measures each.

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
    bf16 = shape.pop("precision", "float32") == "bf16"
    model = transformer_lens.HookedTransformer(
        transformer_lens.HookedTransformerConfig(**shape, seed=0)
    )
    tokens = torch.randint(shape["d_vocab"], (batch, shape["n_ctx"]), device=device)
    places = slice(-1, None) if read == "last" else slice(None)
    targets = torch.randint(shape["d_vocab_out"], tokens[:, places].shape, device=device).flatten()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1.0, betas=(0.9, 0.98))

    def step() -> None:
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(model(tokens)[:, places].flatten(0, 1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    return step, sum(parameter.numel() for parameter in model.parameters())


def session(request: dict[str, Any], models: int, steps: int) -> None:
    """Train addition modulo p with seeds 0, 1, …, full batch, and measure every model."""
    import transformer_lens

    p, shape = request["p"], request["shape"]
    values = torch.arange(p)
    pairs = torch.cartesian_prod(values, values)
    tokens = torch.cat([pairs, torch.full((p * p, 1), p)], 1)
    answers = pairs.sum(1) % p
    for seed in range(models):
        order = torch.randperm(p * p, generator=torch.Generator().manual_seed(seed))
        chosen = order[: int(request["fraction"] * p * p)]
        config = transformer_lens.HookedTransformerConfig(**shape, seed=seed)
        model = transformer_lens.HookedTransformer(config)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=1e-3, weight_decay=1.0, betas=(0.9, 0.98)
        )
        for _ in range(steps):
            loss = F.cross_entropy(model(tokens[chosen])[:, -1], answers[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            measure(model, tokens, answers, p)


def measure(model: Any, tokens: torch.Tensor, answers: torch.Tensor, p: int) -> dict[str, Any]:
    """Spectra of embedding, neurons and logits, and the loss of the five largest frequencies alone
    and without them.
    """
    logits, cache = model.run_with_cache(tokens)
    logits = logits[:, -1].double()
    centered = logits - logits.mean(0)
    embedding = torch.fft.rfft(model.W_E[:p], dim=0)[1:].abs().square().sum(1)
    grid = cache["blocks.0.mlp.hook_post"][:, -1].reshape(p, p, -1)
    neurons = torch.fft.fft2(grid, dim=(0, 1)).abs().square().sum(-1)
    frequencies = torch.arange(1, p // 2 + 1)
    angles = 2 * torch.pi / p * (answers[:, None] - torch.arange(p)).double()
    waves = torch.cos(frequencies[:, None, None] * angles)
    cosines = (waves * centered).sum((1, 2)) / waves.square().sum((1, 2)).sqrt()
    keys = frequencies[cosines.abs().topk(5).indices].double()
    at = 2 * torch.pi / p * torch.outer(answers.double(), keys)
    basis = torch.linalg.qr(torch.cat([at.cos(), at.sin()], 1))[0]
    kept = basis @ (basis.T @ centered)
    losses = [F.cross_entropy(one, answers) for one in (logits, kept + logits.mean(0))]
    losses.append(F.cross_entropy(logits - kept, answers))
    return {"losses": losses, "spectra": (embedding, neurons, cosines), "keys": keys}


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
        elif "session" in request:
            what = (request["session"], request["models"], request["steps"])
            answer = {"seconds": seconds(lambda what=what: session(*what), 1)}
        elif "drop" in request:
            del built[request["drop"]]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
