import argparse

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.dataset import Dataset
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)


class Rows(Dataset):
    def __getitems__(self, indices):
        y = np.zeros(len(indices), int) if self.y is None else self.y[indices]
        return torch.from_numpy(self.X[indices]), torch.from_numpy(y)


def collate(batch):
    return batch


X, y = make_classification(44000, 20, n_informative=10, n_classes=4, class_sep=1.5, random_state=args.seed)
X = StandardScaler().fit_transform(X).astype(np.float32)
net = NeuralNetClassifier(
    nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)),
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    dataset=Rows,
    lr=0.01,
    max_epochs=40,
    batch_size=2048,
    iterator_train__shuffle=True,
    iterator_train__collate_fn=collate,
    iterator_valid__collate_fn=collate,
    train_split=None,
)
net.fit(X[:40000], y[:40000])
print("metric accuracy", (net.predict(X[40000:]) == y[40000:]).mean())
