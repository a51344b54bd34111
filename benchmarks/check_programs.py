"""Sound trainings of twelve kinds, in parts that a fault can be planted in, to be checked or to be trained.

    python benchmarks/check_programs.py [KIND...]

trains them and prints how far the validation loss came: that they are sound is not only said.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer, lr_scheduler
from torch.utils.data import DataLoader, Dataset

import torchdoctor
from check_models import (
    Bag,
    Denoiser,
    Forecaster,
    Mixer,
    RecurrentLM,
    Regressor,
    ResidualNet,
    Segmenter,
    Siamese,
    Tabular,
    Tagger,
    Transformer,
)
from check_samples import Columns, Noisy, Sentences, digits, flipped, louder, paired, shifted, unknown_words
from torchdoctor.checks.checklist import Checklist

IGNORED = -100
"""Cross-entropy's own mark for targets that do not count."""


@dataclass
class Parts:
    """What a training script has in its hands before its loop begins."""

    model: nn.Module
    optimizer: Any
    scheduler: Any


def save(parts: Parts, path: Path) -> None:
    held = {"model": parts.model.state_dict(), "random": torch.get_rng_state()}
    held["optimizer"] = parts.optimizer.state_dict()
    held |= {"scheduler": parts.scheduler.state_dict()} if parts.scheduler else {}
    torch.save(held, path)


def load(parts: Parts, path: Path) -> None:
    held = torch.load(path)
    parts.model.load_state_dict(held["model"])
    parts.optimizer.load_state_dict(held["optimizer"])
    if parts.scheduler:
        parts.scheduler.load_state_dict(held["scheduler"])
    torch.set_rng_state(held["random"])


@dataclass
class Program:
    """A training, described; a fault changes the description."""

    kind: str
    model: nn.Module
    train: Dataset
    validation: Dataset
    optimizer: Callable[[nn.Module], Any]
    loss: Callable[..., Tensor] | None = None
    step: Callable[[nn.Module, Any], Tensor] | None = None
    scheduler: Callable[[Optimizer, int, int], Any] | None = None
    """of an optimizer, the number of epochs and the steps of one"""
    by_step: bool = False
    """the schedule is stepped after each batch, not after each epoch"""
    epochs: int = 10
    batch: int = 32
    collate: Callable[[list[Any]], Any] | None = None
    loading: dict[str, Any] = field(default_factory=lambda: {"shuffle": True})
    """how the training loader draws"""
    save: Callable[[Parts, Path], None] = save
    load: Callable[[Parts, Path], None] = load

    def loaders(self) -> tuple[DataLoader, DataLoader]:
        given = {"batch_size": self.batch, "collate_fn": self.collate}
        return DataLoader(self.train, **given, **self.loading), DataLoader(self.validation, **given)

    def parts(self, steps: int) -> Parts:
        optimizer = self.optimizer(self.model)
        scheduler = self.scheduler(optimizer, self.epochs, steps) if self.scheduler else None
        return Parts(self.model, optimizer, scheduler)

    def check(self, only: Iterable[str]) -> Checklist:
        train, validation = self.loaders()
        parts = self.parts(len(train))
        return torchdoctor.check(
            *(self.model, train, self.loss),
            val_loader=validation,
            optimizer=parts.optimizer,
            scheduler=parts.scheduler,
            step_fn=self.step,
            epochs=self.epochs,
            save=lambda path: self.save(parts, path),
            load=lambda path: self.load(parts, path),
            only=tuple(only),
            progress=False,
        )

    def loss_of(self, batch: Any) -> Tensor:
        return self.step(self.model, batch) if self.step else self.loss(self.model(batch[0]), batch[1])


def image_classes() -> Program:
    images, labels = digits()
    images = (images - images[:1200].mean()) / images[:1200].std()
    return Program(
        *("images", ResidualNet(), Columns(images[:1200], labels[:1200], augment=shifted)),
        Columns(images[1200:], labels[1200:]),
        lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4),
        F.cross_entropy,
        scheduler=lambda optimizer, epochs, _: lr_scheduler.CosineAnnealingLR(optimizer, epochs),
    )


