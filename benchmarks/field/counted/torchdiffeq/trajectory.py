import argparse

import numpy as np
import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--system", choices=["spiral", "pendulum", "prey"], default="spiral")
parser.add_argument("--method", default="dopri5")
parser.add_argument("--rtol", type=float, default=1e-4)
parser.add_argument("--atol", type=float, default=1e-5)
parser.add_argument("--optimizer", default="RMSprop")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--niters", type=int, default=400)
parser.add_argument("--batch-time", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=20)
parser.add_argument("--adjoint", action="store_true")
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

SPIRAL = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def truth(t, y):
    if args.system == "spiral":
        return y**3 @ SPIRAL
    first, second = y[..., :1], y[..., 1:]
    if args.system == "pendulum":
        return torch.cat([second, -2 * torch.sin(first) - 0.1 * second], -1)
    return torch.cat([first * (1 - second), second * (first - 1)], -1)


START = {"spiral": [2.0, 0.0], "pendulum": [1.5, 0.0], "prey": [2.0, 1.0]}[args.system]
t = torch.linspace(0.0, 15.0, 600)
with torch.no_grad():
    true_y = odeint(truth, torch.tensor([START]), t, method="dopri5")


def get_batch():
    start = torch.from_numpy(np.random.choice(np.arange(len(t) - args.batch_time), args.batch_size, replace=False))
    batch_y = torch.stack([true_y[start + i] for i in range(args.batch_time)], dim=0)
    return true_y[start], t[: args.batch_time], batch_y


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3 if args.system == "spiral" else y)


func = ODEFunc()
solve = odeint_adjoint if args.adjoint else odeint
optimizer = getattr(torch.optim, args.optimizer)(func.parameters(), lr=args.lr)
settings = {"method": args.method}
if args.method == "dopri5":
    settings.update(rtol=args.rtol, atol=args.atol)
average = None
for itr in range(1, args.niters + 1):
    optimizer.zero_grad()
    batch_y0, batch_t, batch_y = get_batch()
    pred_y = solve(func, batch_y0, batch_t, **settings)
    loss = torch.mean(torch.abs(pred_y - batch_y))
    loss.backward()
    optimizer.step()
    average = loss.item() if average is None else 0.97 * average + 0.03 * loss.item()
    if itr % 50 == 0:
        print(f"Iter {itr:04d} | Loss {average:.6f}")

with torch.no_grad():
    starts = torch.arange(0, 500, 10)
    pred_y = solve(func, true_y[starts], t[:60], **settings)
    exact = torch.stack([true_y[starts + i] for i in range(60)])
    print("metric error", float((pred_y - exact).abs().mean() / true_y.std()))
