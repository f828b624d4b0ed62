"""A module, a task and a probe of your own, and several seeds of it as one table.

The module is written as people write them: queries, keys and values in one layer, updates in place.
The task is a sum modulo 11 that no task of mechint's is. Every seed becomes a row.
"""

# %% A task: a + b + 1 modulo 11
from dataclasses import replace

import torch
from torch import Tensor, nn

import mechint
from mechint import Need, Probe, Subject, Task
from mechint.interventions import ablate

task = Task.of(inputs=(11, 11), answer=lambda a, b: (a + b + 1) % 11, name="sum-and-one")
task = replace(task, train_fraction=0.9)
train = task.examples()[task.split(0)["train"]]


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


# %% A probe of your own: a number of a subject, and a null
@Probe.of(
    question="How far is the right answer ahead of the next best one?",
    null=mechint.untrained(99),
    needs=[Need.ANSWERS],
)
def margin(subject: Subject) -> Tensor:
    """Mean margin (logits), from (row, class) logits and (row, output) targets."""
    logits, targets = subject.logits(), subject.targets[:, :1]
    right = logits.gather(1, targets)
    return (right[:, 0] - logits.scatter(1, targets, float("-inf")).amax(1)).mean()


result = margin.run(subject)
result

# %% Three seeds as one table
table = mechint.runs({f"seed {seed}": wrapped(trained(seed)) for seed in range(3)})
frame = table.probe("fourier").frame()
frame[["name", "fourier.verdict", "fourier.logits.key_frequencies"]]
