"""A stream of short sequences for a GRU, read by two workers."""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SEED = int(os.environ.get("SEED", "0"))


class Waves(IterableDataset):
    """Noisy sines of two kinds: is the second half faster than the first?"""

    def __init__(self, count):
        random = np.random.default_rng(SEED)
        time = np.linspace(0, 1, 20)
        self.labels = random.integers(0, 2, count)
        speed = 2 * np.pi * (2 + np.outer(self.labels, time > 0.5) * 1.5)
        waves = np.sin(speed * time + random.uniform(0, 6, (count, 1))) + 0.2 * random.normal(size=(count, 20))
        self.waves = torch.tensor(waves, dtype=torch.float32).unsqueeze(-1)

    def __iter__(self):
        for wave, label in zip(self.waves, self.labels, strict=True):
            yield wave, int(label)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    loader = DataLoader(Waves(1600), batch_size=32, num_workers=2)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(2):
        losses = []
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: {np.mean(losses):.3f} over {len(losses)} batches")


if __name__ == "__main__":
    main()
