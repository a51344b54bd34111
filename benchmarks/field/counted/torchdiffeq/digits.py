import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchdiffeq import odeint

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--tol", type=float, default=1e-3)
parser.add_argument("--method", default="dopri5")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
torch.manual_seed(args.seed)

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32).reshape(-1, 1, 8, 8)
X_train, X_test, y_train, y_test = map(torch.from_numpy, train_test_split(X, y, test_size=0.25, random_state=args.seed))
train_loader = DataLoader(TensorDataset(X_train, y_train), batch_size=args.batch_size, shuffle=True, drop_last=True)
test_loader = DataLoader(TensorDataset(X_test, y_test), batch_size=150)


def norm(dim):
    return nn.GroupNorm(8, dim)


class ODEFunc(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = norm(dim), norm(dim), norm(dim)
        self.conv1 = nn.Conv2d(dim + 1, dim, 3, padding=1)
        self.conv2 = nn.Conv2d(dim + 1, dim, 3, padding=1)

    def forward(self, t, x):
        time = torch.ones_like(x[:, :1]) * t
        x = torch.relu(self.norm1(x))
        x = self.conv1(torch.cat([time, x], 1))
        x = torch.relu(self.norm2(x))
        return self.norm3(self.conv2(torch.cat([time, x], 1)))


class ODEBlock(nn.Module):
    def __init__(self, odefunc):
        super().__init__()
        self.odefunc = odefunc

    def forward(self, x):
        times = torch.tensor([0.0, 1.0])
        settings = {"rtol": args.tol, "atol": args.tol} if args.method == "dopri5" else {"options": {"step_size": 0.25}}
        return odeint(self.odefunc, x, times, method=args.method, **settings)[1]


func = ODEFunc(16)
down = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), norm(16), nn.ReLU(), nn.Conv2d(16, 16, 4, 2, 1))
head = nn.Sequential(norm(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
model = nn.Sequential(down, ODEBlock(torch.compile(func, backend="aot_eager") if args.compile else func), head)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [args.epochs * 3 // 4], gamma=0.1)


def accuracy(loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, target in loader:
            right += int((model(x).argmax(1) == target).sum())
    return right / len(loader.dataset)


for epoch in range(args.epochs):
    model.train()
    for x, target in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"Epoch {epoch:04d} | loss {loss.item():.4f} | accuracy {accuracy(test_loader):.4f}")
print("metric accuracy", accuracy(test_loader))
