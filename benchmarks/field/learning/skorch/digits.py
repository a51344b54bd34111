import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from skorch import NeuralNetClassifier
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--optimizer", choices=["SGD", "Adam"], default="SGD")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--dropout", type=float, default=0.2)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
y = y.astype(np.int64)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed)


class Net(nn.Module):
    def __init__(self, hidden=64, dropout=0.2):
        super().__init__()
        self.hidden = nn.Linear(64, hidden)
        self.output = nn.Linear(hidden, 10)
        self.dropout = nn.Dropout(dropout)

    def forward(self, X):
        X = self.dropout(torch.relu(self.hidden(X)))
        return torch.softmax(self.output(X), dim=-1)


net = NeuralNetClassifier(
    Net,
    module__dropout=args.dropout,
    optimizer=getattr(torch.optim, args.optimizer),
    max_epochs=args.epochs,
    lr=args.lr,
    batch_size=args.batch_size,
    iterator_train__shuffle=True,
)
if args.optimizer == "SGD":
    net.set_params(optimizer__momentum=0.9)
net.fit(X_train, y_train)
print("metric accuracy", net.score(X_test, y_test))
