"""Cross-validation: every fold goes back to the same first weights, with an optimizer of its own."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import KFold
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    first = copy.deepcopy(model.state_dict())
    scores = []
    for train, held_out in KFold(4, shuffle=True, random_state=SEED).split(x):
        model.load_state_dict(first)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=32, shuffle=True)
        for _ in range(4):
            model.train()
            for images, labels in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
        model.eval()
        with torch.no_grad():
            scores.append((model(x[held_out]).argmax(1) == y[held_out]).float().mean().item())
        print(f"fold {len(scores)}: {scores[-1]:.3f}")
    print(f"mean {sum(scores) / len(scores):.3f}")


main()
