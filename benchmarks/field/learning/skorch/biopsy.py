import argparse

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetBinaryClassifier
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scaler", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

X, y = load_breast_cancer(return_X_y=True)
X, y = X.astype(np.float32), y.astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=args.seed)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(30, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, X):
        return self.layers(X).squeeze(-1)


net = NeuralNetBinaryClassifier(
    Net,
    optimizer=torch.optim.SGD,
    lr=0.05,
    max_epochs=40,
    batch_size=32,
    iterator_train__shuffle=True,
    verbose=0,
)
steps = [("scale", StandardScaler())] if args.scaler else []
model = Pipeline([*steps, ("net", net)])
model.fit(X_train, y_train)
print("metric accuracy", model.score(X_test, y_test))
