"""An autoencoder of two modules on handwritten digits: the optimizer gets both."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    for epoch in range(12):
        total = 0.0
        for batch in pixels[torch.randperm(len(pixels))].split(64):
            rebuilt = decoder(encoder(batch))
            loss = nn.functional.mse_loss(rebuilt, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch} error {total / len(pixels):.4f}")


if __name__ == "__main__":
    main()
