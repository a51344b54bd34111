import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)
C = dde.Variable(2.0)


def pde(x, y):
    dy_t = dde.grad.jacobian(y, x, i=0, j=1)
    dy_xx = dde.grad.hessian(y, x, i=0, j=0)
    source = torch.exp(-x[:, 1:]) * (torch.sin(np.pi * x[:, 0:1]) - np.pi**2 * torch.sin(np.pi * x[:, 0:1]))
    return dy_t - C * dy_xx + source


def solution(x):
    return np.sin(np.pi * x[:, 0:1]) * np.exp(-x[:, 1:])


geom = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 1))
bc = dde.icbc.DirichletBC(geom, solution, lambda _, on_boundary: on_boundary)
ic = dde.icbc.IC(geom, solution, lambda _, on_initial: on_initial)
observed = np.vstack((np.linspace(-1, 1, num=20), np.full(20, 1))).T
observe = dde.icbc.PointSetBC(observed, solution(observed), component=0)
data = dde.data.TimePDE(
    geom, pde, [bc, ic, observe], num_domain=60, num_boundary=20, num_initial=10, anchors=observed, num_test=500
)
model = dde.Model(data, dde.nn.FNN([2] + [32] * 3 + [1], "tanh", "Glorot uniform"))
model.compile("adam", lr=3e-3, external_trainable_variables=C)
model.train(iterations=2000, display_every=500)
print("metric error", abs(C.item() - 1))
