"""An autoencoder that also classifies; the reconstruction is summed over pixels and outweighs the classes."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
WEIGHT = {"mild": 0.05, "medium": 1e-4, "severe": 1e-6}[GRADE]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64))
        self.classifier = nn.Linear(4, 8)

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), self.classifier(code)


def signals(count, basis, generator):
    """Strong common components, and a weak one that tells the classes apart."""
    label = torch.randint(0, 8, (count,), generator=generator)
    strong = torch.randn(count, 4, generator=generator) @ basis[:4]
    weak = 0.25 * basis[4:12][label]
    return TensorDataset(strong + weak + 0.02 * torch.randn(count, 64, generator=generator), label)


def losses(model, x, y):
    reconstruction, logits = model(x)
    return F.mse_loss(reconstruction, x, reduction="sum") / len(x), F.cross_entropy(logits, y), logits


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    basis = torch.linalg.qr(torch.randn(64, 64, generator=generator))[0]
    train = DataLoader(signals(2000, basis, generator), batch_size=50, shuffle=True)
    val = DataLoader(signals(600, basis, generator), batch_size=200)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(16):
        model.train()
        for x, y in train:
            reconstruction, classes, _ = losses(model, x, y)
            loss = reconstruction + WEIGHT * classes
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        total, right = 0.0, 0
        with torch.no_grad():
            for x, y in val:
                reconstruction, classes, logits = losses(model, x, y)
                total += (reconstruction + WEIGHT * classes).item()
                right += (logits.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: validation loss {total / len(val):.4f} accuracy {right / 600:.3f}")


if __name__ == "__main__":
    main()
