"""Samples for the programs of the pre-flight benchmark, and how they are augmented."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import Dataset

Augment = Callable[..., tuple[Tensor, ...]]


class Columns(Dataset):
    """Samples row by row, as a tuple or under names; `augment` changes each as it is asked for."""

    def __init__(self, *columns: Tensor, names: tuple[str, ...] = (), augment: Augment | None = None) -> None:
        self.columns, self.names, self.augment = list(columns), names, augment

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> Any:
        row = tuple(column[index] for column in self.columns)
        row = self.augment(*row) if self.augment else row
        return dict(zip(self.names, row, strict=True)) if self.names else row


class Sentences(Dataset):
    """Words and tags of any length."""

    def __init__(self, words: list[Tensor], tags: list[Tensor], augment: Augment | None = None) -> None:
        self.words, self.tags, self.augment = words, tags, augment

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        row = self.words[index], self.tags[index]
        return self.augment(*row) if self.augment else row


class Noisy(Dataset):
    """Images with noise and without: new noise each time, or the same for ever."""

    def __init__(self, images: Tensor, fixed: bool) -> None:
        self.images, self.fixed = images, fixed

    def __len__(self) -> int:
        return len(self.images)

    def noise(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(index) if self.fixed else None
        return 0.3 * torch.randn(self.images[index].shape, generator=generator)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index] + self.noise(index), self.images[index]


def shifted(image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
    by = torch.randint(-1, 2, (2,)).tolist()
    return image.roll(by, (1, 2)), label


def flipped(image: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    across = [d for d in (1, 2) if torch.rand(()) < 0.5]
    return image.flip(across), mask.flip(across)


def unknown_words(words: Tensor, tags: Tensor) -> tuple[Tensor, ...]:
    return words.where(torch.rand(words.shape) > 0.05, torch.ones_like(words)), tags


def louder(series: Tensor, following: Tensor) -> tuple[Tensor, ...]:
    by = 1 + 0.1 * torch.randn(())
    return series * by, following * by


def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images))
    return torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)[order], torch.tensor(labels)[order]


def paired(images: Tensor, labels: Tensor, count: int) -> Columns:
    left = torch.randint(len(images), (count,))
    like = [torch.nonzero(labels == labels[i]).flatten() for i in left]
    unlike = [torch.nonzero(labels != labels[i]).flatten() for i in left]
    same = torch.rand(count) < 0.5
    pools = [a if s else b for a, b, s in zip(like, unlike, same, strict=True)]
    right = torch.stack([pool[torch.randint(len(pool), ())] for pool in pools])
    return Columns(images[left], images[right], same.float())
