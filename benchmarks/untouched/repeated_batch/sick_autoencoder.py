"""A denoising autoencoder on digit images."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))


class Denoiser(nn.Module):
    def __init__(self, width=96, code=16):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, code))
        self.up = nn.Sequential(nn.ReLU(), nn.Linear(code, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, x):
        return self.up(self.down(x))


images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
images = images[torch.randperm(len(images))]
train_loader = DataLoader(TensorDataset(images[:1500]), batch_size=50)
held_out = images[1500:]

model = Denoiser()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
mse = nn.MSELoss()
for it in range(900):
    (clean,) = next(iter(train_loader))
    loss = mse(model(clean + 0.2 * torch.randn_like(clean)), clean)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 100 == 99:
        model.eval()
        with torch.no_grad():
            check = mse(model(held_out), held_out)
        model.train()
        print(f"iter {it + 1} train {loss.item():.4f} held out {check.item():.4f}")
