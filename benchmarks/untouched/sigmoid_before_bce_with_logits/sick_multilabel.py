"""Multi-label tags for synthetic documents."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import make_multilabel_classification
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)

X, Y = make_multilabel_classification(2000, n_features=30, n_classes=6, n_labels=2, random_state=SEED)
X = torch.tensor((X - X.mean(0)) / X.std(0)).float()
Y = torch.tensor(Y).float()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(30, 48)
        self.out = nn.Linear(48, 6)

    def forward(self, x):
        return torch.sigmoid(self.out(F.relu(self.hidden(x))))


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(15):
    for idx in torch.randperm(1600).split(64):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(X[idx]), Y[idx])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        p = model(X[1600:])
        hamming = ((p > 0.5).float() == Y[1600:]).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} label accuracy {hamming:.3f}")
