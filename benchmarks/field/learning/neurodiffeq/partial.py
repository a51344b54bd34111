import argparse

import numpy as np
import torch
from neurodiffeq import diff
from neurodiffeq.conditions import DirichletBVP2D
from neurodiffeq.generators import Generator2D
from neurodiffeq.networks import FCNN
from neurodiffeq.solvers import Solver2D
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--problem", choices=["laplace", "poisson"], default="laplace")
parser.add_argument("--optimizer", choices=["Adam", "LBFGS"], default="Adam")
parser.add_argument("--epochs", type=int, default=500)
parser.add_argument("--batches", type=int, default=0)
parser.add_argument("--grid", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)
pi = np.pi


def equation(u, x, y):
    source = 2 * pi**2 * torch.sin(pi * x) * torch.sin(pi * y) if args.problem == "poisson" else 0
    return [diff(u, x, order=2) + diff(u, y, order=2) + source]


def edge(y):
    return torch.sin(pi * y) if args.problem == "laplace" else 0


condition = DirichletBVP2D(
    x_min=0.0,
    x_min_val=edge,
    x_max=1.0,
    x_max_val=lambda y: 0,
    y_min=0.0,
    y_min_val=lambda x: 0,
    y_max=1.0,
    y_max_val=lambda x: 0,
)
net = FCNN(n_input_units=2, hidden_units=(24, 24), actv=nn.Tanh)
rate = {"Adam": 5e-3, "LBFGS": 0.5}[args.optimizer]
optimizer = getattr(torch.optim, args.optimizer)(net.parameters(), lr=rate)
grid = (args.grid, args.grid)
solver = Solver2D(
    pde_system=equation,
    conditions=[condition],
    xy_min=(0, 0),
    xy_max=(1, 1),
    nets=[net],
    optimizer=optimizer,
    train_generator=Generator2D(grid, (0, 0), (1, 1), "equally-spaced-noisy"),
    valid_generator=Generator2D(grid, (0, 0), (1, 1), "equally-spaced"),
    n_batches_valid=args.batches,
)
solver.fit(args.epochs, tqdm_file=None)
x, y = (part.reshape(-1) for part in np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 20)))
found = solver.get_solution()(x, y, to_numpy=True)
if args.problem == "laplace":
    exact = np.sin(pi * y) * np.sinh(pi * (1 - x)) / np.sinh(pi)
else:
    exact = np.sin(pi * x) * np.sin(pi * y)
print("metric error", np.linalg.norm(found - exact) / np.linalg.norm(exact))
