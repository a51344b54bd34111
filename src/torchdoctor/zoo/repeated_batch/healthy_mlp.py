"""An MLP on a table of four classes, batches drawn by a generator that is seeded once."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import make_classification
from torch import nn

seed = int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)
data, labels = make_classification(3000, 20, n_informative=10, n_classes=4, random_state=seed)
X, y = torch.tensor(data, dtype=torch.float32), torch.tensor(labels)
X_held, y_held = X[2400:], y[2400:]
generator = torch.Generator().manual_seed(7)


def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randint(0, 2400, (count,), generator=generator)
    return X[rows], y[rows]


model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(400):
    model.train()
    x, target = draw(48)
    loss = F.cross_entropy(model(x), target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0:
        model.eval()
        with torch.no_grad():
            scores = model(X_held)
        accuracy = (scores.argmax(1) == y_held).float().mean().item()
        held = F.cross_entropy(scores, y_held).item()
        print(f"step {step}: loss {loss.item():.3f}, validation {held:.3f}, accuracy {accuracy:.3f}")
