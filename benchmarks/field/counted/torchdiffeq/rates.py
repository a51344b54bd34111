import argparse

import torch
from torch import nn
from torchdiffeq import odeint

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--rounds", type=int, default=12)
parser.add_argument("--method", default="dopri5")
parser.add_argument("--rtol", type=float, default=1e-6)
args = parser.parse_args()
torch.manual_seed(args.seed)
torch.set_default_dtype(torch.float64)

t = torch.linspace(0, 12, 60)
exact = torch.tensor([0.9, 0.6, 0.5, 0.8])


class LotkaVolterra(nn.Module):
    def __init__(self, rates):
        super().__init__()
        self.rates = nn.Parameter(rates)

    def forward(self, t, y):
        a, b, c, d = self.rates
        prey, hunter = y[..., 0], y[..., 1]
        return torch.stack([a * prey - b * prey * hunter, c * prey * hunter - d * hunter], -1)


def solve(func):
    return odeint(func, torch.tensor([1.5, 1.0]), t, method=args.method, rtol=args.rtol, atol=1e-8)


with torch.no_grad():
    observed = solve(LotkaVolterra(exact))
    observed = observed * (1 + 0.01 * torch.randn_like(observed))
func = LotkaVolterra(exact * (0.8 + 0.4 * torch.rand(4)))
optimizer = torch.optim.LBFGS(func.parameters(), lr=0.5, max_iter=8, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = torch.mean((solve(func) - observed) ** 2)
    loss.backward()
    return loss


for step in range(args.rounds):
    loss = optimizer.step(closure)
    print(step, float(loss))
print("metric error", float(((func.rates - exact) / exact).abs().mean()))
