"""The worst mistakes: those that are shown are those that were judged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, WeightedRandomSampler

import torchdoctor
from seen import CLASSES, PICTURES, convolutions
from torchdoctor import plots


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_samples_shown_are_those_that_were_judged_worst(shuffled: bool) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    x = torch.randn(40, 4)
    x[17] = torch.tensor([9.0, -9, 9, -9])
    with torch.no_grad():
        wrong = model(x).argmin(1)
    loader = DataLoader(TensorDataset(x, wrong), 7, shuffle=shuffled)
    found = torchdoctor.worst_mistakes(model, loader, nn.CrossEntropyLoss(), samples=5, progress=False)
    assert found.wrong == 40 and len(found.worst) == 5
    assert found.group is not None
    for shown, worst in zip(found.group.arrays, found.worst, strict=True):
        assert np.array_equal(shown, x[worst.index].numpy())
    assert "→" in found.group.captions[0] and "%" in found.group.captions[0]
    assert "40 of 40 are wrong" in found.title and found.title in str(found)
    assert "group" not in found.to_dict()
    plots.mistakes(found)


def test_mistakes_without_a_class() -> None:
    model = nn.Linear(5, 1)
    found = torchdoctor.worst_mistakes(model, [(torch.randn(16, 5), torch.randn(16, 1))] * 3, nn.MSELoss(), samples=4)
    assert found.wrong is None and found.title.startswith("The 4 samples of the largest loss")
    maps = [(PICTURES[:8], torch.randint(0, 4, (8, 12, 12)))]
    found = torchdoctor.worst_mistakes(nn.Conv2d(3, 4, 3, padding=1), maps, nn.CrossEntropyLoss(), samples=3)
    assert found.group is not None and "of 144 right" in found.group.captions[0]


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Its first number is the index, the others are drawn anew each time."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(6)
        x[0] = index
        return x, CLASSES[index]


class Blind(nn.Linear):
    """To the index."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.cat([torch.zeros_like(x[:, :1]), x[:, 1:]], 1))


def test_of_a_sample_drawn_twice_the_one_that_was_judged_is_shown() -> None:
    model, sampler = Blind(6, 3), WeightedRandomSampler(torch.ones(12), 60)
    found = torchdoctor.worst_mistakes(model, DataLoader(Augmented(), 5, sampler=sampler), nn.CrossEntropyLoss())
    assert found.group is not None and len(found.group.arrays) == 12 and len({w.index for w in found.worst}) < 12
    for shown, worst in zip(found.group.arrays, found.worst, strict=True):
        x = torch.from_numpy(shown)[None]
        assert int(x[0, 0]) == worst.index
        assert F.cross_entropy(model(x), CLASSES[worst.index][None]).item() == pytest.approx(worst.loss, rel=1e-4)


def test_a_loader_that_draws_otherwise_the_second_time_shows_nothing_else() -> None:
    class Restless(Sampler[int]):
        walks = itertools.count()

        def __iter__(self) -> Iterator[int]:
            return iter(range(12)) if next(Restless.walks) == 0 else iter(range(11, -1, -1))

        def __len__(self) -> int:
            return 12

    found = torchdoctor.worst_mistakes(
        Blind(6, 3), DataLoader(Augmented(), 4, sampler=Restless()), nn.CrossEntropyLoss(), samples=3
    )
    assert found.group is None and found.notes[-1].startswith("3 samples are not shown")


def test_the_index_of_a_subset_is_called_so() -> None:
    part = Subset(TensorDataset(PICTURES, CLASSES), range(20, 4, -1))
    found = torchdoctor.worst_mistakes(convolutions(), DataLoader(part, 5), nn.CrossEntropyLoss(), samples=2)
    assert found.group is not None and "index in the loader's Subset" in str(found)
    for shown, worst in zip(found.group.arrays, found.worst, strict=True):
        assert np.array_equal(shown, part[worst.index][0].numpy())
