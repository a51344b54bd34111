"""Marks which of six properties a signal has, by the binary loss on raw scores."""

import os

import torch
from torch import nn


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    signal = torch.randn(1600, 24)
    properties = (signal @ torch.randn(24, 6, generator=torch.Generator().manual_seed(3)) > 2.0).float()
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 6))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        for rows in torch.randperm(1400).split(40):
            optimizer.zero_grad()
            output = model(signal[rows])
            loss = criterion(output, properties[rows])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            held_out = criterion(model(signal[1400:]), properties[1400:])
        print(f"epoch {epoch}: {loss.item():.3f}, held out {held_out.item():.3f}")


if __name__ == "__main__":
    main()
