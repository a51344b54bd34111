"""A search: 300 small models, three steps each, all of them kept."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs, targets = torch.randn(64, 8), torch.randn(64, 1)
models = []
for trial in range(300):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 + 0.0001 * trial)
    for _step in range(3):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    models.append((loss.item(), model))
print(min(loss for loss, _ in models))
