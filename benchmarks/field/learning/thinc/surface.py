import argparse

import numpy as np
import torch
from sklearn.datasets import make_friedman1
from thinc.api import Adam, L2Distance, PyTorchWrapper, RAdam, fix_random_seed
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--optimizer", choices=["Adam", "RAdam"], default="Adam")
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
fix_random_seed(args.seed)
torch.manual_seed(args.seed)

x, y = make_friedman1(1600, noise=0.5, random_state=args.seed)
y = np.log1p(y - y.min())
x, y = (2 * x - 1).astype("float32"), ((y - y.mean()) / y.std()).astype("float32").reshape(-1, 1)
net = nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
model = PyTorchWrapper(net)
model.initialize(X=x[:5], Y=y[:5])
optimizer = {"Adam": Adam, "RAdam": RAdam}[args.optimizer](0.005, L2=1e-5, grad_clip=1.0)
distance = L2Distance(normalize=True)
for epoch in range(args.epochs):
    for some_x, some_y in model.ops.multibatch(32, x[:1200], y[:1200], shuffle=True):
        predicted, backprop = model.begin_update(some_x)
        backprop(distance.get_grad(predicted, some_y))
        model.finish_update(optimizer)
    print(epoch, distance.get_loss(model.predict(x[1200:]), y[1200:]))
print("metric r2", 1 - ((model.predict(x[1200:]) - y[1200:]) ** 2).mean() / y[1200:].var())
