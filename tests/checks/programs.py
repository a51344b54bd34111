"""Small healthy trainings of several kinds for checks to be quiet on, and to be broken one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from torchdoctor.checks.check import Outcome
from torchdoctor.checks.preflight import check


@dataclass
class Program:
    """Parts of a training; a test breaks one of them and calls `outcome`."""

    model: nn.Module
    train: Any
    loss_fn: Any = None
    val: Any = None
    optimizer: Any = None
    more: dict[str, Any] = field(default_factory=dict)

    def outcome(self, name: str, **more: Any) -> Outcome:
        made = check(
            self.model,
            self.train,
            self.loss_fn,
            val_loader=self.val,
            optimizer=self.optimizer,
            only=[name],
            progress=False,
            **{**self.more, **more},
        )
        return made.checked[0].outcome


def loader(*tensors: Tensor, batch: int = 16, shuffle: bool = True, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*tensors), batch, shuffle=shuffle, **options)


def _halves(x: Tensor, y: Tensor) -> tuple[DataLoader[Any], DataLoader[Any]]:
    cut = len(x) * 4 // 5
    return loader(x[:cut], y[:cut]), loader(x[cut:], y[cut:], shuffle=False)


def mlp() -> Program:
    torch.manual_seed(0)
    x = torch.randn(320, 12)
    y = (x[:, :4].argmax(1)).long()
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    return _with_adam(model, *_halves(x, y), nn.CrossEntropyLoss())


def cnn() -> Program:
    torch.manual_seed(0)
    x = torch.randn(160, 1, 8, 8)
    y = (x[:, 0, :4].mean((1, 2)) > x[:, 0, 4:].mean((1, 2))).long()
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2)),
    )
    return _with_adam(model, *_halves(x, y), nn.CrossEntropyLoss())


def regression() -> Program:
    torch.manual_seed(0)
    x = torch.randn(320, 6)
    y = x @ torch.randn(6, 1) + 0.1 * torch.randn(320, 1)
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    return _with_adam(model, *_halves(x, y), nn.MSELoss())


def multilabel() -> Program:
    torch.manual_seed(0)
    x = torch.randn(320, 10)
    y = (x[:, :3] > 0).float()
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
    return _with_adam(model, *_halves(x, y), nn.BCEWithLogitsLoss())


def autoencoder() -> Program:
    torch.manual_seed(0)
    x = torch.randn(320, 4) @ torch.randn(4, 16)
    x = (x - x.mean(0)) / x.std(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16))
    return _with_adam(model, loader(x[:256]), loader(x[256:], shuffle=False), nn.MSELoss())


class Recurrent(nn.Module):
    def __init__(self, words: int = 20, width: int = 24) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(words, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.body(self.words(ids))[0][:, -1])


def rnn() -> Program:
    torch.manual_seed(0)
    x = torch.randint(0, 20, (320, 9))
    return _with_adam(Recurrent(), *_halves(x, x[:, -1] % 3), nn.CrossEntropyLoss())


class Decoder(nn.Module):
    """A small causal transformer over tokens."""

    def __init__(self, words: int = 16, width: int = 32, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.body(x, mask=mask if self.causal else None, is_causal=self.causal))


def token_loss(scores: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def decoder() -> Program:
    torch.manual_seed(0)
    start = torch.randint(0, 16, (240, 1))
    ids = (start + torch.arange(13) * (1 + start % 3)) % 16
    return _with_adam(Decoder(), *_halves(ids[:, :-1], ids[:, 1:].clone()), token_loss)


def _with_adam(model: nn.Module, train: Any, val: Any, loss_fn: Any) -> Program:
    return Program(model, train, loss_fn, val, torch.optim.Adam(model.parameters(), 1e-3))


HEALTHY: dict[str, Callable[[], Program]] = {
    "mlp": mlp,
    "cnn": cnn,
    "regression": regression,
    "multilabel": multilabel,
    "autoencoder": autoencoder,
    "rnn": rnn,
    "decoder": decoder,
}
