import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)


def ode(t, y):
    return [
        dde.grad.jacobian(y, t, i=0) - y[:, 1:],
        dde.grad.jacobian(y, t, i=1) + y[:, 0:1],
    ]


def solution(t):
    return np.hstack((np.sin(t), np.cos(t)))


geom = dde.geometry.TimeDomain(0, 5)
start = [
    dde.icbc.IC(geom, lambda t: np.sin(t), lambda _, on_initial: on_initial, component=0),
    dde.icbc.IC(geom, lambda t: np.cos(t), lambda _, on_initial: on_initial, component=1),
]
data = dde.data.PDE(geom, ode, start, 40, 2, solution=solution, num_test=100)
net = dde.nn.FNN([1] + [40] * 3 + [2], "tanh", "Glorot normal")
model = dde.Model(data, net)
model.compile("adam", lr=3e-3, decay=("step", 1000, 0.5), metrics=["l2 relative error"])
model.train(iterations=2500, display_every=500)
t = np.linspace(0, 5, 101, dtype=np.float32)[:, None]
print("metric error", dde.metrics.l2_relative_error(solution(t), model.predict(t)))
