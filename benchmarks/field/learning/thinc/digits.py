import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from thinc.api import Adam, CategoricalCrossentropy, PyTorchWrapper, Softmax, chain, fix_random_seed, warmup_linear
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["dense", "convolutional"], default="dense")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--rate", type=float, default=0.003)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
fix_random_seed(args.seed)
torch.manual_seed(args.seed)

x, y = load_digits(return_X_y=True)
order = np.random.RandomState(args.seed).permutation(len(x))
x, y = (x[order] / 16).astype("float32"), y[order]
train_x, train_y, test_x, test_y = x[:1400], np.eye(10, dtype="float32")[y[:1400]], x[1400:], y[1400:]

if args.model == "dense":
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 32), nn.ReLU())
    width = 32
else:
    net = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    width = 96
model = chain(PyTorchWrapper(net), Softmax(10, width))
model.initialize(X=train_x[:5], Y=train_y[:5])
steps = args.epochs * len(train_x) // args.batch
optimizer = Adam(warmup_linear(args.rate, steps // 10, steps))
loss = CategoricalCrossentropy(normalize=True)
for epoch in range(args.epochs):
    total = 0.0
    for some_x, some_y in model.ops.multibatch(args.batch, train_x, train_y, shuffle=True):
        predicted, backprop = model.begin_update(some_x)
        gradient, value = loss(predicted, some_y)
        backprop(gradient)
        model.finish_update(optimizer)
        optimizer.step_schedules()
        total += float(value)
    print(epoch, total)
print("metric accuracy", (model.predict(test_x).argmax(1) == test_y).mean())
