import argparse

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import GradientNormClipping
from skorch.helper import predefined_split
from torch import nn
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--cell", choices=["GRU", "LSTM"], default="GRU")
args = parser.parse_args()
torch.manual_seed(args.seed)


def waves(count):
    label = torch.randint(0, 3, (count,))
    period = torch.tensor([6.0, 9.0, 14.0])[label]
    phase = 2 * np.pi * torch.rand(count, 1)
    time = torch.arange(32)
    signal = torch.sin(2 * np.pi * time / period[:, None] + phase) + 0.3 * torch.randn(count, 32)
    return TensorDataset(signal[..., None], label)


class Net(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = getattr(nn, cell)(1, 24, batch_first=True)
        self.output = nn.Linear(24, 3)

    def forward(self, X):
        states, _ = self.cell(X)
        return self.output(states[:, -1])


train, valid, test = waves(1200), waves(300), waves(600)
net = NeuralNetClassifier(
    Net,
    module__cell=args.cell,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    lr=0.01,
    max_epochs=12,
    batch_size=64,
    iterator_train__shuffle=True,
    train_split=predefined_split(valid),
    callbacks=[("clip", GradientNormClipping(1.0))],
)
net.fit(train, y=None)
print("metric accuracy", float((net.predict(test) == test.tensors[1].numpy()).mean()))
