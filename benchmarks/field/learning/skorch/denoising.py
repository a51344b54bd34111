import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from skorch import NeuralNetRegressor
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

clean = (load_digits().data / 16).astype(np.float32)
clean, clean_test = train_test_split(clean, test_size=0.25, random_state=args.seed)
noise = np.random.RandomState(args.seed)


class Autoencoder(nn.Module):
    def __init__(self, code=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, code))
        self.decoder = nn.Sequential(nn.Linear(code, 48), nn.ReLU(), nn.Linear(48, 64), nn.Sigmoid())

    def forward(self, X):
        code = self.encoder(X)
        return self.decoder(code), code


class AutoencoderNet(NeuralNetRegressor):
    def get_loss(self, y_pred, y_true, *args, **kwargs):
        decoded, code = y_pred
        penalty = 1e-4 * code.abs().sum(dim=1).mean()
        return super().get_loss(decoded, y_true, *args, **kwargs) + penalty


net = AutoencoderNet(
    Autoencoder,
    optimizer=torch.optim.Adam,
    lr=0.003,
    max_epochs=30,
    batch_size=64,
    iterator_train__shuffle=True,
)
net.fit(clean + 0.2 * noise.randn(*clean.shape).astype(np.float32), clean)
decoded = net.predict(clean_test + 0.2 * noise.randn(*clean_test.shape).astype(np.float32))
print("metric unexplained", np.mean((decoded - clean_test) ** 2) / clean_test.var(axis=0).mean())