def pad(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    words, tags = zip(*rows, strict=True)
    return pad_sequence(words, True), pad_sequence(tags, True, IGNORED)


def tag_loss(scores: Tensor, tags: Tensor) -> Tensor:
    return F.cross_entropy(scores, tags, ignore_index=IGNORED)


def tagging() -> Program:
    words = [torch.randint(2, 40, (int(length),)) for length in torch.randint(5, 17, (700,))]
    tags = [(w + (w.roll(-1) > 20)) % 5 for w in words]
    return Program(
        *("tagger", Tagger(), Sentences(words[:500], tags[:500], unknown_words), Sentences(words[500:], tags[500:])),
        lambda model: torch.optim.Adam(model.parameters(), 1e-2),
        tag_loss,
        scheduler=lambda optimizer, epochs, _: lr_scheduler.StepLR(optimizer, epochs // 2, 0.3),
        collate=pad,
    )


def language() -> Tensor:
    """Tokens of which the next depends on the last two, now and then on chance."""
    table = torch.randint(30, (30, 30))
    tokens = [1, 2]
    for surprise, other in zip(torch.rand(25 * 500).tolist(), torch.randint(30, (25 * 500,)).tolist(), strict=True):
        tokens.append(other if surprise < 0.3 else int(table[tokens[-1], tokens[-2] % 3]))
    return torch.tensor(tokens[2:]).view(500, 25)


def warmed_up(optimizer: Optimizer, epochs: int, steps: int) -> lr_scheduler.LambdaLR:
    total = epochs * steps

    def factor(step: int) -> float:
        return min((step + 1) / (0.1 * total), 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))))

    return lr_scheduler.LambdaLR(optimizer, factor)


def next_token(kind: str, model: nn.Module, **settings: Any) -> Program:
    tokens = language()
    train, validation = (Columns(part[:, :-1], part[:, 1:]) for part in (tokens[:380], tokens[380:]))
    return Program(
        *(kind, model, train, validation),
        lambda model: torch.optim.AdamW(model.parameters(), 4e-3, betas=(0.9, 0.95)),
        F.cross_entropy,
        **settings,
    )


def transformer() -> Program:
    return next_token("transformer", Transformer(), scheduler=warmed_up, by_step=True)


def recurrent() -> Program:
    return next_token("recurrent", RecurrentLM())


def mixer() -> Program:
    return next_token(
        *("mixer", Mixer()),
        scheduler=lambda optimizer, epochs, steps: lr_scheduler.LinearLR(optimizer, 1.0, 0.05, epochs * steps),
        by_step=True,
    )


def forecasting() -> Program:
    time = torch.arange(500 * 33.0)
    series = torch.sin(time / 3) + 0.6 * torch.sin(time / 7.7 + 1) + 0.2 * torch.randn(len(time))
    windows = (series / series.std()).view(500, 1, 33)
    following = windows[:, :, 1:]
    return Program(
        *("forecaster", Forecaster(), Columns(windows[:380, :, :-1], following[:380], augment=louder)),
        Columns(windows[380:, :, :-1], following[380:]),
        lambda model: torch.optim.Adam(model.parameters(), 3e-3),
        F.mse_loss,
        scheduler=lambda optimizer, _epochs, _steps: lr_scheduler.ExponentialLR(optimizer, 0.9),
    )


def table_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(batch["numbers"], batch["categories"]), batch["target"])


def tabular() -> Program:
    numbers, categories = torch.randn(900, 6), torch.stack([torch.randint(n, (900,)) for n in (5, 8)], 1)
    effect = torch.randn(5)[categories[:, 0]] + torch.randn(8)[categories[:, 1]]
    score = 1.5 * numbers[:, 0] - numbers[:, 1] * numbers[:, 2] + effect
    target = (score + 0.5 * torch.randn(900) > score.median()).float()
    columns, names = (numbers, categories, target), ("numbers", "categories", "target")
    return Program(
        *("tabular", Tabular(), Columns(*(c[:650] for c in columns), names=names)),
        Columns(*(c[650:] for c in columns), names=names),
        lambda model: torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-2),
        step=table_loss,
        scheduler=lambda optimizer, epochs, steps: lr_scheduler.OneCycleLR(optimizer, 1e-2, epochs * steps),
        by_step=True,
    )


