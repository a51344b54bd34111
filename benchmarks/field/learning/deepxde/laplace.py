import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)


def pde(x, y):
    return dde.grad.hessian(y, x, i=0, j=0) + dde.grad.hessian(y, x, i=1, j=1)


def lid(x):
    return np.sin(np.pi * x[:, 0:1])


def solution(x):
    return np.sin(np.pi * x[:, 0:1]) * np.sinh(np.pi * x[:, 1:]) / np.sinh(np.pi)


geom = dde.geometry.Rectangle([0, 0], [1, 1])
top = dde.icbc.DirichletBC(geom, lid, lambda x, on_boundary: on_boundary and np.isclose(x[1], 1))
rest = dde.icbc.DirichletBC(geom, lambda x: 0, lambda x, on_boundary: on_boundary and not np.isclose(x[1], 1))
data = dde.data.PDE(geom, pde, [top, rest], num_domain=120, num_boundary=80, solution=solution, num_test=400)
net = dde.nn.FNN([2] + [32] * 3 + [1], "tanh", "Glorot uniform")
model = dde.Model(data, net)
model.compile("adam", lr=3e-3, loss_weights=[1, 20, 20], metrics=["l2 relative error"])
model.train(iterations=2000, display_every=250)
x = geom.uniform_points(900)
print("metric error", dde.metrics.l2_relative_error(solution(x), model.predict(x)))
