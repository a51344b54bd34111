import argparse

import numpy as np
import torch
from poutyne import Model, set_seeds
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
set_seeds(args.seed)

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
quiet = {"progress_options": {"coloring": False}, "batch_size": 32}

first = y < 5
body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
network = nn.Sequential(body, nn.Linear(32, 5))
Model(network, "adam", "cross_entropy").fit(x[first], y[first], epochs=8, **quiet)

x_train, x_test, y_train, y_test = train_test_split(x[~first], y[~first] - 5, test_size=0.3, random_state=args.seed)
network[1] = nn.Linear(32, 5)
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
model = Model(network, optimizer, "cross_entropy", batch_metrics=["accuracy"])
model.fit(x_train, y_train, epochs=12, **quiet)
_, accuracy = model.evaluate(x_test, y_test)
print("\nmetric accuracy", accuracy)
