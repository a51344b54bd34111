import argparse
from itertools import chain

import numpy as np
import torch
from neurodiffeq import diff
from neurodiffeq.conditions import IVP
from neurodiffeq.generators import Generator1D
from neurodiffeq.networks import FCNN, SinActv
from neurodiffeq.solvers import Solver1D
from scipy.integrate import solve_ivp
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--problem", choices=["decay", "spring", "prey", "star"], default="spring")
parser.add_argument("--activation", choices=["tanh", "sine"], default="tanh")
parser.add_argument("--epochs", type=int, default=700)
parser.add_argument("--lr", type=float, default=5e-3)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)


def decay(u, t):
    return [diff(u, t) + u - torch.sin(2 * t)]


def spring(u, t):
    return [diff(u, t, order=2) + 0.3 * diff(u, t) + u]


def prey(u, v, t):
    return [diff(u, t) - (1.5 * u - u * v), diff(v, t) - (u * v - 3 * v) / 2]


def star(u, t):
    return [t * diff(u, t, order=2) + 2 * diff(u, t) + t * u]


equation, start, end, references = {
    "decay": (decay, [(1.0,)], 3.0, lambda t, y: [np.sin(2 * t) - y[0]]),
    "spring": (spring, [(1.0, 0.0)], 5.0, lambda t, y: [y[1], -y[0] - 0.3 * y[1]]),
    "prey": (prey, [(1.5,), (1.0,)], 2.0, lambda t, y: [1.5 * y[0] - y[0] * y[1], (y[0] * y[1] - 3 * y[1]) / 2]),
    "star": (star, [(1.0, 0.0)], 5.0, None),
}[args.problem]
activation = {"tanh": nn.Tanh, "sine": SinActv}[args.activation]
nets = [FCNN(hidden_units=(32, 32), actv=activation) for _ in start]
optimizer = torch.optim.Adam(chain.from_iterable(net.parameters() for net in nets), lr=args.lr)
solver = Solver1D(
    ode_system=equation,
    conditions=[IVP(0.0, *values) for values in start],
    t_min=0.0,
    t_max=end,
    nets=nets,
    optimizer=optimizer,
    train_generator=Generator1D(48, 0.0, end, "equally-spaced-noisy" if args.problem != "star" else "equally-spaced"),
    valid_generator=Generator1D(48, 0.0, end, "equally-spaced"),
    n_batches_valid=1,
)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.997)
solver.fit(args.epochs, callbacks=[lambda solver: scheduler.step()], tqdm_file=None)
print(solver.metrics_history["train_loss"][-1])
t = np.linspace(0, end, 60)
found = solver.get_solution(best=False)(t, to_numpy=True)
found = found[0] if isinstance(found, (list, tuple)) else found
if references is None:
    exact = np.sinc(t / np.pi)
else:
    first = [value for values in start for value in values]
    exact = solve_ivp(references, (0, end), first, t_eval=t, rtol=1e-8).y[0]
print("metric error", np.linalg.norm(found - exact) / np.linalg.norm(exact))
