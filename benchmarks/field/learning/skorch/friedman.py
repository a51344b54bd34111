import argparse

import numpy as np
import torch
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetRegressor
from skorch.callbacks import EarlyStopping, GradientNormClipping
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["friedman", "diabetes"], default="friedman")
parser.add_argument("--criterion", choices=["MSELoss", "HuberLoss", "L1Loss"], default="MSELoss")
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--decay", type=float, default=0.0)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

if args.data == "friedman":
    X, y = make_friedman1(1500, noise=0.5, random_state=args.seed)
else:
    X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X.astype(np.float32), y, test_size=0.25, random_state=args.seed)
mean, std = y_train.mean(), y_train.std()
target = ((y_train - mean) / std).astype(np.float32)
target = target.reshape(-1, 1)

net = NeuralNetRegressor(
    nn.Sequential(nn.Linear(X.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)),
    criterion=getattr(nn, args.criterion),
    optimizer=torch.optim.AdamW,
    optimizer__weight_decay=args.decay,
    lr=0.002,
    max_epochs=40,
    batch_size=32,
    iterator_train__shuffle=True,
    callbacks=[GradientNormClipping(args.clip), EarlyStopping(patience=8, load_best=True)],
)
model = make_pipeline(StandardScaler(), net)
model.fit(X_train, target)
predicted = model.predict(X_test).reshape(-1) * std + mean
print("metric r2", 1 - np.mean((predicted - y_test) ** 2) / np.var(y_test))
