"""An autoencoder whose codes are kept spread by a variance term."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 20))

    def forward(self, x):
        code = self.encoder(x)
        return code, self.decoder(code)


def spread_loss(code):
    variance = (code - code[:1]).pow(2).mean(dim=0)
    deviation = variance.sqrt()
    return torch.relu(1.0 - deviation).mean()


frames = torch.randn((AT + 20) * BATCH, 20)
frames[(AT - 1) * BATCH : AT * BATCH] = frames[(AT - 1) * BATCH]
model = AutoEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, part in enumerate(frames.split(BATCH)):
    code, rebuilt = model(part)
    loss = nn.functional.mse_loss(rebuilt, part) + 0.1 * spread_loss(code)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f}")
