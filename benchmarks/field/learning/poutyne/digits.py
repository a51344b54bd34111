import argparse

import numpy as np
import torch
from poutyne import BestModelRestore, CosineAnnealingLR, EarlyStopping, Model, set_seeds
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--network", choices=["dense", "convolutional"], default="dense")
parser.add_argument("--optimizer", default="adam")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--callbacks", choices=["none", "cosine", "restore"], default="none")
args = parser.parse_args()
set_seeds(args.seed)

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
x_train, x_rest, y_train, y_rest = train_test_split(x, y, test_size=0.4, random_state=args.seed)
x_valid, x_test, y_valid, y_test = train_test_split(x_rest, y_rest, test_size=0.5, random_state=args.seed)
train = TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))
valid = TensorDataset(torch.from_numpy(x_valid), torch.from_numpy(y_valid))

if args.network == "dense":
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU(), nn.Dropout(0.1), nn.Linear(80, 10))
else:
    network = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 16, 10),
    )
optimizer = args.optimizer
if args.optimizer == "momentum":
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
model = Model(network, optimizer, "cross_entropy", batch_metrics=["accuracy"])
callbacks = {
    "none": [],
    "cosine": [CosineAnnealingLR(T_max=args.epochs)],
    "restore": [BestModelRestore(monitor="val_loss"), EarlyStopping(monitor="val_loss", patience=4)],
}[args.callbacks]
model.fit_generator(
    DataLoader(train, batch_size=32, shuffle=True),
    DataLoader(valid, batch_size=128),
    epochs=args.epochs,
    callbacks=callbacks,
    progress_options={"coloring": False},
)
_, accuracy = model.evaluate(x_test, y_test)
print("\nmetric accuracy", accuracy)
