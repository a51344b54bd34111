"""House prices from a stack of linear layers and dropout; the activation's result is thrown away."""

import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
n = 2400
size, age, distance, rooms = torch.rand(4, n)
price = 3 * size * rooms + torch.exp(-3 * distance) + torch.cos(4 * age) + 0.1 * torch.randn(n)
features = torch.stack([size, age, distance, rooms], 1)
features = (features - features.mean(0)) / features.std(0)
price = ((price - price.mean()) / price.std()).unsqueeze(1)


class PriceModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 64)])
        self.dropout = nn.Dropout(0.05)
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        for layer in self.layers:
            x = self.dropout(layer(x))
            F.relu(x)
        return self.head(x)


model = PriceModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
train, val = slice(0, 2000), slice(2000, None)
for epoch in range(12):
    model.train()
    for rows in torch.randperm(2000).split(50):
        loss = F.mse_loss(model(features[train][rows]), price[train][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        val_loss = F.mse_loss(model(features[val]), price[val])
    print(f"{epoch}: {loss.item():.3f} {val_loss.item():.3f}")
