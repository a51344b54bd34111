"""Species counted from one in the file and from zero in the network."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self, species):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 40), nn.Linear(40, 40)])
        self.head = nn.Linear(40, species)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def read_file(species=5, rows=1200):
    centers = 1.5 * torch.randn(species, 12)
    number = torch.randint(1, species + 1, (rows,))
    return centers[number - 1] + torch.randn(rows, 12), number


def main():
    torch.manual_seed(int(os.environ.get("SEED", "4")))
    x, species = read_file()
    species = species - 1
    loader = DataLoader(TensorDataset(x, species), batch_size=24, shuffle=True)
    model = Model(5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(5):
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