def segmenting() -> Program:
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    centre, radius = 4 + 8 * torch.rand(500, 2, 1, 1), 2.5 + 3 * torch.rand(500, 1, 1)
    masks = (((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2) < radius**2).float().unsqueeze(1)
    images = masks * (0.5 + torch.rand(500, 1, 1, 1)) + 0.4 * torch.randn(500, 1, 16, 16)
    images = (images - images.mean()) / images.std()
    return Program(
        *("segmenter", Segmenter(), Columns(images[:380], masks[:380], augment=flipped)),
        Columns(images[380:], masks[380:]),
        lambda model: torch.optim.Adam(model.parameters(), 5e-3),
        F.binary_cross_entropy_with_logits,
        scheduler=lambda optimizer, epochs, _: lr_scheduler.PolynomialLR(optimizer, epochs),
    )


def topics() -> Program:
    present = (torch.rand(700, 6) < 0.35).float()
    of_topic = torch.arange(6, 60).view(6, 9)
    words = torch.zeros(700, 20, dtype=torch.long)
    for row, here in zip(words, present, strict=True):
        common = torch.randint(1, 6, (4,))
        of_topics = of_topic[here.bool()][:, torch.randperm(9)[:2]].flatten()
        said = torch.cat([common, of_topics])
        row[: len(said)] = said[torch.randperm(len(said))]
    return Program(
        *("topics", Bag(), Columns(words[:500], present[:500]), Columns(words[500:], present[500:])),
        lambda model: torch.optim.Adam(model.parameters(), 1e-2),
        F.binary_cross_entropy_with_logits,
    )


def denoising() -> Program:
    images = digits()[0] / 8 - 1
    return Program(
        *("denoiser", Denoiser(), Noisy(images[:1000], fixed=False), Noisy(images[1000:1400], fixed=True)),
        lambda model: torch.optim.NAdam(model.parameters(), 2e-3),
        F.mse_loss,
    )


def regression() -> Program:
    features, target = (torch.tensor(a, dtype=torch.float32) for a in load_diabetes(return_X_y=True, scaled=False))
    order = torch.randperm(len(features))
    features, target = features[order], target[order]
    features, target = ((a - a[:330].mean(0)) / a[:330].std(0) for a in (features, target))
    return Program(
        *("regressor", Regressor(), Columns(features[:330], target[:330]), Columns(features[330:], target[330:])),
        lambda model: torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, nesterov=True),
        F.huber_loss,
        scheduler=lambda optimizer, _epochs, _steps: lr_scheduler.ReduceLROnPlateau(optimizer, patience=3),
    )


def pair_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    left, right, same = batch
    return F.binary_cross_entropy_with_logits(model(left, right), same)


def siamese() -> Program:
    images, labels = digits()
    images = images / 8 - 1
    return Program(
        *("siamese", Siamese(), paired(images[:1200], labels[:1200], 1200), paired(images[1200:], labels[1200:], 300)),
        lambda model: torch.optim.Adam(model.parameters(), 4e-3),
        step=pair_loss,
        scheduler=lambda optimizer, epochs, _: lr_scheduler.MultiStepLR(optimizer, [epochs // 2, epochs * 3 // 4]),
    )


KINDS: dict[str, Callable[[], Program]] = {
    "images": image_classes,
    "tagger": tagging,
    "transformer": transformer,
    "recurrent": recurrent,
    "mixer": mixer,
    "forecaster": forecasting,
    "tabular": tabular,
    "segmenter": segmenting,
    "topics": topics,
    "denoiser": denoising,
    "regressor": regression,
    "siamese": siamese,
}


def build(kind: str, seed: int = 0) -> Program:
    torch.manual_seed(seed)
    return KINDS[kind]()


def validate(program: Program, loader: DataLoader) -> float:
    program.model.eval()
    with torch.no_grad():
        losses = [program.loss_of(batch).item() for batch in loader]
    program.model.train()
    return sum(losses) / len(losses)


def fit(program: Program) -> tuple[float, float]:
    """The validation loss before and after."""
    train, validation = program.loaders()
    parts = program.parts(len(train))
    before = after = validate(program, validation)
    for _ in range(program.epochs):
        for batch in train:
            parts.optimizer.zero_grad()
            program.loss_of(batch).backward()
            parts.optimizer.step()
            if parts.scheduler and program.by_step:
                parts.scheduler.step()
        after = validate(program, validation)
        if isinstance(parts.scheduler, lr_scheduler.ReduceLROnPlateau):
            parts.scheduler.step(after)
        elif parts.scheduler and not program.by_step:
            parts.scheduler.step()
    return before, after


if __name__ == "__main__":
    for kind in sys.argv[1:] or KINDS:
        print(kind, *(f"{loss:.3f}" for loss in fit(build(kind))))
