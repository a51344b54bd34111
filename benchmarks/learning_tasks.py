"""Small trainings to find the learning rate of: nine models on data that needs no network, four optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils.data import DataLoader, TensorDataset

BATCH = 32
TRAINED = 1200
"""Samples to train on; the rest validates."""


@dataclass(frozen=True)
class Task:
    """`model` builds one with fresh weights; the loss takes its outputs and the target."""

    model: Callable[[], nn.Module]
    loss: nn.Module
    data: Callable[[], tuple[Tensor, Tensor]]

    def loaders(self, seed: int) -> tuple[DataLoader, tuple[Tensor, Tensor]]:
        """Batches to train on, in an order of this seed, and all that is held out."""
        inputs, targets = self.data()
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
        seen, held = order[:TRAINED], order[TRAINED:]
        generator = torch.Generator().manual_seed(seed)
        kept = TensorDataset(inputs[seen], targets[seen])
        loader = DataLoader(kept, BATCH, shuffle=True, drop_last=True, generator=generator)
        return loader, (inputs[held], targets[held])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


class Transformer(nn.Module):
    """Reads a sequence of symbols and says at every place which one comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(12, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.inner = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 12)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.inner(x, mask=mask, is_causal=True)).transpose(1, 2)


class Gated(nn.Module):
    """Reads a series and says how it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])[:, 0]


class Residual(nn.Module):
    """Convolutions without batch norm, each added to what went in."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 12, 3, padding=1), nn.Linear(12, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(3, 12), nn.SiLU(), nn.Conv2d(12, 12, 3, padding=1)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data / 16 - 0.5, dtype=torch.float32), torch.tensor(found.target)


def rows() -> tuple[Tensor, Tensor]:
    x, y = digits()
    return x.reshape(-1, 8, 8), y


def pictures() -> tuple[Tensor, Tensor]:
    x, y = digits()
    return x.reshape(-1, 1, 8, 8), y


def same() -> tuple[Tensor, Tensor]:
    x, _ = digits()
    return x, x


def friedman() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(1800, noise=1.0, random_state=0)
    return torch.tensor(x - 0.5, dtype=torch.float32), torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32)


def chain() -> tuple[Tensor, Tensor]:
    """Sequences of a chain of second order: the next symbol hangs on the last two."""
    random = np.random.default_rng(0)
    odds = random.dirichlet(np.full(12, 0.2), size=(12, 12)).cumsum(-1)
    drawn = random.integers(0, 12, size=(1800, 17))
    for place in range(2, 17):
        chances = odds[drawn[:, place - 2], drawn[:, place - 1]]
        drawn[:, place] = np.minimum((random.random((1800, 1)) > chances).sum(-1), 11)
    return torch.tensor(drawn[:, :-1]), torch.tensor(drawn[:, 1:])


def waves() -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(0)
    pace, begin = random.uniform(0.2, 0.9, (1800, 1)), random.uniform(0, 6.3, (1800, 1))
    series = np.sin(begin + pace * np.arange(25)) + 0.1 * random.normal(size=(1800, 25))
    return torch.tensor(series[:, :-1, None], dtype=torch.float32), torch.tensor(series[:, -1], dtype=torch.float32)


def marks() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import make_multilabel_classification

    x, y = make_multilabel_classification(1800, 30, n_classes=8, random_state=0)
    x = (x - x.mean(0)) / x.std(0)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def build_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def build_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    )


def build_autoencoder() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 8), nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 64))


def build_regression() -> nn.Module:
    hidden = (nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    return nn.Sequential(*hidden)


def build_multilabel() -> nn.Module:
    hidden = (nn.Linear(30, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())
    return nn.Sequential(*hidden, nn.Dropout(0.1), nn.Linear(64, 8))


TASKS = {
    "MLP": Task(build_mlp, nn.CrossEntropyLoss(), digits),
    "LSTM": Task(Recurrent, nn.CrossEntropyLoss(), rows),
    "regression": Task(build_regression, nn.MSELoss(), friedman),
    "CNN": Task(build_cnn, nn.CrossEntropyLoss(), pictures),
    "transformer": Task(Transformer, nn.CrossEntropyLoss(), chain),
    "autoencoder": Task(build_autoencoder, nn.MSELoss(), same),
    "GRU": Task(Gated, nn.MSELoss(), waves),
    "residual": Task(Residual, nn.CrossEntropyLoss(), pictures),
    "multi-label": Task(build_multilabel, nn.BCEWithLogitsLoss(), marks),
}
UNSEEN = ("GRU", "residual", "multi-label")
"""Nothing of torchdoctor was chosen by looking at these."""

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda parameters, lr: SGD(parameters, lr=lr),
    "momentum": lambda parameters, lr: SGD(parameters, lr=lr, momentum=0.9),
    "Adam": lambda parameters, lr: Adam(parameters, lr=lr),
    "AdamW": lambda parameters, lr: AdamW(parameters, lr=lr),
}
