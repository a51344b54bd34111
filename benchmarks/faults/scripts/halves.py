"""Trains, says that half of it is done, waits for the fault, trains on, and prints what must not change."""

import time

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(20, 20), nn.ReLU())], nn.Linear(20, 3))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
data = torch.utils.data.TensorDataset(torch.randn(512, 20), torch.randint(0, 3, (512,)))
loader = torch.utils.data.DataLoader(data, 32, shuffle=True)
for epoch in range(14):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item(), flush=True)
    if epoch == 6:
        print("half", flush=True)
        time.sleep(1.6)
print(sum(p.detach().double().abs().sum().item() for p in model.parameters()), torch.rand(1).item())
