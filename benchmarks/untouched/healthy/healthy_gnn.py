"""Graph convolution on a community graph, full batch."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
NODES, K = 400, 4
group = torch.randint(0, K, (NODES,))
same = group[:, None] == group[None]
link = torch.rand(NODES, NODES) < torch.where(same, 0.06, 0.01)
adj = (link | link.T).float().fill_diagonal_(1)
deg = adj.sum(1).rsqrt()
adj = deg[:, None] * adj * deg[None]
feats = torch.randn(K, 16)[group] + 1.5 * torch.randn(NODES, 16)
split = torch.rand(NODES)
train, val = split < 0.5, split >= 0.5


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(16, 24), nn.Linear(24, K)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x = torch.relu(adj @ self.l1(x))
        return adj @ self.l2(self.drop(x))


model = GCN()
opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(120):
    model.train()
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(feats)[train], group[train])
    loss.backward()
    opt.step()
    if epoch % 15 == 14:
        model.eval()
        with torch.no_grad():
            out = model(feats)
        acc = (out.argmax(1) == group)[val].float().mean().item()
        print(f"epoch {epoch + 1} loss {loss.item():.4f} val acc {acc:.3f}")
