"""SimCLR-like embeddings of digits with a linear read-out at the end."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))

d = load_digits()
perm = torch.randperm(len(d.target))
x = torch.tensor(d.data / 16).float()[perm]
labels = d.target[perm.numpy()]
encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
projector = nn.Sequential(nn.ReLU(), nn.Linear(64, 32))
opt = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)


def augment(v):
    return v * (torch.rand_like(v) > 0.2) + 0.1 * torch.randn_like(v)


def nt_xent(a, b, tau=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / tau
    n = len(a)
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


for epoch in range(12):
    total = 0.0
    for idx in torch.randperm(len(x)).split(128):
        loss = nt_xent(projector(encoder(augment(x[idx]))), projector(encoder(augment(x[idx]))))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    print(f"epoch {epoch} loss {total / len(x):.4f}")
with torch.no_grad():
    z = encoder(x).numpy()
print("linear probe", LogisticRegression(max_iter=200).fit(z[:1300], labels[:1300]).score(z[1300:], labels[1300:]))
