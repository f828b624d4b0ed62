"""A model in memory: a module of your own, wrapped so that probes can read and edit it.

Any `nn.Module` works: name the modules whose outputs are the hooks, and the weights that the probes
need. A task gives it labels, causal variables and chance.
"""

# %% A module of your own, trained by your own loop
import torch
from torch import nn

import mechint
import tasks

task = tasks.make("modular-arithmetic", p=13)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden = nn.Embedding(14, 32), nn.Linear(64, 128)
        self.act, self.out = nn.ReLU(), nn.Linear(128, 13, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.act(self.hidden(self.embed(tokens[:, :2]).flatten(1))))


torch.manual_seed(0)
net, data = Net(), task.examples()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
for _ in range(200):
    loss = nn.functional.cross_entropy(net(data.tokens), data.targets[:, -1, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% Wrap it: hooks by module, weights by parameter
model = mechint.wrap(
    net,
    hooks={"hook_embed": "embed", "blocks.0.mlp.hook_post": "act"},
    weights={"W_E": "embed.weight"},
)
account = mechint.analyze(mechint.Subject(model, task), "fourier")
account
