"""A module, a task and a probe of your own, and several seeds of it as one table.

The module is written as people write them: queries, keys and values in one layer, updates in place.
The task is a line modulo p that no task of mechint's is. Every seed becomes a row.
"""

# %% A task: a + 2b modulo p
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import mechint
from mechint import (
    Chance,
    Claim,
    FiniteTask,
    Need,
    Output,
    Probe,
    ProbeResult,
    Report,
    Subject,
    Symmetry,
    Vocabulary,
    setting,
)
from mechint.groups.named import cyclic
from mechint.interventions import ablate
from mechint.task import IGNORE


@dataclass(frozen=True)
class Line(FiniteTask):
    """The remainder of a + 2b modulo p."""

    name: ClassVar[str] = "line"
    source: ClassVar[str] = "this example"

    p: int = setting(11, "modulus", low=3, high=97)
    train_fraction: float = setting(0.9, "share to train on", low=0.05, high=1.0)

    @property
    def vocabulary(self) -> Vocabulary:
        """The numbers and an equals sign."""
        return Vocabulary((*map(str, range(self.p)), "="))

    @property
    def n_ctx(self) -> int:
        """Two numbers and the sign."""
        return 3

    @property
    def outputs(self) -> tuple[Output, ...]:
        """One of p remainders."""
        return (Output("answer", self.p, self.symmetry.group),)

    @property
    def chance(self) -> Mapping[str, Chance]:
        """All remainders are as frequent."""
        return {"answer": Chance.of(self.examples().targets[:, -1, 0])}

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        """The answer behind the sign."""
        return [[IGNORE], [IGNORE], [(tokens[0] + 2 * tokens[1]) % self.p]]

    @property
    def grid(self) -> tuple[int, ...]:
        """All pairs."""
        return (self.p, self.p)

    @property
    def fractions(self) -> tuple[float, float]:
        """Of training and of validation."""
        return self.train_fraction, 0.0

    @property
    def symmetry(self) -> Symmetry:
        """The cyclic group, which acts on the numbers."""
        return Symmetry(cyclic(self.p), tuple(range(self.p)))

    def inputs(self) -> Tensor:
        """(p², 3), in the order of the grid."""
        pairs = torch.cartesian_prod(torch.arange(self.p), torch.arange(self.p))
        return torch.cat([pairs, torch.full((len(pairs), 1), self.p)], 1)

    def label_inputs(self, tokens: Tensor) -> Tensor:
        """(batch, 3, 1): the answer at the last position."""
        labels = torch.full((*tokens.shape, 1), IGNORE)
        labels[:, 2, 0] = (tokens[:, 0] + 2 * tokens[:, 1]) % self.p
        return labels


# %% A module and its training loop
class Net(nn.Module):
    """A block of attention and MLP on three tokens."""

    def __init__(self, p: int = 11, d: int = 32) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(p + 1, d), nn.Parameter(0.1 * torch.randn(3, d))
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.act, self.fc2 = (
            nn.Linear(d, 4 * d),
            nn.ReLU(inplace=True),
            nn.Linear(4 * d, d),
        )
        self.block, self.out = nn.Identity(), nn.Linear(d, p, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, pos, p)."""
        x = self.tok(tokens)
        x = x + self.pos
        q, k, v = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(z.transpose(1, 2).flatten(2))
        return self.out(self.block(x + self.fc2(self.act(self.fc1(x)))))


task = Line()
train = task.examples()[task.split(0)["train"]]


def trained(seed: int) -> Net:
    """A net after 200 steps."""
    torch.manual_seed(seed)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(200):
        loss = nn.functional.cross_entropy(net(train.tokens)[:, -1], train.targets[:, -1, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


# %% Wrap it: hooks for activations, weights for what reads them, make for initial weights
def wrapped(net: Net) -> Subject:
    """The net as what probes are given."""
    hooks = {"hook_embed": "tok", "blocks.0.hook_attn_out": "proj", "blocks.0.mlp.hook_pre": "fc1"}
    hooks |= {"blocks.0.mlp.hook_post": "fc2:input", "blocks.0.hook_mlp_out": "fc2"}
    weights = {"W_E": "tok.weight", "W_U": lambda module: module.out.weight.T}
    return Subject(
        mechint.wrap(net, hooks | {"blocks.0.hook_resid_post": "block"}, weights=weights, make=Net),
        task,
    )


subject = wrapped(trained(0))
account = mechint.analyze(subject, "fourier")
account

# %% Without a layer, by its name
without = ablate(subject, "L0 MLP")
print(without)


# %% A probe of your own: logits and targets of the answer, and a null
@dataclass(frozen=True)
class Margin(Probe):
    """How far is the right answer ahead of the next best one?

    The mean over inputs of the answer's logit minus the largest other. Cost: `models` untrained
    models.
    """

    name: ClassVar[str] = "margin"
    source: ClassVar[str] = "this example"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS, Need.REINITIALIZE)

    models: int = setting(99, "untrained models of the null", low=1)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        """The margin beside that of initial weights."""
        report = Report(self, subject)
        null = [margin(subject.untrained(seed + i)) for i in range(self.models)]
        mine = margin(subject)
        report.metric("mean", mine, null=null, how="initial weights")
        report.finding(
            Claim(
                f"The right answer is {mine:.1f} ahead on the mean",
                no="The right answer is no further ahead than with initial weights",
            ),
            mine,
        )
        return report.result()


def margin(subject: Subject) -> float:
    """Mean margin (logits), from (row, class) logits and (row, output) targets."""
    logits, targets = subject.logits().double(), subject.targets[:, :1]
    right = logits.gather(1, targets)
    return float((right[:, 0] - logits.scatter(1, targets, float("-inf")).amax(1)).mean())


result = Margin().run(subject)
result

# %% Three seeds as one table
table = mechint.runs({f"seed {seed}": wrapped(trained(seed)) for seed in range(3)})
frame = table.probe("fourier").frame()
frame[["name", "fourier.verdict", "fourier.logits.key_frequencies"]]
