import argparse

import numpy as np
import torch
from poutyne import ClipNorm, Model, ReduceLROnPlateau, set_seeds
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["diabetes", "friedman"], default="friedman")
parser.add_argument("--decay", type=float, default=1e-4)
parser.add_argument("--gaps", type=int, default=0)
args = parser.parse_args()
set_seeds(args.seed)

if args.data == "diabetes":
    x, y = load_diabetes(return_X_y=True)
else:
    x, y = make_friedman1(1200, noise=0.5, random_state=args.seed)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=args.seed)
x_train[: args.gaps, 0] = np.nan
inputs, targets = StandardScaler().fit(x_train), StandardScaler().fit(y_train[:, None])
x_train, x_test = (inputs.transform(a).astype(np.float32) for a in (x_train, x_test))
y_train, y_test = (targets.transform(a[:, None]).astype(np.float32) for a in (y_train, y_test))

width = 16 if args.data == "diabetes" else 64
network = nn.Sequential(
    nn.Linear(x.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
)
optimizer = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=args.decay)
model = Model(network, optimizer, "mse")
model.fit(
    x_train,
    y_train,
    validation_data=(x_test, y_test),
    epochs=25,
    batch_size=32,
    callbacks=[ClipNorm(network.parameters(), 5.0), ReduceLROnPlateau(monitor="loss", patience=3)],
    progress_options={"coloring": False},
)
print("\nmetric r2", r2_score(y_test, model.predict(x_test)))
