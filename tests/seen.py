"""Models and data of many kinds, for what is shown of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

torch.manual_seed(0)
LENGTHS = (16, 5, 9, 12, 7, 3, 16, 8)
TOKENS = torch.randint(1, 50, (8, 16))
for row, length in enumerate(LENGTHS):
    TOKENS[row, length:] = 0
LABELS = torch.randint(0, 2, (8,))


class Reader(nn.Module):
    """A transformer on tokens; without its mask it attends to padding."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.masked = masked
        self.embed = nn.Embedding(50, 32, padding_idx=0)
        self.place = nn.Parameter(torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 2)

    def forward(self, ids: Tensor) -> Tensor:
        mask = ids == 0 if self.masked else None
        hidden = self.encoder(self.embed(ids) + self.place, src_key_padding_mask=mask)
        return self.head(hidden[:, 0] if self.masked else hidden.mean(1))


class ByHand(nn.Module):
    """Causal attention of two heads: as a softmax, or fused."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.project = fused, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        samples, steps, _ = x.shape
        q, k, v = self.project(x).reshape(samples, steps, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.fused:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(steps, steps).triu(1).bool()
            out = (q @ k.transpose(-1, -2) / 2).masked_fill(later, -torch.inf).softmax(-1) @ v
        return out.transpose(1, 2).reshape(samples, steps, 8)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1]).squeeze()


class Stamp(nn.Module):
    """Looks at one corner of the picture alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x[:, :, :5, -5:]).relu().mean((2, 3)))


class InPlace(nn.Module):
    """Normalises what it is given where it lies; and so does its first layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.first, self.model = nn.ReLU(inplace=True), model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.first(x.sub_(1).mul_(3)))


def convolutions(channels: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


PICTURES = torch.randn(24, 3, 12, 12)
CLASSES = torch.randint(0, 3, (24,))
