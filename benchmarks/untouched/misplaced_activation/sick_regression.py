"""Disease progression (standardised) from the diabetes table."""

import os

import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)

X, y = load_diabetes(return_X_y=True)
X_tr, X_va, y_tr, y_va = train_test_split(X, y, test_size=0.25, random_state=SEED)
xs, ys = StandardScaler().fit(X_tr), StandardScaler().fit(y_tr[:, None])
t = lambda a: torch.tensor(a, dtype=torch.float32)  # noqa: E731
X_tr, X_va = t(xs.transform(X_tr)), t(xs.transform(X_va))
y_tr, y_va = t(ys.transform(y_tr[:, None])), t(ys.transform(y_va[:, None]))

model = nn.Sequential(
    nn.Linear(10, 16),
    nn.ReLU(),
    nn.Linear(16, 1),
    nn.ReLU(),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-3)
loss_fn = nn.MSELoss()
for epoch in range(30):
    model.train()
    for idx in torch.randperm(len(X_tr)).split(32):
        optimizer.zero_grad()
        loss = loss_fn(model(X_tr[idx]), y_tr[idx])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(f"epoch {epoch} train {loss_fn(model(X_tr), y_tr):.4f} val {loss_fn(model(X_va), y_va):.4f}")
