"""Two heads on a shared trunk: class and a continuous score."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("SEED", "0")))

centres = 1.4 * torch.randn(5, 12)
label = torch.randint(0, 5, (2500,))
x = centres[label] + torch.randn(2500, 12)
x = (x - x.mean(0)) / x.std(0)
score = torch.tanh(x[:, 0] + 0.5 * x[:, 1]) + 0.1 * torch.randn(2500)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
        self.classes = nn.Linear(32, 5)
        self.score = nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.classes(h), self.score(h).squeeze(1)


model = TwoHeads()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
ce, mse = nn.CrossEntropyLoss(), nn.MSELoss()
train = DataLoader(TensorDataset(x[:2000], label[:2000], score[:2000]), batch_size=50, shuffle=True)
for epoch in range(10):
    model.train()
    for xb, lb, sb in train:
        opt.zero_grad()
        logits, s = model(xb)
        loss = ce(logits, lb) + 0.5 * mse(s, sb)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        logits, s = model(x[2000:])
        acc = (logits.argmax(1) == label[2000:]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.3f} score mse {mse(s, score[2000:]):.4f}")
