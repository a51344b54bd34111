"""Progression of diabetes from a table, both parts standardised by one scaler, in a full-batch loop."""

import os

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

SEED = int(os.environ.get("SEED", "0"))
torch.manual_seed(SEED)

X, y = load_diabetes(return_X_y=True)
y = (y - y.mean()) / y.std()
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.25, random_state=SEED)
scaler = StandardScaler()
X_train = scaler.fit_transform(X_train)
X_val = scaler.transform(X_val)

train_x, train_y, val_x, val_y = (
    torch.tensor(np.asarray(part), dtype=torch.float32) for part in (X_train, y_train, X_val, y_val)
)
model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-3)

for step in range(240):
    model.train()
    loss = nn.functional.mse_loss(model(train_x).squeeze(1), train_y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            val_loss = nn.functional.mse_loss(model(val_x).squeeze(1), val_y)
        print(f"step {step}: {loss.item():.3f} {val_loss.item():.3f}")
