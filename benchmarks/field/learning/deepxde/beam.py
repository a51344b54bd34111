import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)


def ddy(x, y):
    return dde.grad.hessian(y, x)


def dddy(x, y):
    return dde.grad.jacobian(ddy(x, y), x)


def pde(x, y):
    return dde.grad.hessian(ddy(x, y), x) + 1


def left(x, on_boundary):
    return on_boundary and np.isclose(x[0], 0)


def right(x, on_boundary):
    return on_boundary and np.isclose(x[0], 1)


def solution(x):
    return -(x**4) / 24 + x**3 / 6 - x**2 / 4


geom = dde.geometry.Interval(0, 1)
conditions = [
    dde.icbc.DirichletBC(geom, lambda x: 0, left),
    dde.icbc.NeumannBC(geom, lambda x: 0, left),
    dde.icbc.OperatorBC(geom, lambda x, y, _: ddy(x, y), right),
    dde.icbc.OperatorBC(geom, lambda x, y, _: dddy(x, y), right),
]
data = dde.data.PDE(geom, pde, conditions, num_domain=10, num_boundary=2, solution=solution, num_test=100)
model = dde.Model(data, dde.nn.FNN([1] + [20] * 3 + [1], "tanh", "Glorot uniform"))
model.compile("adam", lr=1e-3)
model.train(iterations=400, display_every=100)
dde.optimizers.config.set_LBFGS_options(maxiter=200)
model.compile("L-BFGS")
model.train(display_every=100)
x = np.linspace(0, 1, 101, dtype=np.float32)[:, None]
print("metric error", dde.metrics.l2_relative_error(solution(x), model.predict(x)))
