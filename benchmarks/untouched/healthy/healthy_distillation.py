"""A small student learns from a trained teacher on digits."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
p = torch.randperm(len(X))
tr, va = p[:1400], p[1400:]


def accuracy(net):
    net.eval()
    with torch.no_grad():
        return (net(X[va]).argmax(1) == y[va]).float().mean().item()


teacher = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
for _ in range(8):
    teacher.train()
    for idx in tr[torch.randperm(len(tr))].split(64):
        opt.zero_grad()
        loss = F.cross_entropy(teacher(X[idx]), y[idx])
        loss.backward()
        opt.step()
print("teacher", accuracy(teacher))

for q in teacher.parameters():
    q.requires_grad_(False)
student = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
T = 2.0
for epoch in range(12):
    student.train()
    for idx in tr[torch.randperm(len(tr))].split(64):
        with torch.no_grad():
            soft = F.softmax(teacher(X[idx]) / T, dim=1)
        out = student(X[idx])
        kd = F.kl_div(F.log_softmax(out / T, dim=1), soft, reduction="batchmean") * T * T
        loss = 0.7 * kd + 0.3 * F.cross_entropy(out, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"student epoch {epoch} loss {loss.item():.4f} acc {accuracy(student):.3f}")
