"""One-cycle training of a tabular regressor."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(2400, 12)
y = torch.sin(x[:, :3].sum(1)) + 0.3 * x[:, 4] * x[:, 5] + 0.1 * torch.randn(2400)
y = (y - y.mean()) / y.std()
train = DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=40, shuffle=True)

EPOCHS = 15
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=len(train))
loss_fn = nn.MSELoss()
for epoch in range(EPOCHS):
    model.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = loss_fn(model(xb).squeeze(1), yb)
        loss.backward()
        opt.step()
    sched.step()
    model.eval()
    with torch.no_grad():
        val = loss_fn(model(x[2000:]).squeeze(1), y[2000:]).item()
    print(f"epoch {epoch} train {loss.item():.4f} val {val:.4f} lr {opt.param_groups[0]['lr']:.5f}")
