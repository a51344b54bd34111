"""A short healthy training: 80 steps of a small classifier."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
data = torch.utils.data.TensorDataset(torch.randn(512, 20), torch.randint(0, 3, (512,)))
loader = torch.utils.data.DataLoader(data, 32, shuffle=True)
loss_fn = torch.nn.CrossEntropyLoss()
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
