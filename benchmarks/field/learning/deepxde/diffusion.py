import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--constraint", choices=["soft", "hard"], default="soft")
parser.add_argument("--weights", type=float, nargs=3, default=[1.0, 1.0, 1.0])
args = parser.parse_args()
dde.config.set_random_seed(args.seed)


def pde(x, y):
    dy_t = dde.grad.jacobian(y, x, i=0, j=1)
    dy_xx = dde.grad.hessian(y, x, i=0, j=0)
    source = torch.exp(-x[:, 1:]) * (torch.sin(np.pi * x[:, 0:1]) - np.pi**2 * torch.sin(np.pi * x[:, 0:1]))
    return dy_t - dy_xx + source


def solution(x):
    return np.sin(np.pi * x[:, 0:1]) * np.exp(-x[:, 1:])


geom = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 1))
net = dde.nn.FNN([2] + [32] * 3 + [1], "tanh", "Glorot uniform")
if args.constraint == "hard":
    conditions = []
    net.apply_output_transform(lambda x, y: x[:, 1:] * (1 - x[:, 0:1] ** 2) * y + torch.sin(np.pi * x[:, 0:1]))
else:
    conditions = [
        dde.icbc.DirichletBC(geom, solution, lambda _, on_boundary: on_boundary),
        dde.icbc.IC(geom, solution, lambda _, on_initial: on_initial),
    ]
data = dde.data.TimePDE(
    geom, pde, conditions, num_domain=80, num_boundary=20, num_initial=20, solution=solution, num_test=500
)
model = dde.Model(data, net)
model.compile(
    "adam",
    lr=2e-3,
    metrics=["l2 relative error"],
    loss_weights=args.weights if conditions else None,
)
resampler = dde.callbacks.PDEPointResampler(period=100)
model.train(iterations=1500, display_every=250, callbacks=[resampler])
x = geom.uniform_points(1000)
print("metric error", dde.metrics.l2_relative_error(solution(x), model.predict(x)))
