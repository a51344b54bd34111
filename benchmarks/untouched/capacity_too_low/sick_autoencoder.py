"""An autoencoder for digit images."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
CODE = {"mild": 4, "medium": 1, "severe": 1}[os.environ.get("GRADE", "medium")]
WIDTH = {"mild": 24, "medium": 4, "severe": 2}[os.environ.get("GRADE", "medium")]

images = torch.tensor(load_digits().data).float() / 8 - 1
images = images[torch.randperm(len(images))]
train, val = images[:1400], images[1400:]

encoder = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CODE))
decoder = nn.Sequential(nn.Linear(CODE, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 64))
params = [*encoder.parameters(), *decoder.parameters()]
opt = torch.optim.Adam(params, lr=5e-3)

for epoch in range(40):
    for batch in train[torch.randperm(len(train))].split(70):
        loss = (decoder(encoder(batch)) - batch).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        val_loss = (decoder(encoder(val)) - val).square().mean()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1} train {loss.item():.4f} val {val_loss.item():.4f} (variance {val.var():.3f})")
