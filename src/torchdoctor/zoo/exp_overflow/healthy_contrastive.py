"""Two views of each digit pulled together, the contrastive sum in its stable form, at a small temperature."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

TEMPERATURE = 0.01


def contrast(a, b):
    similarity = a @ b.T / TEMPERATURE
    together = similarity.diagonal()
    everything = torch.logsumexp(similarity, dim=1)
    return (everything - together).mean()


def view(images):
    return images + 0.2 * torch.randn_like(images)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    encoder = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 24))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    for epoch in range(6):
        for rows in torch.randperm(len(images)).split(128):
            a = F.normalize(encoder(view(images[rows])), dim=1)
            b = F.normalize(encoder(view(images[rows])), dim=1)
            loss = contrast(a, b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
