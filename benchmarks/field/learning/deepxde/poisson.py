import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--activation", default="tanh")
parser.add_argument("--length", type=float, default=1.0)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--iterations", type=int, default=1500)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)
frequency = np.pi / args.length


def pde(x, y):
    return dde.grad.hessian(y, x) + frequency**2 * dde.backend.sin(frequency * x)


def solution(x):
    return np.sin(frequency * x)


geom = dde.geometry.Interval(-args.length, args.length)
bc = dde.icbc.DirichletBC(geom, solution, lambda x, on_boundary: on_boundary)
data = dde.data.PDE(geom, pde, bc, 16, 2, solution=solution, num_test=100)
net = dde.nn.FNN([1] + [50] * 3 + [1], args.activation, "Glorot uniform")
model = dde.Model(data, net)
model.compile("adam", lr=args.lr, metrics=["l2 relative error"])
history, state = model.train(iterations=args.iterations, display_every=250)
x = np.linspace(-args.length, args.length, 101, dtype=np.float32)[:, None]
print("metric error", dde.metrics.l2_relative_error(solution(x), model.predict(x)))
