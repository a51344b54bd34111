"""Next-day price levels; the desk looks at the share of correct directions."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

walk = 0.15 * torch.randn(60, 260).cumsum(1)
walk = (walk - walk.mean()) / walk.std()
windows = walk.unfold(1, 9, 4)
train = windows[:45].reshape(-1, 9)
val = windows[45:].reshape(-1, 9)


class PriceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def direction(pred, batch):
    return ((pred > batch[:, 7]) == (batch[:, 8] > batch[:, 7])).float().mean().item()


model = PriceNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(15):
    model.train()
    total = 0.0
    for (b,) in DataLoader(TensorDataset(train), batch_size=64, shuffle=True):
        loss = nn.functional.mse_loss(model(b[:, :8]), b[:, 8])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(b)
    model.eval()
    with torch.no_grad():
        p = model(val[:, :8])
        v = nn.functional.mse_loss(p, val[:, 8]).item()
    print(
        f"epoch {epoch} train_loss {total / len(train):.4f} val_loss {v:.4f} val_direction_acc {direction(p, val):.3f}"
    )
