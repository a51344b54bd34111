"""Friedman's regression problem with a validation set and early stopping."""

import os

import torch
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)
X, y = make_friedman1(2500, noise=0.5, random_state=SEED)
Xt, Xv, yt, yv = train_test_split(X, y, test_size=0.3, random_state=SEED)
sx, sy = StandardScaler().fit(Xt), StandardScaler().fit(yt[:, None])
f = lambda a: torch.tensor(a, dtype=torch.float32)  # noqa: E731
Xt, Xv, yt, yv = f(sx.transform(Xt)), f(sx.transform(Xv)), f(sy.transform(yt[:, None])), f(sy.transform(yv[:, None]))

model = nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
best, patience, state = float("inf"), 0, None
for epoch in range(60):
    model.train()
    for idx in torch.randperm(len(Xt)).split(50):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(Xt[idx]), yt[idx])
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(Xv), yv).item()
    print(f"epoch {epoch} train {loss.item():.4f} val {val:.4f}")
    if val < best - 1e-4:
        best, patience, state = val, 0, {k: v.clone() for k, v in model.state_dict().items()}
    else:
        patience += 1
        if patience == 5:
            break
model.load_state_dict(state)
print("best", round(best, 4))
