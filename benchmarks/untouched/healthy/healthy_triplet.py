"""Triplet embeddings of digits with the built-in margin loss."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
perm = torch.randperm(len(X))
X, y = X[perm], y[perm]
by_class = [torch.nonzero(y[:1300] == k).squeeze(1) for k in range(10)]


def triplets(n):
    k = torch.randint(0, 10, (n,))
    other = (k + torch.randint(1, 10, (n,))) % 10
    pick = lambda c: by_class[c][torch.randint(0, len(by_class[c]), (1,))]  # noqa: E731
    a = torch.cat([pick(int(c)) for c in k])
    p = torch.cat([pick(int(c)) for c in k])
    n_ = torch.cat([pick(int(c)) for c in other])
    return X[a], X[p], X[n_]


net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
loss_fn = nn.TripletMarginLoss(margin=1.0)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(300):
    a, p, n = (net(v) for v in triplets(64))
    loss = loss_fn(a, p, n)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 59:
        with torch.no_grad():
            z = net(X).numpy()
        knn = KNeighborsClassifier(5).fit(z[:1300], y[:1300]).score(z[1300:], y[1300:])
        print(f"step {step + 1} loss {loss.item():.4f} knn {knn:.3f}")
