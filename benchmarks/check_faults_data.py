"""Faults of data, splits and loaders, for the checks that look at them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from check_planting import Changed, change_samples, planted
from check_programs import IGNORED, Program, language
from check_samples import Columns, Noisy, Sentences

INVALID = ("invalid-labels",)
FEW = 4
"""Samples of which no validation can be made."""


def both(p: Program) -> tuple[Dataset, Dataset]:
    return p.train, p.validation


@planted("input-values", "siamese", names=("unnormalized-inputs",))
def raw_pixels(p: Program) -> None:
    change_samples(p, lambda left, right, same: ((left + 1) * 127.5, (right + 1) * 127.5, same))


@planted("input-values", "denoiser", names=("unnormalized-inputs",))
def raw_images(p: Program) -> None:
    change_samples(p, lambda noisy, clean: ((noisy + 1) * 127.5, (clean + 1) * 127.5))


@planted("input-values", "tabular", names=("unnormalized-inputs",))
def one_column_in_its_own_unit(p: Program) -> None:
    for samples in both(p):
        samples.columns[0][:, 3] = 52_000 + 18_000 * samples.columns[0][:, 3]


@planted("input-values", "regressor", names=("unnormalized-inputs",))
def far_from_zero(p: Program) -> None:
    for samples in both(p):
        samples.columns[0] = samples.columns[0] * torch.logspace(0, 2, 10) + torch.logspace(1, 3, 10)


@planted("input-values", "forecaster", "regressor", "segmenter", names=("nan-in-inputs",))
def missing_values(p: Program) -> None:
    for samples in both(p):
        values = samples.columns[0] = samples.columns[0].clone()
        values[torch.rand(values.shape) < 0.002] = float("nan")


@planted("input-values", "images", "topics", "mixer", names=("constant-inputs",))
def always_the_same_sample(p: Program) -> None:
    for samples in both(p):
        samples.columns[0] = samples.columns[0][:1].expand_as(samples.columns[0])


@planted("input-values", "segmenter", "siamese", names=("constant-inputs",))
def divided_as_integers(p: Program) -> None:
    for samples in both(p):
        samples.columns[0] = torch.zeros_like(samples.columns[0])


@planted("input-values", "tabular", names=("constant-inputs",))
def columns_lost_in_reading(p: Program) -> None:
    for samples in both(p):
        samples.columns[0][:, 3:] = 0


@planted("input-values", "denoiser", "images", "regressor")
def double_precision(p: Program) -> None:
    change_samples(p, lambda values, target: (values.double(), target))


@planted("input-values", "tagger", "recurrent")
def words_as_floats(p: Program) -> None:
    change_samples(p, lambda words, target: (words.float(), target))


@planted("label-values", "images", "recurrent", "mixer", names=INVALID)
def counted_from_one(p: Program) -> None:
    change_samples(p, lambda inputs, label: (inputs, label + 1))


@planted("label-values", "tagger", names=INVALID)
def padded_with_minus_one(p: Program) -> None:
    collate = p.collate

    def pad(rows: list[Any]) -> tuple[Tensor, Tensor]:
        words, tags = collate(rows)
        return words, tags.where(tags != IGNORED, -torch.ones_like(tags))

    p.collate = pad


@planted("label-values", "tabular", names=INVALID)
def minus_one_and_one(p: Program) -> None:
    change_samples(p, lambda sample: sample | {"target": 2 * sample["target"] - 1})


@planted("label-values", "segmenter", names=INVALID)
def masks_as_bytes(p: Program) -> None:
    change_samples(p, lambda image, mask: (image, 255 * mask))


@planted("label-values", "topics", names=INVALID)
def counts_for_labels(p: Program) -> None:
    change_samples(p, lambda words, present: (words, 3 * present))


@planted("label-values", "regressor", "forecaster", names=("nan-in-targets",))
def missing_targets(p: Program) -> None:
    for samples in both(p):
        samples.columns[1] = samples.columns[1].clone()
        samples.columns[1][::17] = float("nan")


@planted("label-values", "transformer", names=INVALID)
def all_ignored(p: Program) -> None:
    change_samples(p, lambda tokens, following: (tokens, torch.full_like(following, IGNORED)))


@planted("label-values", "images", "tabular", names=("class-imbalance",))
def one_class_drowns_the_others(p: Program) -> None:
    for samples in both(p):
        labels = samples.columns[-1]
        common, rare = torch.nonzero(labels == 1).flatten(), torch.nonzero(labels != 1).flatten()
        kept = torch.cat([common.repeat(len(labels) // len(common)), rare[: len(labels) // 100]])
        samples.columns = [column[kept] for column in samples.columns]


@planted("label-values", "images", names=("class-imbalance",))
def one_class_of_nineteen_in_twenty(p: Program) -> None:
    for samples in both(p):
        labels = samples.columns[-1]
        kept = torch.cat([torch.nonzero(labels == 1).flatten(), torch.nonzero(labels != 1).flatten()[::150]])
        samples.columns = [column[kept] for column in samples.columns]


@planted("label-values", "siamese", names=("class-imbalance", "invalid-labels"))
def no_pair_alike(p: Program) -> None:
    for samples in both(p):
        samples.columns[2] = torch.zeros_like(samples.columns[2])


def first_of(samples: Any, count: int) -> Dataset:
    """The first samples, as they are in validation."""
    if isinstance(samples, Sentences):
        return Sentences(samples.words[:count], samples.tags[:count])
    if isinstance(samples, Noisy):
        return Noisy(samples.images[:count], fixed=True)
    return Columns(*(column[:count] for column in samples.columns), names=samples.names)


OVERLAP = ("train-validation-overlap",)


@planted(
    "split-overlap", "images", "tagger", "transformer", "tabular", "denoiser", "regressor", "topics", names=OVERLAP
)
def validated_on_training_samples(p: Program) -> None:
    p.validation = first_of(p.train, len(p.validation))


@planted("split-overlap", "tabular", "topics", "regressor", names=OVERLAP)
def oversampled_before_splitting(p: Program) -> None:
    columns = [torch.cat([a, b]) for a, b in zip(p.train.columns, p.validation.columns, strict=True)]
    drawn = torch.randint(len(columns[0]), (len(columns[0]),))
    size = len(p.train)
    p.train = Columns(*(c[drawn[:size]] for c in columns), names=p.train.names)
    p.validation = Columns(*(c[drawn[size:]] for c in columns), names=p.train.names)


@planted("split-overlap", "forecaster", "recurrent", names=OVERLAP)
def overlapping_windows_split_by_chance(p: Program) -> None:
    if p.kind == "recurrent":
        windows = language().flatten().unfold(0, 25, 5)
    else:
        windows = p.train.columns[0].flatten()[None].unfold(1, 33, 5).transpose(0, 1)
    windows = windows[torch.randperm(len(windows))]
    size = len(windows) * 3 // 4
    p.train, p.validation = (Columns(w[..., :-1], w[..., 1:]) for w in (windows[:size], windows[size:]))


@planted("split-overlap", "segmenter", "regressor", "siamese", names=OVERLAP)
def nearly_the_same_samples(p: Program) -> None:
    p.validation = first_of(p.train, len(p.validation))
    first = p.validation.columns[0]
    p.validation.columns[0] = first + 0.01 * torch.randn(first.shape)


@planted("split-overlap", "images", "recurrent", "siamese", "topics")
def validation_of_four(p: Program) -> None:
    p.validation = first_of(p.validation, FEW)


MISMATCH = ("train-validation-mismatch",)


@planted("validation-alike", "images", "regressor", "forecaster", "denoiser", "segmenter", names=MISMATCH)
def validation_not_scaled(p: Program) -> None:
    p.validation = Changed(p.validation, lambda values, target: (5 + 6 * values, target))


@planted("validation-alike", "tabular", names=MISMATCH)
def validation_scaled_otherwise(p: Program) -> None:
    numbers = p.validation.columns[0]
    p.validation.columns[0] = (numbers - numbers.amin(0)) / (numbers.amax(0) - numbers.amin(0))


@planted("validation-alike", "topics", "transformer", names=MISMATCH)
def another_vocabulary(p: Program) -> None:
    size = p.model.embed.num_embeddings
    p.validation.columns[0] = (size - p.validation.columns[0]) % size


@planted("validation-alike", "tagger", names=MISMATCH)
def words_unknown_in_validation(p: Program) -> None:
    p.validation.words = [w.where(torch.rand(w.shape) < 0.4, torch.ones_like(w)) for w in p.validation.words]


@planted("validation-alike", "siamese", names=MISMATCH)
def inverted_in_validation(p: Program) -> None:
    p.validation = Changed(p.validation, lambda left, right, same: (-left, -right, same))


@planted("validation-alike", "images", "regressor", "tabular", names=MISMATCH)
def split_after_sorting(p: Program) -> None:
    columns = [torch.cat([a, b]) for a, b in zip(p.train.columns, p.validation.columns, strict=True)]
    order = columns[-1].argsort(stable=True)
    size = len(p.train)
    p.train.columns = [c[order[:size]] for c in columns]
    p.validation.columns = [c[order[size:]] for c in columns]


AUGMENTED = ("augmentation-on-validation",)


@planted("validation-augmentation", "images", "tagger", "forecaster", "segmenter", names=AUGMENTED)
def augmented_as_in_training(p: Program) -> None:
    p.validation.augment = p.train.augment


@planted("validation-augmentation", "tabular", names=AUGMENTED)
def jitter_in_validation(p: Program) -> None:
    p.validation.augment = lambda numbers, *rest: (numbers + 0.05 * torch.randn(6), *rest)


@planted("validation-augmentation", "recurrent", "topics", names=AUGMENTED)
def words_dropped_in_validation(p: Program) -> None:
    p.validation.augment = lambda words, target: (words.where(torch.rand(words.shape) > 0.1, words[:1]), target)


class PairsByChance(Dataset):
    """New pairs whenever they are asked for."""

    def __init__(self, pairs: Columns) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, _: int) -> Any:
        return self.pairs[int(torch.randint(len(self.pairs), ()))]


@planted("validation-augmentation", "siamese", names=AUGMENTED)
def pairs_drawn_anew(p: Program) -> None:
    p.validation = PairsByChance(p.validation)


SORTED = ("not-shuffled",)


@planted("shuffling", "images", "tabular", "regressor", "siamese", "topics", "segmenter", names=SORTED)
def sorted_and_not_shuffled(p: Program) -> None:
    target = p.train.columns[-1].flatten(1).sum(1) if p.kind == "segmenter" else p.train.columns[-1]
    order = (target[:, 0] if p.kind == "topics" else target).argsort(stable=True)
    p.train.columns = [column[order] for column in p.train.columns]
    p.loading = {"shuffle": False}


class OneOrder(Sampler):
    """By chance, but drawn once."""

    def __init__(self, size: int) -> None:
        self.order = torch.randperm(size).tolist()

    def __iter__(self) -> Any:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


@planted("shuffling", "images", "transformer", "tagger", "denoiser", names=SORTED)
def the_same_order_in_each_epoch(p: Program) -> None:
    p.loading = {"sampler": OneOrder(len(p.train))}


@planted("shuffling", "denoiser", "mixer", "tabular", names=SORTED)
def in_the_order_of_the_file(p: Program) -> None:
    p.loading = {"shuffle": False}


REPEATED = ("repeated-batch",)


def with_workers(p: Program) -> None:
    p.loading = {"shuffle": True, "num_workers": 2}


class Held:
    """An augmentation with a generator of its own, which each worker gets a copy of."""

    def __init__(self) -> None:
        self.numpy, self.python = np.random.default_rng(0), random.Random(0)

    def shift(self, image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        return image.roll(tuple(self.numpy.integers(-1, 2, 2).tolist()), (1, 2)), label

    def louder(self, series: Tensor, following: Tensor) -> tuple[Tensor, ...]:
        by = 1 + 0.1 * self.python.gauss(0, 1)
        return series * by, following * by

    def drop(self, words: Tensor, tags: Tensor) -> tuple[Tensor, ...]:
        kept = torch.from_numpy(self.numpy.random(words.shape) > 0.1)
        return words.where(kept, torch.ones_like(words)), tags

    def jitter(self, numbers: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return numbers + 0.05 * torch.from_numpy(self.numpy.standard_normal(6)).float(), *rest


@planted("worker-randomness", "images", "forecaster", "tagger", "tabular", names=REPEATED, twin=with_workers)
def generator_copied_to_each_worker(p: Program) -> None:
    with_workers(p)
    held = Held()
    of = {"images": held.shift, "forecaster": held.louder, "tagger": held.drop, "tabular": held.jitter}
    p.train.augment = of[p.kind]


def same_seed(_: int) -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@planted("worker-randomness", "segmenter", "denoiser", "images", names=REPEATED, twin=with_workers)
def workers_seeded_alike(p: Program) -> None:
    with_workers(p)
    p.loading["worker_init_fn"] = same_seed
