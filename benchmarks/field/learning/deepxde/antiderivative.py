import argparse
import os

os.environ["DDE_BACKEND"] = "pytorch"

import deepxde as dde
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=2e-3)
args = parser.parse_args()
dde.config.set_random_seed(args.seed)
grid = np.linspace(0, 1, 40)[:, None].astype(np.float32)


def pairs(count):
    space = dde.data.GRF(length_scale=0.3)
    inputs = space.eval_batch(space.random(count), grid).astype(np.float32)
    step = grid[1, 0] - grid[0, 0]
    area = np.cumsum((inputs[:, 1:] + inputs[:, :-1]) / 2 * step, axis=1)
    return inputs, np.hstack((np.zeros((count, 1), np.float32), area.astype(np.float32)))


train, test = pairs(150), pairs(200)
data = dde.data.TripleCartesianProd((train[0], grid), train[1], (test[0], grid), test[1])
net = dde.nn.DeepONetCartesianProd([40, 40, 40], [1, 40, 40], "relu", "Glorot normal")
model = dde.Model(data, net)
model.compile("adam", lr=args.lr, metrics=["mean l2 relative error"])
model.train(iterations=3000, display_every=500)
print("metric error", dde.metrics.mean_l2_relative_error(test[1], model.predict((test[0], grid))))
