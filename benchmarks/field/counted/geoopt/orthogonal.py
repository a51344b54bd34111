import argparse

import geoopt
import numpy as np
import torch
from geoopt.layers.stereographic import Distance2StereographicHyperplanes
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["recurrent", "hyperbolic"], default="recurrent")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(args.seed)

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
X_train, X_test, y_train, y_test = map(torch.from_numpy, train_test_split(X, y, test_size=0.25, random_state=args.seed))
loader = DataLoader(TensorDataset(X_train, y_train), batch_size=64, shuffle=True)


class Recurrent(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.read = nn.Linear(8, hidden)
        self.turn = geoopt.ManifoldParameter(torch.empty(hidden, hidden), manifold=geoopt.Stiefel())
        nn.init.orthogonal_(self.turn)
        self.out = nn.Linear(hidden, 10)

    def forward(self, x):
        state = torch.zeros(len(x), self.turn.shape[0])
        for part in x.view(-1, 8, 8).unbind(1):
            state = torch.tanh(state @ self.turn + self.read(part))
        return self.out(state)


class Hyperbolic(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.ball = geoopt.PoincareBall()
        self.encode = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, hidden))
        self.planes = Distance2StereographicHyperplanes(hidden, 10, ball=self.ball)

    def forward(self, x):
        return 4 * self.planes(self.ball.expmap0(0.3 * self.encode(x)))


model = Recurrent() if args.model == "recurrent" else Hyperbolic()
optimizer = geoopt.optim.RiemannianAdam(model.parameters(), lr=args.lr, stabilize=20)
for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
model.eval()
with torch.no_grad():
    print("metric accuracy", float((model(X_test).argmax(1) == y_test).float().mean()))
