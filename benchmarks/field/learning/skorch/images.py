import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from skorch import NeuralNetClassifier
from skorch.callbacks import Checkpoint, EpochScoring, LRScheduler
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--order", choices=["given", "class"], default="given")
parser.add_argument("--shuffle", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32).reshape(-1, 1, 8, 8)
X_train, X_test, y_train, y_test = train_test_split(X, y.astype(np.int64), test_size=0.25, random_state=args.seed)
if args.order == "class":
    order = np.argsort(y_train, kind="stable")
    X_train, y_train = X_train[order], y_train[order]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.output = nn.Linear(32 * 16, 10)

    def forward(self, X):
        X = self.features(X).flatten(1)
        return self.output(X)


net = NeuralNetClassifier(
    Net,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.SGD,
    optimizer__momentum=0.9,
    lr=0.02,
    max_epochs=10,
    batch_size=64,
    iterator_train__shuffle=bool(args.shuffle),
    callbacks=[
        EpochScoring("accuracy", name="train_acc", on_train=True, lower_is_better=False),
        LRScheduler("CosineAnnealingLR", T_max=10),
        Checkpoint(dirname="checkpoints", monitor="valid_loss_best", load_best=True),
    ],
)
net.fit(X_train, y_train)
print("metric accuracy", net.score(X_test, y_test))
