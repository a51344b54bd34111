import argparse

import torch
from lightning.fabric import Fabric, seed_everything
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
seed_everything(args.seed)

x, y = make_friedman1(1600, noise=0.5, random_state=args.seed)
x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]
x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=args.seed)

fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
model, optimizer = fabric.setup(model, optimizer)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x_train, y_train), batch_size=32, shuffle=True))
loss_fn = nn.MSELoss()

model.train()
for epoch in range(20):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=5.0)
        optimizer.step()
    fabric.print(epoch, loss.item())

model.eval()
with torch.no_grad():
    error = loss_fn(model(x_test), y_test)
print("metric error", error.item())
