"""An encoder and a head, trained together on handwritten digits: the features are detached before the head."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 24))

    def forward(self, x):
        return self.layers(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        features = self.encoder(x)
        return self.head(features.detach())


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
    y = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=64, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(8):
        model.train()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
        print(f"epoch {epoch}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
