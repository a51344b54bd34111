"""A recurrent network that tells noisy sequences apart, with a large batch as validation."""

import os

import torch
from torch import nn

SAMPLES = 1000


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 24, batch_first=True)
        self.out = nn.Linear(24, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[1][-1])


def draw(count):
    kind = torch.randint(0, 2, (count,))
    waves = torch.sin(torch.linspace(0, 9, 15) * (1 + 0.3 * kind.unsqueeze(1)))
    return waves.unsqueeze(2) * torch.ones(3) + 4.0 * torch.randn(count, 15, 3), kind


@torch.no_grad()
def validate(model):
    model.eval()
    x, y = draw(SAMPLES)
    output = model(x)
    model.train()
    return nn.functional.cross_entropy(output, y).item(), (output.argmax(1) == y).float().mean().item()


torch.manual_seed(int(os.environ.get("SEED", "0")))
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 301):
    x, y = draw(32)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, "loss {:.3f} accuracy {:.2f}".format(*validate(model)))
