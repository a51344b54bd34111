import argparse

import torch
import torchopt
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--inner-lr", type=float, default=0.05)
parser.add_argument("--inner-steps", type=int, default=3)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--iterations", type=int, default=250)
parser.add_argument("--tasks", type=int, default=4)
args = parser.parse_args()
torch.manual_seed(args.seed)


def waves(points=10):
    height, phase = 0.5 + 1.5 * torch.rand(1), 3.14 * torch.rand(1)
    x = 6 * torch.rand(2, points, 1) - 3
    y = height * torch.sin(x + phase)
    return x[0], y[0], x[1], y[1]


net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
inner = torchopt.MetaSGD(net, lr=args.inner_lr)
outer = torch.optim.Adam(net.parameters(), lr=args.lr)


def adapt(x, y):
    for _ in range(args.inner_steps):
        inner.step(nn.functional.mse_loss(net(x), y))


for iteration in range(args.iterations):
    outer.zero_grad()
    net_state = torchopt.extract_state_dict(net, by="reference", detach_buffers=True)
    inner_state = torchopt.extract_state_dict(inner, by="reference")
    losses = []
    for _ in range(args.tasks):
        x_support, y_support, x_query, y_query = waves()
        adapt(x_support, y_support)
        losses.append(nn.functional.mse_loss(net(x_query), y_query))
        torchopt.recover_state_dict(net, net_state)
        torchopt.recover_state_dict(inner, inner_state)
    loss = torch.stack(losses).mean()
    loss.backward()
    outer.step()
    if iteration % 25 == 0:
        print(iteration, loss.item())

net_state = torchopt.extract_state_dict(net, by="reference", detach_buffers=True)
inner_state = torchopt.extract_state_dict(inner, by="reference")
errors = []
for _ in range(100):
    x_support, y_support, x_query, y_query = waves()
    adapt(x_support, y_support)
    with torch.no_grad():
        errors.append(nn.functional.mse_loss(net(x_query), y_query) / y_query.var())
    torchopt.recover_state_dict(net, net_state)
    torchopt.recover_state_dict(inner, inner_state)
print("metric unexplained", float(torch.stack(errors).median()))
