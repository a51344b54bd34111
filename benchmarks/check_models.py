"""Models of many kinds for the pre-flight benchmark, each small, sound, and with its last layer named `head`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Apply(nn.Module):
    """A function as a layer; what surrounds it is the same model."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: Tensor) -> Tensor:
        return self.function(*values)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.second, self.second_norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.active = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        inside = self.active(self.first_norm(self.first(x)))
        return self.active(x + self.second_norm(self.second(inside)))


class ResidualNet(nn.Module):
    """Images to classes."""

    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(Residual(width), nn.MaxPool2d(2), Residual(width))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.dropout(self.blocks(self.stem(images)).mean((2, 3))))


class Tagger(nn.Module):
    """Padded sentences to a tag for each word; it may see the words to come."""

    def __init__(self, words: int = 40, tags: int = 5, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.recur = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, words: Tensor) -> Tensor:
        lengths = (words != 0).sum(1).cpu()
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.recur(packed)[0], batch_first=True, total_length=words.shape[1])
        return self.head(states).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.attend_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def mask(self, length: int) -> Tensor:
        """True where a position may look."""
        return torch.ones(length, length, dtype=torch.bool).tril()

    def attend(self, x: Tensor) -> Tensor:
        size, length, width = x.shape
        q, k, v = (
            t.view(size, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.attend_norm(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(length))
        return self.mix(seen.transpose(1, 2).reshape(size, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attend(x))
        return x + self.dropout(self.feed(self.feed_norm(x)))


class Transformer(nn.Module):
    """Tokens to the next token."""

    def __init__(self, tokens: int = 30, length: int = 24, width: int = 32) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        nn.init.normal_(self.embed.weight, std=0.1)
        nn.init.normal_(self.place.weight, std=0.1)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


class RecurrentLM(nn.Module):
    """Tokens to the next token."""

    def __init__(self, tokens: int = 30, width: int = 32, bidirectional: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.recur = nn.LSTM(width, width, 2, batch_first=True, dropout=0.1, bidirectional=bidirectional)
        self.head = nn.Linear(width * (1 + bidirectional), tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recur(self.embed(tokens))[0]).transpose(1, 2)


class Mixing(nn.Module):
    """Along time by a learned lower triangle, then along channels."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_time = nn.Parameter(torch.randn(length, length) / length**0.5)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def weights(self) -> Tensor:
        return self.over_time.tril()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.weights() @ self.norm(x)
        return x + self.feed(self.feed_norm(x))


class Mixer(nn.Module):
    """Tokens to the next token, without attention or recurrence."""

    def __init__(self, tokens: int = 30, length: int = 24, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.layers = nn.Sequential(Mixing(width, length), Mixing(width, length))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.embed(tokens)))).transpose(1, 2)


class CausalConv(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.padding = (2 * dilation, 0)
        self.conv, self.active = nn.Conv1d(width, width, 3, dilation=dilation), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.active(self.conv(F.pad(x, self.padding)))


class Forecaster(nn.Module):
    """A series to its next values, channels before time."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.lift = nn.Conv1d(1, width, 1)
        self.layers = nn.Sequential(*(CausalConv(width, d) for d in (1, 2, 4)))
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, series: Tensor) -> Tensor:
        return self.head(self.layers(self.lift(series)))


class Tabular(nn.Module):
    """Numbers and categories to one logit."""

    def __init__(self, numbers: int = 6, categories: tuple[int, ...] = (5, 8), width: int = 32) -> None:
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(count, 4) for count in categories)
        self.first = nn.Linear(numbers + 4 * len(categories), width)
        self.norm, self.active, self.dropout = nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def join(self, numbers: Tensor, categories: Tensor) -> Tensor:
        return torch.cat([numbers, *(embed(categories[:, i]) for i, embed in enumerate(self.embeds))], 1)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        hidden = self.dropout(self.active(self.norm(self.first(self.join(numbers, categories)))))
        return self.head(self.active(self.second(hidden))).squeeze(1)


def level(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.ReLU())


class Segmenter(nn.Module):
    """Images to a logit for each pixel."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down, self.bottom = level(1, width), level(width, 2 * width)
        self.up, self.join = nn.ConvTranspose2d(2 * width, width, 2, stride=2), level(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        fine = self.down(images)
        coarse = self.up(self.bottom(F.max_pool2d(fine, 2)))
        return self.head(self.join(torch.cat([fine, coarse], 1)))


class Bag(nn.Module):
    """Padded words, order forgotten, to a logit for each topic."""

    def __init__(self, words: int = 60, topics: int = 6, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.hidden, self.active = nn.Linear(width, width), nn.ReLU()
        self.head = nn.Linear(width, topics)

    def forward(self, words: Tensor) -> Tensor:
        present = (words != 0).unsqueeze(-1)
        mean = (self.embed(words) * present).sum(1) / present.sum(1).clamp(min=1)
        return self.head(self.active(self.hidden(mean)))


class Denoiser(nn.Module):
    """Noisy images to clean ones."""

    def __init__(self, code: int = 24) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, code))
        self.decode = nn.Sequential(nn.Linear(code, 64), nn.LeakyReLU())
        self.head = nn.Linear(64, 64)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.decode(self.encode(images))).view(-1, 1, 8, 8)


class Regressor(nn.Module):
    """Measurements to one number."""

    def __init__(self, features: int = 10, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(self.body(features)).squeeze(-1)


class Siamese(nn.Module):
    """Two images to a logit: do they show the same?"""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * width, width)),
        )
        self.head = nn.Linear(width, 1)

    def compare(self, left: Tensor, right: Tensor) -> Tensor:
        return (self.tower(left) - self.tower(right)).abs()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(self.compare(left, right)).squeeze(1)
