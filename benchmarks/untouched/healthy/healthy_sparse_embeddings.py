"""Matrix factorisation with sparse embedding gradients."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
USERS, ITEMS, DIM = 400, 300, 8

true_u, true_i = torch.randn(USERS, 3), torch.randn(ITEMS, 3)
pairs = torch.stack([torch.randint(0, USERS, (24000,)), torch.randint(0, ITEMS, (24000,))], 1)
rating = (true_u[pairs[:, 0]] * true_i[pairs[:, 1]]).sum(1) / 1.73 + 0.1 * torch.randn(24000)
train, val = slice(0, 20000), slice(20000, None)


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM, sparse=True)
        self.item = nn.Embedding(ITEMS, DIM, sparse=True)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.item.weight, std=0.3)

    def forward(self, p):
        return (self.user(p[:, 0]) * self.item(p[:, 1])).sum(1)


model = MF()
opt = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
for epoch in range(7):
    model.train()
    total = 0.0
    for idx in torch.randperm(20000).split(200):
        loss = nn.functional.mse_loss(model(pairs[idx]), rating[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(idx)
    model.eval()
    with torch.no_grad():
        v = nn.functional.mse_loss(model(pairs[val]), rating[val]).item()
    print(f"epoch {epoch} train {total / 20000:.4f} val {v:.4f}")
