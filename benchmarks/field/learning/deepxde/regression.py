import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--regularizer", type=float, default=1e-6)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)


def curve(x):
    return x * np.sin(5 * x)


data = dde.data.Function(dde.geometry.Interval(-1, 1), curve, 32, 100)
net = dde.nn.FNN([1] + [32] * 3 + [1], "tanh", "Glorot uniform", regularization=["l2", args.regularizer])
model = dde.Model(data, net)
model.compile("adam", lr=2e-3, metrics=["l2 relative error"])
model.train(iterations=3000, display_every=500)
x = np.linspace(-1, 1, 201, dtype=np.float32)[:, None]
print("metric error", dde.metrics.l2_relative_error(curve(x), model.predict(x)))
