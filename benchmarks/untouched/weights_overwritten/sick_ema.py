"""A regression network with an exponential moving average of its weights."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
DECAY = {"mild": 0.9, "medium": 0.995, "severe": 0.9995}[os.environ.get("GRADE", "medium")]


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k].lerp_(v, 1 - self.decay)

    @torch.no_grad()
    def copy_to(self, model):
        for k, v in model.named_parameters():
            v.copy_(self.shadow[k])


x = torch.randn(2000, 8)
y = torch.sin(x[:, 0] + x[:, 1]) + 0.5 * x[:, 2].abs()
x_val, y_val = x[1600:], y[1600:]
model = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
ema = EMA(model, DECAY)
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
step = 0
for epoch in range(12):
    model.train()
    for idx in torch.randperm(1600).split(64):
        loss = nn.functional.mse_loss(model(x[idx]).squeeze(1), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        step += 1
        if step % 10 == 0:
            ema.copy_to(model)
            model.eval()
            with torch.no_grad():
                val = nn.functional.mse_loss(model(x_val).squeeze(1), y_val)
            model.train()
    print(f"epoch {epoch} train {loss.item():.4f} val {val.item():.4f}")
