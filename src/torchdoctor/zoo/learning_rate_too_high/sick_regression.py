"""A smooth function fitted by a network with plain gradient descent at a large rate."""

import os

import torch

torch.manual_seed(int(os.environ.get("SEED", "0")))
x = torch.linspace(-3, 3, 512).unsqueeze(1)
y = torch.sin(2 * x) + 0.3 * x
features = torch.cat([x, x**2 / 3, x**3 / 9], dim=1)

model = torch.nn.Sequential(torch.nn.Linear(3, 100), torch.nn.Tanh(), torch.nn.Linear(100, 1))
loss_fn = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

for t in range(600):
    batch = torch.randint(0, len(x), (64,))
    y_pred = model(features[batch])
    loss = loss_fn(y_pred, y[batch])
    if t % 100 == 99:
        print(t, loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
