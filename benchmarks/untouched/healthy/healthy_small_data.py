"""Fine-tuning on eighty samples with a small rate, after pretraining on a related task."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
low, high = y < 5, y >= 5
Xa, ya, Xb, yb = X[low], y[low], X[high], y[high] - 5
body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2))


def fit(model, groups, a, t, epochs, size, check=None):
    opt = torch.optim.AdamW(groups, weight_decay=0.01)
    for epoch in range(epochs):
        model.train()
        for idx in torch.randperm(len(a)).split(size):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(a[idx]), t[idx])
            loss.backward()
            opt.step()
        if check is not None and epoch % 5 == 4:
            model.eval()
            with torch.no_grad():
                out = model(check[0])
            v = nn.functional.cross_entropy(out, check[1]).item()
            acc = (out.argmax(1) == check[1]).float().mean()
            print(f"epoch {epoch + 1} train {loss.item():.4f} val {v:.4f} acc {acc:.3f}")


source = nn.Sequential(body, nn.Linear(64, 5))
fit(source, [{"params": source.parameters(), "lr": 2e-3}], Xa, ya, 8, 64)
target = nn.Sequential(body, nn.Linear(64, 5))
order = torch.randperm(len(Xb))
few, rest = order[:80], order[80:]
groups = [{"params": body.parameters(), "lr": 1e-3}, {"params": target[1].parameters(), "lr": 1e-2}]
fit(target, groups, Xb[few], yb[few], 40, 16, (Xb[rest], yb[rest]))
