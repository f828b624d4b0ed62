"""Peak memory of a training step, of 128 models, and of an analysis of a model that is not ours:
what the largest moment of a process of its own held beyond what it held when everything was
imported.

`python -m benchmarks.memory NAME` measures one and prints MiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.peers.process import NONE, Peer, find_peer
from benchmarks.timing import Bench, Row, shown
from benchmarks.workloads import ADDITION, TRAIN, Workload, listops
from mechint.training import spec
from mechint.training.plan import partition

MODELS, STEPS = 128, 3
LISTOPS = listops(48, 3, 1.0)
TEXTS = (16, 64)
"""Texts of an analysis: four times as many are to take hardly more."""

POSITIONS, VOCABULARY, WIDTH, LAYERS = 128, 4096, 256, 4
"""Of the model that is analyzed, a GPT-2 at random weights."""

TINY = Workload("tiny", "modular-arithmetic", 1.0, 1, {"p": 5})


def peak() -> float:
    """MiB that this process held at its largest moment so far (Linux).

    From /proc: getrusage's counts what the process was forked from as well.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def step() -> None:
    ensemble = ADDITION.ensemble()
    for _ in range(STEPS):
        ensemble.advance()


def plan() -> list[tuple[int, ...]]:
    """The seeds of each ensemble that `MODELS` models train as."""
    task = LISTOPS.ensemble().runs[0].spec.task
    specs = [spec(task, LISTOPS.model, TRAIN, seed=seed) for seed in range(MODELS)]
    return [part.members for part in partition(specs)]


def ensembles() -> None:
    """A few steps of each ensemble of the plan, one after another."""
    for seeds in plan():
        ensemble = LISTOPS.ensemble(seeds)
        for _ in range(STEPS):
            ensemble.advance()


def analysis(texts: int) -> None:
    import torch
    import transformers

    import mechint
    from mechint.registry import PROBES

    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=8,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(place)
        data = Path(place) / "prompts.jsonl"
        prompts = torch.randint(VOCABULARY, (texts, POSITIONS)).tolist()
        lines = [json.dumps({"prompt": ids[:-1], "answer": ids[-1]}) for ids in prompts]
        data.write_text("\n".join(lines) + "\n", encoding="utf-8")
        subject = mechint.load(place, data=data)
        for name in ("lens", "attention"):
            PROBES[name]().run(subject, seed=0)


WORK: dict[str, Callable[[], None]] = {
    "step": step,
    "ensembles": ensembles,
    **{f"analysis-{texts}": lambda texts=texts: analysis(texts) for texts in TEXTS},
}


def taken(name: str, threads: int) -> float:
    """MiB of one of `WORK`, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", name, str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def taken_by_peer(threads: int) -> float | None:
    """MiB of the same step of the peer, in a process of its own; None where there is no peer."""
    peer: Peer | None = find_peer(threads)
    if peer is None:
        return None
    try:
        peer.ask(build=TINY.name, shape=TINY.peer_shape())
        before = peer.ask(memory=True)["mebibytes"]
        peer.ask(build=ADDITION.name, shape=ADDITION.peer_shape())  # its steps before any timing
        return peer.ask(memory=True)["mebibytes"] - before
    finally:
        peer.close()


def rows(bench: Bench) -> Iterator[Row]:
    """The rows of memory."""
    theirs = taken_by_peer(bench.threads)
    ours = taken("step", bench.threads)
    note = "against TransformerLens 3.9 HookedTransformer" if theirs is not None else NONE
    name = f"peak memory, step, {ADDITION.name}"
    yield shown(name, ours, "MiB", note, peer=theirs)
    if bench.quick:
        return
    together = taken("ensembles", bench.threads)
    note = f"steps in ensembles of {len(plan()[0])}, as the plan cuts them, one after another"
    yield shown(f"peak memory, {MODELS} models of listops 48×3", together, "MiB", note)
    few, many = (taken(f"analysis-{texts}", bench.threads) for texts in TEXTS)
    note = (
        f"lens and attention on {TEXTS[1]} texts of {POSITIONS} tokens, {LAYERS} layers of "
        f"{WIDTH}, {VOCABULARY} tokens; {few:,.0f} MiB on {TEXTS[0]} texts"
    )
    yield shown("peak memory, analyze, GPT-2", many, "MiB", note)


def main() -> None:
    import torch

    name, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    TINY.ensemble().advance()
    if name.startswith("analysis"):  # what importing them takes is not the analysis's
        import transformer_lens  # noqa: F401
        import transformers.models.gpt2  # noqa: F401
    before = peak()
    WORK[name]()
    print(peak() - before)


if __name__ == "__main__":
    main()
