"""Sentences that probes print, held against numpy and torch alone.

    python -m benchmarks.retest --found FOUND     # the table of docs/reliability.md

Nothing of mechint is imported: files are read, models run, statistics and nulls drawn by the code
below. FOUND is what `python -m benchmarks.sentences find` wrote: inputs and answers of every model,
and its findings; `results/sentences.json` names those that were drawn. A sentence is *true* where
what it says and the number beside it are found again, *misleading* where the number is and the word
is not, *false* where the number is not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

RESULT = Path(__file__).parent / "results" / "sentences.json"
Edit = Callable[[str, torch.Tensor], torch.Tensor]
Outcome = tuple[str, str]
"""true, misleading or false; what was found."""
TESTS: dict[str, list[tuple[str, Callable[..., Outcome]]]] = {}
DRAWS = 199


class Net:
    """A transformer from a file: weights with rows for what is read, and its forward."""

    def __init__(self, file: Path, causal: bool) -> None:
        raw = torch.load(file, weights_only=True, map_location="cpu")
        config, self.causal, self.rate = {}, causal, 1.0
        if raw.get("format") == "mechint":
            config, raw = raw["config"], raw["state"]
            self.causal = config["attention_dir"] == "causal"
            self.rate = config.get("attention_rate", 1.0)
        raw = raw.get("model", raw)
        told = file.with_name(file.name.replace("model_", "config_").replace(".pt", ".json"))
        w = {name: one.double() for name, one in raw.items() if one.dtype.is_floating_point}
        if w["embed.W_E"].shape[1] != w["pos_embed.W_pos"].shape[1]:  # columns for what is read
            w = self._turned(w)
            self.causal = causal
            if told.is_file() and told != file:
                self.rate = json.loads(told.read_text()).get("attn_coeff", 1.0)
        self.w, self.act = w, {"relu": F.relu, "gelu": F.gelu}[config.get("act_fn", "relu")]
        self.layers = 1 + max(int(n.split(".")[1]) for n in w if n.startswith("blocks."))
        self.heads = w["blocks.0.attn.W_Q"].shape[0]
        self.eps = config.get("eps", 1e-5)

    @staticmethod
    def _turned(w: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        turned = dict(w)
        turned["embed.W_E"] = w["embed.W_E"].T
        for name, one in w.items():
            if name.endswith((".W_Q", ".W_K", ".W_V")):
                turned[name] = one.transpose(1, 2)
            elif name.endswith(".W_O") and one.dim() == 2:
                heads = w[name.replace("W_O", "W_Q")].shape[0]
                turned[name] = one.reshape(one.shape[0], heads, -1).permute(1, 2, 0)
            elif name.endswith((".W_in", ".W_out")):
                turned[name] = one.T
        return turned

    def read_by(self, name: str, layer: Any, head: Any) -> torch.Tensor:
        """W_Q, W_K or W_V of a head, with the weights of its norm, as it acts on the stream."""
        weight = self.w[f"blocks.{layer}.attn.W_{name}"][int(head)]
        return self._folded(weight, f"blocks.{layer}.ln1")

    @property
    def unembed(self) -> torch.Tensor:
        """W_U as it acts on the stream before the last norm, but for the scale."""
        return self._folded(self.w["unembed.W_U"], "ln_final")

    def _folded(self, weight: torch.Tensor, norm: str) -> torch.Tensor:
        if f"{norm}.w" not in self.w:
            return weight
        weight = self.w[f"{norm}.w"][:, None] * weight
        return weight - weight.mean(0)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        if f"{name}.w" not in self.w:
            return x
        x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return x * self.w[f"{name}.w"] + self.w[f"{name}.b"]

    def run(
        self,
        tokens: torch.Tensor,
        edit: Edit = lambda name, x: x,
        embed: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        w, kept = self.w, dict[str, torch.Tensor]()

        def at(name: str, x: torch.Tensor) -> torch.Tensor:
            kept[name] = edit(name, x)
            return kept[name]

        given = w["embed.W_E"][tokens] if embed is None else embed
        x = at("embed", given) + at("pos", w["pos_embed.W_pos"][: tokens.shape[1]].expand_as(given))
        n = tokens.shape[1]
        for layer in range(self.layers):
            p = f"blocks.{layer}.attn."
            x = at(f"pre{layer}", x)
            h = self.norm(x, f"blocks.{layer}.ln1")
            q, k, v = (
                torch.einsum("bpd,hde->bhpe", h, w[p + "W_" + c])
                + w.get(p + "b_" + c, torch.zeros(self.heads, 1))[:, None]
                for c in "QKV"
            )
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            if self.causal:
                mask = torch.ones(n, n, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(mask, -math.inf)
            # Zhong et al. 2023: what is not learned is 1 for every key, masked or not
            pattern = self.rate * scores.softmax(-1) + 1 - self.rate
            z = at(f"z{layer}", (at(f"pattern{layer}", pattern) @ v))
            parts = torch.einsum("bhpe,hed->bhpd", z, w[p + "W_O"])
            out = at(f"attn{layer}", parts.sum(1) + w.get(p + "b_O", torch.zeros(1)))
            x = at(f"mid{layer}", x + out)
            m = f"blocks.{layer}.mlp."
            if m + "W_in" in w:
                h = self.norm(x, f"blocks.{layer}.ln2")
                post = at(f"post{layer}", self.act(h @ w[m + "W_in"] + w[m + "b_in"]))
                x = x + at(f"mlp{layer}", post @ w[m + "W_out"] + w[m + "b_out"])
            x = at(f"resid{layer}", x)
        kept["logits"] = self.read(x)
        return kept

    def read(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x, "ln_final")
        return x @ self.w["unembed.W_U"] + self.w.get("unembed.b_U", torch.zeros(1))


class Case:
    """A model with the inputs and answers that it was asked."""

    def __init__(self, told: dict[str, Any], folder: Path) -> None:
        data = np.load(folder / f"{told['number']}.npz")
        self.net = Net(Path(told["file"]), bool(data["causal"]))
        self.tokens, self.rows = (torch.from_numpy(data[n]).long() for n in ("tokens", "rows"))
        self.at, self.targets = (torch.from_numpy(data[n]).long() for n in ("positions", "targets"))
        self.slices = [slice(*one) for one in data["slices"].tolist()]
        self.values = data["values"].tolist()
        self.inside = torch.from_numpy(data["inside"])
        self.embedded = data["embedded"].tolist()
        self.train = torch.from_numpy(data["train"]).long()
        few = np.random.default_rng(1).permutation(len(self.at))[:2048]
        self.few = torch.from_numpy(np.sort(few))

    def logits(self, some: torch.Tensor, edit: Edit = lambda n, x: x, **more: Any) -> torch.Tensor:
        """Of answers `some`, at their positions."""
        parts = []
        for rows in some.split(256):
            found = self.net.run(self.tokens[self.rows[rows]], edit, **more)["logits"]
            parts.append(found[torch.arange(len(rows)), self.at[rows]])
        return torch.cat(parts)

    def activations(self, some: torch.Tensor, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Whole activations (answer, position, ...) of answers `some`."""
        found: dict[str, list[torch.Tensor]] = {name: [] for name in names}
        for rows in some.split(256):
            run = self.net.run(self.tokens[self.rows[rows]])
            for name in names:
                found[name].append(run[name])
        return {name: torch.cat(parts) for name, parts in found.items()}

    def loss(self, logits: torch.Tensor, some: torch.Tensor) -> float:
        """Cross-entropy, mean over the outputs."""
        each = [
            F.cross_entropy(logits[:, part], self.targets[some, i], ignore_index=-1)
            for i, part in enumerate(self.slices)
            if bool((self.targets[some, i] >= 0).any())
        ]
        return float(torch.stack(each).mean())

    def accuracy(self, logits: torch.Tensor, some: torch.Tensor) -> float:
        right = [
            (logits[:, part].argmax(-1) == self.targets[some, i])[self.targets[some, i] >= 0]
            for i, part in enumerate(self.slices)
        ]
        return float(torch.cat(right).double().mean())

    @property
    def chance(self) -> float:
        counts = torch.bincount(self.targets[:, 0][self.targets[:, 0] >= 0])
        return float(counts.max() / counts.sum())

    @cached_property
    def all(self) -> torch.Tensor:
        return torch.arange(len(self.at))

    @cached_property
    def plain(self) -> torch.Tensor:
        """Logits of all answers."""
        with torch.no_grad():
            return self.logits(self.all)

    # --- cyclic groups ---------------------------------------------------------------------------
    @property
    def n(self) -> int:
        return self.slices[0].stop - self.slices[0].start

    @cached_property
    def centered(self) -> torch.Tensor:
        """(answer, class), less the means over classes and then over answers."""
        x = self.plain[:, self.slices[0]]
        x = x - x.mean(1, keepdim=True)
        return x - x.mean(0)

    def cosines(self, relabel: np.ndarray | None = None) -> np.ndarray:
        """Cosine of the logits with cos 2πk (answer − class)/n, k = 1 … n//2."""
        classes = np.arange(self.n) if relabel is None else relabel
        answers, x = self.targets[:, 0], self.centered
        table = torch.zeros(self.n, self.n, dtype=torch.float64)
        table.index_add_(0, answers, x)  # (answer, class)
        turn = classes[np.arange(self.n)][:, None] - classes[None]
        found = []
        for k in range(1, self.n // 2 + 1):
            wave = torch.from_numpy(np.cos(2 * np.pi * k * turn / self.n))
            size = math.sqrt(float((wave.square().sum(1)[answers]).sum()))
            found.append(float((table * wave).sum() / size / x.norm()))
        return np.array(found)

    def waves(self, keys: Sequence[int], n: int) -> np.ndarray:
        """Orthonormal rows cos and sin 2πkx/n."""
        x = np.arange(n)
        rows = [f(2 * np.pi * k * x / n) for k in keys for f in (np.cos, np.sin)]
        kept = [row for row in rows if np.abs(row).max() > 1e-9]
        return np.array([row / np.linalg.norm(row) for row in kept])

    @property
    def embedding(self) -> np.ndarray:
        return self.net.w["embed.W_E"][self.values or self.embedded].numpy()

    def shares(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Share of the energy of the values' embeddings at each frequency."""
        e = self.embedding if rows is None else rows
        e = e - e.mean(0)
        energy = [(self.waves([k], len(e)) @ e).__pow__(2).sum() for k in range(1, len(e) // 2 + 1)]
        return np.array(energy) / (e**2).sum()

    @property
    def operands(self) -> list[list[int]]:
        """Tokens of the first operand, and of the second where these are others."""
        second = self.tokens[:, 1].unique().tolist()
        return [self.values] if set(second) == set(self.values) else [self.values, second]

    def without(self, rows: np.ndarray, some: torch.Tensor, keep: bool = False) -> torch.Tensor:
        """Logits with directions over the values (orthonormal rows) out of the embedding, or, with
        `keep`, with these and the mean alone in it.
        """
        e = self.net.w["embed.W_E"].clone()
        for values in self.operands:
            own = e[values].clone()
            part = torch.from_numpy(rows.T @ rows) @ own
            e[values] = own.mean(0) + part if keep else own - part
        saved, self.net.w["embed.W_E"] = self.net.w["embed.W_E"], e
        with torch.no_grad():
            found = self.logits(some)
        self.net.w["embed.W_E"] = saved
        return found


def tests(probe: str, pattern: str) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register the test of a probe's sentences that match."""

    def add(test: Callable[..., Outcome]) -> Callable[..., Outcome]:
        TESTS.setdefault(probe, []).append((pattern, test))
        return test

    return add


def outcome(holds: bool, right: bool, words: str) -> Outcome:
    """True where the claim holds and the number is found again."""
    if not right:
        return "false", words
    return ("true" if holds else "misleading"), words


def close(own: float, said: float, by: float = 0.03, at_least: float = 0.0) -> bool:
    return abs(own - said) <= max(by * abs(said), at_least)


def keys_of(text: str) -> list[int]:
    """The frequencies behind the colon, or behind "frequency"."""
    found = re.search(r"(?:: |frequency )((?:\d+(?:, | and )?)+)", text)
    return [int(one) for one in re.findall(r"\d+", found[1])] if found else []


# --- fourier ------------------------------------------------------------------------------------
def _largest(case: Case) -> np.ndarray:
    draw = np.random.default_rng(7)
    return np.array([case.cosines(draw.permutation(case.n)).max() for _ in range(DRAWS)])


@tests("fourier", "The logits use")
def logits_use(case: Case, said: dict[str, Any]) -> Outcome:
    keys, own = keys_of(said["headline"]), case.cosines()
    order = (1 + np.argsort(-own))[: len(keys)]
    random = _largest(case)
    words = f"cosines {own[np.array(keys) - 1].round(3)}, permuted at most {random.max():.3f}"
    rest = np.delete(own, np.array(keys) - 1)
    above = own[np.array(keys) - 1].min() > 2 * np.abs(rest).max()
    first = own.max() > random.max()
    return outcome(
        bool(first and (above or set(order) == set(keys))),
        close(own.max(), said["effect"]["value"]),
        words,
    )


@tests("fourier", "No frequency stands out in the logits")
def logits_use_none(case: Case, said: dict[str, Any]) -> Outcome:
    own, random = case.cosines(), _largest(case)
    p = (1 + (random >= own.max()).sum()) / (1 + DRAWS)
    ok = said["effect"] is None or close(own.max(), said["effect"]["value"], 0.05, 0.005)
    return outcome(True, ok, f"largest cosine {own.max():.3f}, p = {p:.3g} of classes permuted")


@tests("fourier", "holds .* of its energy at")
def energy(case: Case, said: dict[str, Any]) -> Outcome:
    own = case.shares()
    keys = [int(k) for k in said["details"] if k.isdigit()]
    held = own[np.array(keys) - 1].sum()
    flat = 2 / (len(case.values) - 1)
    clear = own[np.array(keys) - 1].min() > 1.9 * flat
    return outcome(bool(clear), close(held, said["effect"]["value"]), f"share {held:.3f}")


@tests("fourier", "No frequency stands out in the embedding")
def no_energy(case: Case, said: dict[str, Any]) -> Outcome:
    own, draw, e = case.shares().max(), np.random.default_rng(3), case.embedding
    random = [case.shares(draw.permutation(e)).max() for _ in range(DRAWS)]
    p = (1 + sum(one >= own for one in random)) / (1 + DRAWS)
    return outcome(p > 0.005, True, f"largest share {own:.3f}, p = {p:.3g} of tokens permuted")


def _random_rows(case: Case, keys: Sequence[int], count: int, draw: Any) -> np.ndarray:
    n = len(case.values)
    other = case.waves([k for k in range(1, n // 2 + 1) if k not in keys], n)
    return np.linalg.qr(draw.standard_normal((len(other), count)))[0].T @ other


@tests("fourier", "The model (also )?(needs|does not need)")
def removal(case: Case, said: dict[str, Any]) -> Outcome:
    n, base = len(case.values), case.loss(case.plain[case.few], case.few)
    keys, named = keys_of(said["headline"]), said["metrics"]["embedding.key_frequencies"] or []
    if "harmonic" in said["headline"]:
        keys = sorted({min(2 * k % n, -2 * k % n) for k in named} - set(named) - {0})
    keys = keys_of(said["headline"]) or keys or named
    spared = sorted({*keys, *named})
    rows = case.waves(keys, n)
    rise = case.loss(case.without(rows, case.few), case.few) - base
    draw = np.random.default_rng(5)
    random = [
        case.loss(case.without(_random_rows(case, spared, len(rows), draw), case.few), case.few)
        - base
        for _ in range(19)
    ]
    more = rise > max(random)
    yes = said["verdict"] == "yes"
    words = f"{keys}: rise {rise:.3g} nats, random others at most {max(random):.3g}"
    ok = close(rise, said["effect"]["value"], 0.15, 0.02)
    return outcome(more if yes else (not more or rise < 0.05), ok, words)


# --- clock-pizza, progress -----------------------------------------------------------------------
def _projected(case: Case, keys: Sequence[int]) -> torch.Tensor:
    angle = 2 * math.pi * torch.outer(case.targets[:, 0].double(), torch.tensor(keys).double())
    waves = torch.cat([(angle / case.n).cos(), (angle / case.n).sin()], 1)
    basis = torch.linalg.qr(waves - waves.mean(0))[0]
    return basis @ (basis.T @ case.centered)


@tests("progress", "carr(y|ies)")
def carries(case: Case, said: dict[str, Any]) -> Outcome:
    keys = said["metrics"]["key_frequencies"]
    x = case.plain[:, case.slices[0]]
    x = x - x.mean(1, keepdim=True)
    part, y = _projected(case, keys), case.targets[:, 0]
    own, alone, rest = (float(F.cross_entropy(one, y)) for one in (x, part + x.mean(0), x - part))
    share = (math.log(case.n) - alone) / (math.log(case.n) - own)
    stated = float(re.search(r"(\d+)%", said["headline"])[1]) / 100
    whole = "part of" not in said["headline"]
    words = f"{keys} alone give back {share:.1%}; without them {rest - own:.3g} nats more"
    fits = (share >= 0.89) == whole and rest - own > 0
    ok = close(min(share, 1), stated, 0.02, 0.011) and close(rest - own, said["effect"]["value"])
    return outcome(fits, ok, words)


@tests("progress", "No frequency stands out|use none of these")
def carries_none(case: Case, said: dict[str, Any]) -> Outcome:
    return logits_use_none(case, {**said, "effect": None})


@tests("clock-pizza", "adds as a (clock|pizza)|neither")
def clock_or_pizza(case: Case, said: dict[str, Any]) -> Outcome:
    draw, net = np.random.default_rng(11), case.net
    some = torch.from_numpy(draw.integers(len(case.at), size=500))
    classes = torch.from_numpy(draw.integers(case.n, size=500))
    tokens = case.tokens[case.rows[some]]
    embed = net.w["embed.W_E"][tokens].requires_grad_()
    logits = net.run(tokens, embed=embed)["logits"][torch.arange(500), case.at[some]]
    logits = logits[:, case.slices[0]]
    one = (logits.gather(1, classes[:, None])[:, 0] - logits.mean(1)).sum()
    (gradient,) = torch.autograd.grad(one, embed)
    cosine = F.cosine_similarity(gradient[:, 0], gradient[:, 1], dim=-1).mean().item()
    x = case.plain[:, case.slices[0]]
    right = (x - x.mean(1, keepdim=True)).gather(1, case.targets[:, :1])[:, 0]
    a, b = (tokens_ for tokens_ in case.tokens[case.rows][:, :2].T)
    apart = (a - b) % case.n
    spread = [float(right[apart == d].std(correction=0)) for d in range(case.n)]
    irrelevance = float(np.mean(spread) / right.std(correction=0))
    keys = said["metrics"]["key_frequencies"]
    words = f"symmetricity {cosine:.3f}, irrelevance {irrelevance:.3f}, keys {keys}"
    if not keys:
        return outcome("neither" in said["headline"], True, words)
    n = len(case.values)
    base = case.loss(case.plain, case.all)
    alone = case.loss(case.without(case.waves(keys, n), case.all, keep=True), case.all)
    gone = case.loss(case.without(case.waves(keys, n), case.all), case.all)
    share = (math.log(case.n) - alone) / (math.log(case.n) - base)
    words += f", alone {share:.1%}, without them {gone:.3g} nats"
    needed = gone > (base + math.log(case.n)) / 2 and share > 0.89
    clock = cosine < 0.65 and (irrelevance > 0.55 or said["metrics"]["distance_effect"] < 0.025)
    pizza = cosine > 0.87 and irrelevance < 0.45
    held = {"clock": clock and needed, "pizza": pizza and needed}
    name = re.search("as a (clock|pizza)\\.", said["headline"])
    ok = said["effect"] is None or close(cosine, said["effect"]["value"], 0.1, 0.06)
    return outcome(held[name[1]] if name else not any(held.values()), ok, words)


# --- embedding -----------------------------------------------------------------------------------
def _rank(rows: np.ndarray) -> float:
    s = np.linalg.svd(rows - rows.mean(0), compute_uv=False) ** 2
    held = np.cumsum(s) / s.sum()
    i = int((held < 0.9).sum())
    before = held[i - 1] if i else 0.0
    return i + (0.9 - before) / (held[i] - before)


@tests("embedding", "dimensions? holds?|rank of the")
def rank(case: Case, said: dict[str, Any]) -> Outcome:
    e, draw = case.embedding, np.random.default_rng(2)
    lengths = np.linalg.norm(e - e.mean(0), axis=1, keepdims=True)
    drawn = []
    for _ in range(30):
        x = draw.standard_normal(e.shape)
        drawn.append(_rank(x * lengths / np.linalg.norm(x, axis=1, keepdims=True)))
    own, random = _rank(e), float(np.mean(drawn))
    low = own <= 0.76 * random and own < min(drawn)
    words = f"{own:.2f} dimensions, Gaussian rows {random:.2f}"
    yes = said["verdict"] == "yes"
    return outcome(low == yes, close(own, said["effect"]["value"]), words)


@tests("embedding", "The tokens lie")
def circles(case: Case, said: dict[str, Any]) -> Outcome:
    keys, own = [int(re.findall(r"\d+", k)[0]) for k in said["details"] if "frequency" in k], []
    shares, e = case.shares(), case.embedding
    for k in keys:
        s = np.linalg.svd(case.waves([k], len(e)) @ (e - e.mean(0)), compute_uv=False)
        own.append(float(s.sum() ** 2 / (2 * (s**2).sum())))
    held = float(shares[np.array(keys) - 1].sum())
    words = f"{keys}: {held:.3f} of the energy, roundness {np.round(own, 3)}"
    draw = np.random.default_rng(3)
    random = max(case.shares(draw.permutation(e)).max() for _ in range(DRAWS))
    return outcome(
        bool(shares.max() > random and min(own) > 0.75),
        close(held, said["effect"]["value"], 0.02),
        words,
    )


@tests("embedding", "no cyclic order|No frequency stands out by twice")
def no_circles(case: Case, said: dict[str, Any]) -> Outcome:
    if "twice" in said["headline"]:
        own, flat = case.shares().max(), 2 / (len(case.embedding) - 1)
        return outcome(bool(own < 2 * flat), True, f"largest share {own:.3f}, flat {flat:.3f}")
    return no_energy(case, said)


@tests("embedding", "even from odd")
def parity(case: Case, said: dict[str, Any]) -> Outcome:
    e = case.embedding - case.embedding.mean(0)
    e = e / np.linalg.norm(case.embedding - case.embedding.mean(0), axis=1, keepdims=True)
    _, vectors = np.linalg.eigh((lambda s: s - s.mean(0) - s.mean(1)[:, None] + s.mean())(e @ e.T))
    scores = vectors[:, ::-1][:, :4]
    odd = np.arange(len(e)) % 2

    def apart(labels: np.ndarray) -> float:
        means = np.stack([scores[labels == one].mean(0) for one in (0, 1)])
        size = np.array([(labels == one).mean() for one in (0, 1)])
        between = (size[:, None] * (means - scores.mean(0)) ** 2).sum(0)
        return float((between / scores.var(0)).max())

    draw = np.random.default_rng(4)
    random = [apart(draw.permutation(odd)) for _ in range(DRAWS)]
    p = (1 + sum(one >= apart(odd) for one in random)) / (1 + DRAWS)
    yes = said["verdict"] == "yes"
    return outcome((p <= 0.01) == yes, True, f"separation {apart(odd):.3f}, p = {p:.3g}")


# --- attention -----------------------------------------------------------------------------------
@tests("attention", "operand")
def operands(case: Case, said: dict[str, Any]) -> Outcome:
    some = case.few[:512]
    found = []
    for layer in range(case.net.layers):
        pattern = case.activations(some, [f"pattern{layer}"])[f"pattern{layer}"]
        rows = pattern[torch.arange(len(some)), :, case.at[some]].mean(0)
        places = said["metrics"]["operand.positions"]
        a, b = rows[:, places[0]], rows[:, places[1]]
        found += [((a - b) / (a + b)).tolist()]
    own = np.array(found).ravel()
    words = f"preferences {own.round(3)}"
    largest = float(np.abs(own).max())
    if said["verdict"] == "no":
        return outcome(
            largest < 0.3 or close(largest, said["effect"]["value"], 0.1, 0.02),
            close(largest, said["effect"]["value"], 0.1, 0.02),
            words,
        )
    heads = re.findall(r"L(\d+)H(\d+)", said["headline"])
    strong = all(abs(own[int(i) * case.net.heads + int(h)]) > 0.1 for i, h in heads)
    return outcome(strong, close(largest, said["effect"]["value"], 0.1, 0.02), words)


def _hits(tokens: np.ndarray, kind: str) -> np.ndarray:
    """(example, query, key): the keys that a head of this kind attends to."""
    b, n = tokens.shape
    hit = np.zeros((b, n, n), bool)
    for q in range(n):
        for k in range(q):
            if kind == "previous":
                hit[:, q, k] = k == q - 1
            elif kind == "same":
                hit[:, q, k] = tokens[:, k] == tokens[:, q]
            elif k:
                hit[:, q, k] = tokens[:, k - 1] == tokens[:, q]
    return hit


@tests(
    "attention",
    "induction head|previous-token head|earlier equal tokens|attends? to what followed",
)
def kinds(case: Case, said: dict[str, Any]) -> Outcome:
    words = said["headline"]
    kind = (
        "previous"
        if "previous" in words
        else "same"
        if "equal tokens was" in words or "on earlier equal" in words
        else "induction"
    )
    tokens = case.tokens[:256]
    if kind != "previous":  # a head of a kind is one by content: tokens drawn for every place
        draw = np.random.default_rng(8)
        tokens = torch.from_numpy(draw.choice(tokens.numpy().ravel(), tokens.shape))
    hit = _hits(tokens.numpy(), kind)
    asked = hit.any(-1)
    own = {}
    for layer in range(case.net.layers):
        found = [case.net.run(part)[f"pattern{layer}"] for part in tokens.split(64)]
        pattern = torch.cat(found).numpy()
        for head in range(case.net.heads):
            own[f"L{layer}H{head}"] = float((pattern[:, head] * hit).sum(-1)[asked].mean())
    best = max(own, key=own.get)
    text = f"{best} {own[best]:.3f}"
    even = float((hit / (np.arange(hit.shape[1]) + 1)[None, :, None]).sum(-1)[asked].mean())
    text += f", even attention {even:.3f}"
    said_head = re.search(r"L\d+H\d+", str(said["effect"]["label"]))[0]
    # theirs is of 32 examples, or of examples made for it: the number is of others
    ok = kind != "previous" or close(own[said_head], said["effect"]["value"], 0.15, 0.08)
    if said["verdict"] == "no":
        return outcome(own[best] < even + 0.3, ok, text)
    named = re.findall(r"L\d+H\d+", words)
    return outcome(all(own[one] > even + 0.1 for one in named), ok, text)


# --- lens, ablation, attribution -----------------------------------------------------------------
def _place(net: Net, words: str) -> str:
    found = re.search(r"after (?:the )?(embedding|L(\d+) (attention|MLP))", words)
    if found is None:
        return "embed+pos"
    if found[2] is None:
        return "pre0"
    layer = int(found[2])
    return f"mid{layer}" if found[3] == "attention" else f"resid{layer}"


@tests("lens", "can be read after|cannot be read")
def lens(case: Case, said: dict[str, Any]) -> Outcome:
    names = [n for i in range(case.net.layers) for n in (f"mid{i}", f"resid{i}")]
    kept = case.activations(case.few, ["pre0", *names])
    rows = torch.arange(len(case.few))
    own = {
        name: case.accuracy(case.net.read(x[rows, case.at[case.few]]), case.few)
        for name, x in kept.items()
    }
    final, chance = own[names[-1]], case.chance
    words = ", ".join(f"{name} {value:.3f}" for name, value in own.items())
    ok = close(final, said["effect"]["value"], 0.03, 0.01)
    if said["verdict"] == "no":
        return outcome(final < chance + 0.5 * (1 - chance), ok, words)
    place = _place(case.net, said["headline"])
    order = list(own)
    before = [own[name] for name in order[: order.index(place)]]
    enough = chance + 0.85 * (final - chance)
    return outcome(own[place] >= enough and all(one < final for one in before), ok, words)


def _mean_edit(case: Case, name: str, some: torch.Tensor) -> Edit:
    """The component (L0H1, L0 MLP, L0 attention, with " @ p" or "[unit]") at its mean."""
    found = re.match(r"L(\d+)(?:H(\d+)| (attention|MLP)(?:\[(\d+)\])?)(?: @ (\d+))?$", name)
    assert found, name
    layer, head, kind, unit, place = found.groups()
    hook = (
        f"z{layer}"
        if head
        else f"post{layer}"
        if unit
        else {"attention": "attn", "MLP": "mlp"}[kind] + layer
    )
    mean = case.activations(case.all[:: max(1, len(case.all) // 4000)], [hook])[hook].mean(0)

    def edit(at: str, x: torch.Tensor) -> torch.Tensor:
        if at != hook:
            return x
        x = x.clone()
        where: Any = slice(None) if place is None else int(place)
        if head:
            x[:, int(head), where] = mean[int(head), where]
        elif unit:
            x[:, where, int(unit)] = mean[where, int(unit)]
        else:
            x[:, where] = mean[where]
        return x

    return edit


@tests("ablation", "^Without")
def ablated(case: Case, said: dict[str, Any]) -> Outcome:
    name = re.match(r"Without (.*?) (the loss|accuracy)", said["headline"])[1]
    if said["details"]["replaced by"] != "its mean":
        return "not re-tested", "another replacement"
    with torch.no_grad():
        after = case.logits(case.few, _mean_edit(case, name, case.few))
    plain = case.plain[case.few]
    rise = case.loss(after, case.few) - case.loss(plain, case.few)
    fall = case.accuracy(plain, case.few) - case.accuracy(after, case.few)
    own = rise if said["effect"]["unit"] == "nats" else fall
    words = f"{name}: {rise:.3g} nats more, accuracy {fall:.3f} less"
    return outcome(own > 0, close(own, said["effect"]["value"], 0.12, 0.02), words)


@tests("ablation", "neurons? of L")
def neurons_needed(case: Case, said: dict[str, Any]) -> Outcome:
    layer = re.search(r"of L(\d+) MLP", said["headline"])[1]
    units = [int(one) for one in said["details"]["neurons"].split(", ")]
    hook = f"post{layer}"
    mean = case.activations(case.few, [hook])[hook].mean(0)

    def rise(chosen: Sequence[int]) -> float:
        def edit(at: str, x: torch.Tensor) -> torch.Tensor:
            if at != hook:
                return x
            x = x.clone()
            x[:, :, list(chosen)] = mean[:, list(chosen)]
            return x

        with torch.no_grad():
            after = case.logits(case.few, edit)
        return case.loss(after, case.few) - case.loss(case.plain[case.few], case.few)

    draw = np.random.default_rng(9)
    own = rise(units)
    random = [rise(draw.permutation(mean.shape[-1])[: len(units)]) for _ in range(9)]
    words = f"{own:.3g} nats, random at most {max(random):.3g}"
    yes = said["verdict"] == "yes"
    return outcome(
        (own > max(random)) == yes, close(own, said["effect"]["value"], 0.4, 0.05), words
    )


@tests("attribution", "carr(y|ies)|No head or MLP")
def attributed(case: Case, said: dict[str, Any]) -> Outcome:
    if said["details"]["replaced by"] != "its mean" or said["verdict"] == "no":
        return "not re-tested", "another replacement"
    names = re.match(r"(.*?) carr", said["headline"])[1].replace(" and ", ", ").split(", ")
    stated = float(re.search(r"(\d+)%", said["headline"])[1]) / 100
    targets, part = case.targets[:, 0], case.slices[0]
    right = case.few[(case.plain[case.few][:, part].argmax(1) == targets[case.few]).nonzero()[:, 0]]

    def score(logits: torch.Tensor) -> float:
        x = logits[:, part]
        own = x.gather(1, targets[right][:, None])[:, 0]
        return float((own - (x.sum(1) - own) / (x.shape[1] - 1)).mean())

    base = score(case.plain[right])
    with torch.no_grad():
        shares = [
            (base - score(case.logits(right, _mean_edit(case, n, right)))) / base
            for n in names
            if n.startswith("L")
        ]
    words = f"{names}: {np.round(shares, 3)} of {base:.3g}"
    return outcome(max(shares) > 0, close(max(shares), stated, 0.1, 0.03), words)


# --- norms, weights, gradients -------------------------------------------------------------------
def _ratio(case: Case, net: Net, name: str, n: int = 128) -> float:
    layer, kind = re.match(r"L(\d+) (attention|MLP)", name).groups()
    given, out = (
        (f"pre{layer}", f"attn{layer}") if kind == "attention" else (f"mid{layer}", f"mlp{layer}")
    )
    some = case.rows[case.few[:n]]
    own, inside = net.run(case.tokens[some]), case.inside[some]
    x, y = own[given], own[out]
    if any(key.endswith("ln1.w") for key in net.w):
        x, y = (one - one.mean(-1, keepdim=True) for one in (x, y))
    x, y = x.norm(dim=-1), y.norm(dim=-1)
    return float((y / x)[(x > 0) & inside].mean())


@tests("norms", "norm ratio of")
def norms(case: Case, said: dict[str, Any]) -> Outcome:
    name = re.search(r"norm ratio of (L\d+ (?:attention|MLP))", said["headline"])[1]
    own, saved, draw = _ratio(case, case.net, name), case.net.w, torch.Generator().manual_seed(0)
    words = f"ratio {own:.3g}"
    # theirs is of 128 examples of its own; that of all stands among the metrics
    whole = _ratio(case, case.net, name, len(case.few))
    told = said["metrics"][f"norms.{name}"]
    ok = close(whole, told, 0.02) and close(said["effect"]["value"], told, 0.15)
    if "untrained" in said["headline"]:
        random = []
        for _ in range(19):  # N(0, s/√inputs) as the file's own initialization would be drawn
            case.net.w = {
                k: torch.zeros_like(v)
                if ".b" in k[-4:]
                else torch.ones_like(v)
                if v.dim() == 1
                else torch.randn(v.shape, generator=draw, dtype=v.dtype)
                * 0.8
                / math.sqrt(saved["embed.W_E"].shape[1])
                for k, v in saved.items()
            }
            random.append(_ratio(case, case.net, name))
    else:
        random = []
        for _ in range(19):
            case.net.w = {
                k: v.flatten()[torch.randperm(v.numel(), generator=draw)].view(v.shape)
                for k, v in saved.items()
            }
            random.append(_ratio(case, case.net, name))
    case.net.w = saved
    center = np.mean(random)
    p = (1 + sum(abs(one - center) >= abs(own - center) for one in random)) / 20
    words += f", controls {min(random):.3g} to {max(random):.3g}"
    yes = said["verdict"] == "yes"
    return outcome((p <= 0.05) == yes or not yes, ok, words)


@tests("weights", "copies tokens|No head copies")
def copying(case: Case, said: dict[str, Any]) -> Outcome:
    net, part = case.net, case.slices[0]
    if case.values and len(case.values) != case.n:
        return "not re-tested", "tokens and classes are others"
    asked = case.targets[:, 0].unique().tolist()  # a token that is no answer is copied to none
    classes = [one for one in range(case.n) if one in asked]
    ids = [case.values[one] for one in classes] if case.values else classes
    e, u = net.w["embed.W_E"][ids], net.unembed[:, part][:, classes]
    e, u = e - e.mean(0), u - u.mean(1, keepdim=True)
    own = {}
    for layer, head in itertools.product(range(net.layers), range(net.heads)):
        full = e @ net.read_by("V", layer, head) @ net.w[f"blocks.{layer}.attn.W_O"][head] @ u
        lam = torch.linalg.eigvals(full)
        diagonal = float((full.argmax(1) == torch.arange(len(ids))).double().mean())
        own[f"L{layer}H{head}"] = (float(lam.real.sum() / lam.abs().sum()), diagonal)
    share, right = own[said["metrics"]["copying.head"]]
    most = max(one[1] for one in own.values())
    words = f"share {share:.3f}, own class first for {right:.0%}, of any head {most:.0%}"
    yes = said["verdict"] == "yes"
    fits = right > 0.5 if yes else most <= 0.5 or said["p_value"] is not None
    return outcome(fits, close(share, said["effect"]["value"], 0.05, 0.02), words)


@tests("gradients", "The gradient is")
def gradient(case: Case, said: dict[str, Any]) -> Outcome:
    net, draw = case.net, torch.Generator().manual_seed(1)
    some = case.train[:1000] if len(case.train) else case.few[:600]
    if (said["n"] or 0) > 1.01 * (len(case.train) or len(case.at)):
        return "not re-tested", "several answers an example"
    weights = {k: v.clone().requires_grad_() for k, v in net.w.items()}
    saved, net.w = net.w, weights

    def size(targets: torch.Tensor) -> float:
        logits = case.logits(some)
        each = [
            F.cross_entropy(logits[:, part], targets[:, i], ignore_index=-1)
            for i, part in enumerate(case.slices)
            if bool((targets[:, i] >= 0).any())
        ]
        grads = torch.autograd.grad(
            torch.stack(each).mean(), list(weights.values()), allow_unused=True
        )
        return float(torch.stack([g.norm() for g in grads if g is not None]).norm())

    own = size(case.targets[some])
    other = [size(case.targets[some][torch.randperm(len(some), generator=draw)]) for _ in range(3)]
    net.w = saved
    below = math.log10(np.mean(other) / max(own, 1e-300))
    yes = said["verdict"] == "yes"
    words = f"{below:.2f} powers of ten below other answers"
    return outcome((below > 0.05) == yes, close(below, said["effect"]["value"], 0.3, 0.4), words)


# --- neurons -------------------------------------------------------------------------------------
def _neuron_shares(case: Case) -> tuple[np.ndarray, np.ndarray, str]:
    """(neuron,) largest share of a neuron's variance in the products of constants, cosines and
    sines of one frequency of both operands; that frequency; the hook.
    """
    hook, n = f"post{case.net.layers - 1}", len(case.values)
    parts = []
    for rows in case.all.split(256):
        found = case.net.run(case.tokens[case.rows[rows]])[hook]
        parts.append(found[torch.arange(len(rows)), case.at[rows]])
    grid = torch.cat(parts).view(n, n, -1).numpy()
    grid = grid - grid.mean((0, 1))
    alive = grid.std((0, 1)) > 1e-6 * grid.std()
    one, shares = np.full((1, n), 1 / math.sqrt(n)), []
    for k in range(1, n // 2 + 1):
        basis = np.concatenate([one, case.waves([k], n)])
        left = np.einsum("ax,by,xyn->abn", basis, basis, grid)
        shares.append((left**2).sum((0, 1)) / np.maximum((grid**2).sum((0, 1)), 1e-30))
    return np.where(alive, np.max(shares, 0), np.nan), 1 + np.argmax(shares, 0), hook


@tests("neurons", "compute with one frequency")
def neurons(case: Case, said: dict[str, Any]) -> Outcome:
    largest = _neuron_shares(case)[0]
    largest = largest[np.isfinite(largest)]
    words = f"mean largest share {largest.mean():.3f}, above half for {(largest > 0.5).mean():.0%}"
    ok = close(float(largest.mean()), said["effect"]["value"], 0.1, 0.03)
    yes = said["verdict"] == "yes"
    return outcome(bool(largest.mean() > 0.3) == yes or not yes, ok, words)


# --- more of heads and neurons -------------------------------------------------------------------
@tests("weights", "read what .* writes|-composition was found")
def composition(case: Case, said: dict[str, Any]) -> Outcome:
    """The score of Elhage et al. 2021, beside the same after random rotations of the stream."""
    named = re.findall(r"L(\d+)H(\d+)", said["headline"])
    kind = next(name[0] for name in said["details"] if name.endswith("-composition score"))
    reader, writer = named if said["verdict"] == "yes" else named[::-1]

    def weight(name: str, place: Sequence[str]) -> torch.Tensor:
        if name == "O":
            return case.net.w[f"blocks.{place[0]}.attn.W_O"][int(place[1])]
        return case.net.read_by(name, *place)

    out, asked = weight("V", writer) @ weight("O", writer), weight("Q", reader)
    read = {
        "Q": asked @ weight("K", reader).T,
        "K": weight("K", reader) @ asked.T,
        "V": weight("V", reader) @ weight("O", reader),
    }[kind]
    draw = torch.Generator().manual_seed(0)

    def score(turn: torch.Tensor) -> float:
        return float((out @ turn @ read).norm() / out.norm() / read.norm())

    own = score(torch.eye(len(out), dtype=out.dtype))
    turns = torch.linalg.qr(torch.randn(99, *out.shape, generator=draw, dtype=out.dtype))[0]
    random = [score(turn) for turn in turns]
    words = f"score {own:.3f}, turned at most {max(random):.3f}"
    stated = said["details"][f"{kind}-composition score"]
    return outcome(said["verdict"] == "no" or own > max(random), close(own, stated), words)


@tests("weights", "queries with their own token")
def matching(case: Case, said: dict[str, Any]) -> Outcome:
    named = re.findall(r"L(\d+)H(\d+)", said["headline"])
    if len(named) < 2:
        return "not re-tested", "a sentence that names one head"
    (i, h), (j, g) = named  # the second asks through the first
    w = case.net.w
    e = w["embed.W_E"] - w["embed.W_E"].mean(0)
    left = e @ case.net.read_by("Q", i, h) @ case.net.read_by("K", i, h).T
    full = left @ (e @ case.net.read_by("V", j, g) @ w[f"blocks.{j}.attn.W_O"][int(g)]).T
    lam = torch.linalg.eigvals(full)
    share = float(lam.real.sum() / lam.abs().sum())
    own = float((full.argmax(1) == torch.arange(len(full))).double().mean())
    words = f"share {share:.3f}, own token first for {own:.0%}"
    right = close(share, said["effect"]["value"], 0.05, 0.03)
    return outcome((own > 0.5) == (said["verdict"] == "yes"), right, words)


@tests("attention", "repeats what")
def repeats(case: Case, said: dict[str, Any]) -> Outcome:
    """Answers that are what followed an equal token earlier, with and without the heads at their
    mean.
    """
    heads = said["metrics"].get("induction.heads") or []
    tokens, at = case.tokens[case.rows[case.few]], case.at[case.few]

    def copied(logits: torch.Tensor) -> float:
        answer, hits = logits[:, case.slices[0]].argmax(1), []
        for row, place, one in zip(tokens, at.tolist(), answer.tolist(), strict=True):
            before = [int(row[k + 1]) for k in range(place) if row[k] == row[place]]
            if before:
                hits.append(one in before)
        return float(np.mean(hits)) if hits else math.nan

    edits = [_mean_edit(case, name, case.few) for name in heads]

    def all_of(name: str, x: torch.Tensor) -> torch.Tensor:
        for edit in edits:
            x = edit(name, x)
        return x

    with torch.no_grad():
        whole, less = copied(case.plain[case.few]), copied(case.logits(case.few, all_of))
    if math.isnan(whole):
        return "not re-tested", "no token occurs twice"
    words = f"{whole:.3f} of answers repeat, {less:.3f} without {heads}"
    right = close(whole - less, said["effect"]["value"], 0.2, 0.1)
    return outcome((whole > 0.5 and less < 0.5 * whole) == (said["verdict"] == "yes"), right, words)


@tests("neurons", "The model needs the")
def cluster_needed(case: Case, said: dict[str, Any]) -> Outcome:
    """The neurons whose largest share is at the frequency, at their mean at the answer."""
    frequency = int(re.search(r"frequency (\d+)", said["headline"])[1])
    count = int(re.search(r"the (\d+) neurons", said["headline"])[1])
    largest, which, hook = _neuron_shares(case)
    units = np.argsort(-np.where((which == frequency) & np.isfinite(largest), largest, -1))[:count]
    rows = torch.arange(len(case.few))
    mean = case.activations(case.few, [hook])[hook][rows, case.at[case.few]].mean(0)

    def rise(chosen: np.ndarray) -> float:
        def edit(name: str, x: torch.Tensor) -> torch.Tensor:
            if name != hook:
                return x
            x = x.clone()
            x[:, -1, chosen] = mean[chosen]
            return x

        with torch.no_grad():
            after = case.logits(case.few, edit)
        return case.loss(after, case.few) - case.loss(case.plain[case.few], case.few)

    draw, own = np.random.default_rng(6), rise(units)
    random = [rise(draw.permutation(len(largest))[:count]) for _ in range(19)]
    words = f"{own:.3g} nats, random at most {max(random):.3g}"
    yes = said["verdict"] == "yes"
    fits = own > np.median(random) if yes else own < max(random) or own < 0.1
    return outcome(bool(fits), close(own, said["effect"]["value"], 0.25, 0.05), words)


# --- all -----------------------------------------------------------------------------------------
def retest(
    drawn: Sequence[dict[str, Any]], folder: Path, wrong: bool = False
) -> list[dict[str, Any]]:
    """Each drawn sentence with its outcome; wrong: its number made twice as large first."""
    cases: dict[int, tuple[dict[str, Any], Case]] = {}
    made = []
    for one in sorted(drawn, key=lambda one: one["number"]):
        if one["number"] not in cases:
            told = json.loads((folder / f"{one['number']}.json").read_text())
            cases.clear()
            cases[one["number"]] = told, Case(told, folder)
        told, case = cases[one["number"]]
        (said,) = [
            x
            for x in told["findings"]
            if (x["probe"], x["place"], x["text"]) == (one["probe"], one["place"], one["text"])
        ]
        if wrong and said["effect"]:
            effect = {**said["effect"], "value": 2 * said["effect"]["value"]}
            doubled = re.sub(r"\d+(?=%)", lambda share: str(2 * int(share[0])), said["headline"])
            said = {**said, "effect": effect, "headline": doubled}
        found: Outcome = ("not re-tested", "no test of this kind")
        for pattern, test in TESTS.get(one["probe"], []):
            if re.search(pattern, said["headline"]):
                found = test(case, said)
                break
        made.append({**one, "outcome": found[0], "own": found[1]})
        print(
            f"{found[0]:13} {one['model']} {one['probe']}: {one['text'][:110]} | {found[1]}",
            flush=True,
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--found", type=Path, default=Path("runs/sentences"))
    parser.add_argument("--all", action="store_true", help="all that was found, not those drawn")
    parser.add_argument("--wrong", action="store_true", help="double every number first")
    parser.add_argument("--out", type=Path, help="write the outcomes there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    drawn = json.loads(RESULT.read_text())["rows"] if not given.all else []
    for file in sorted(given.found.glob("*.json")) if given.all else []:
        told = json.loads(file.read_text())
        drawn += [
            {
                "number": told["number"],
                "model": told["model"],
                **{k: x[k] for k in ("probe", "place", "text", "verdict")},
            }
            for x in told["findings"]
        ]
    made = retest(drawn, given.found, given.wrong)
    print(Counter(one["outcome"] for one in made))
    if given.out:
        given.out.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
