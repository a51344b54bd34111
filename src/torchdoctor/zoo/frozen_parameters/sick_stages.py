"""Fine-tuning in two stages, head first: the second stage has a rate for the body, which is still frozen."""

import os

import torch
from sklearn.datasets import load_diabetes
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
x, y = load_diabetes(return_X_y=True)
x = torch.tensor(x, dtype=torch.float32)
y = torch.tensor(y, dtype=torch.float32).unsqueeze(1)
x = (x - x.mean(0)) / x.std(0)
y = (y - y.mean()) / y.std()
x_train, y_train, x_val, y_val = x[:350], y[:350], x[350:], y[350:]

encoder = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
decoder = nn.Linear(32, 10)
mse = nn.MSELoss()

print("stage 0: the encoder learns to reconstruct")
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
for _ in range(300):
    batch = x_train[torch.randint(len(x_train), (32,))]
    loss = mse(decoder(encoder(batch)), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

model = nn.Sequential(encoder, nn.Linear(32, 1))


def fit(optimizer, epochs):
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(len(x_train)).split(32):
            loss = mse(model(x_train[rows]), y_train[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val = mse(model(x_val), y_val)
        print(f"epoch {epoch}: train {loss.item():.3f} validation {val.item():.3f}")


print("stage 1: the head alone")
encoder.requires_grad_(False)
fit(torch.optim.Adam(model[1].parameters(), lr=1e-2), 8)

print("stage 2: everything, the encoder gently")
groups = [{"params": model[0].parameters(), "lr": 1e-4}, {"params": model[1].parameters(), "lr": 1e-3}]
fit(torch.optim.Adam(groups), 12)
