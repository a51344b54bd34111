import argparse

import numpy as np
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

X, y = load_wine(return_X_y=True)
net = NeuralNetClassifier(
    nn.Sequential(nn.Linear(13, 8), nn.Tanh(), nn.Linear(8, 3)),
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.LBFGS,
    optimizer__max_iter=10,
    optimizer__line_search_fn="strong_wolfe",
    lr=0.5,
    max_epochs=8,
    batch_size=-1,
    train_split=None,
    verbose=0,
)
scores = cross_val_score(make_pipeline(StandardScaler(), net), X.astype(np.float32), y.astype(np.int64), cv=3)
print("metric accuracy", scores.mean())
