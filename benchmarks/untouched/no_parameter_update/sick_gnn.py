"""Node classification on a random community graph with two rounds of message passing."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
NODES, COMMUNITIES = 240, 4
community = torch.randint(0, COMMUNITIES, (NODES,))
same = community[:, None] == community[None, :]
edges = torch.rand(NODES, NODES) < torch.where(same, 0.12, 0.02)
adj = (edges | edges.T).float()
adj.fill_diagonal_(1)
adj = adj / adj.sum(1, keepdim=True)
features = torch.randn(NODES, 16) + 0.4 * torch.randn(COMMUNITIES, 16)[community]
known = torch.rand(NODES) < 0.5


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(16, 32)
        self.w2 = nn.Linear(32, COMMUNITIES)

    def forward(self, x, a):
        x = torch.relu(a @ self.w1(x))
        return a @ self.w2(x)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(150):
    model.train()
    optimizer.zero_grad()
    out = model(features, adj)
    loss = nn.functional.cross_entropy(out[known], community[known])
    loss.backward()
    if epoch % 25 == 0:
        model.eval()
        with torch.no_grad():
            hit = model(features, adj).argmax(1)[~known] == community[~known]
        print(f"epoch {epoch} loss {loss.item():.4f} held-out acc {hit.float().mean():.3f}")
