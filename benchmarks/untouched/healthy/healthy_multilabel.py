"""Multi-label classification with BCE on logits."""

import os

import torch
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(3000, 20)
y = ((x @ torch.randn(20, 6)) / 2 + torch.randn(3000, 6) * 0.5 > 0.3).float()
train = DataLoader(TensorDataset(x[:2400], y[:2400]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 6))
criterion = nn.BCEWithLogitsLoss()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(10):
    model.train()
    for xb, yb in train:
        opt.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        out = model(x[2400:])
        val = criterion(out, y[2400:]).item()
    print(f"epoch {epoch} train {loss.item():.4f} val {val:.4f} f1 {f1_score(y[2400:], out > 0, average='micro'):.3f}")
