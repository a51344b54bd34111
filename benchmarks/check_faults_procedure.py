"""Faults of optimizers, schedules, rates, checkpoints and repetition, and what keeps a batch from being learned."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from check_planting import after_head, before_head, planted
from check_programs import Parts, Program, load, save

LEFT_OUT = ("parameters-not-optimized",)


@planted("optimizer-coverage", "images", "segmenter", "transformer", "siamese", names=LEFT_OUT)
def head_only(p: Program) -> None:
    p.optimizer = lambda model: torch.optim.Adam(model.head.parameters(), 1e-3)


@planted("optimizer-coverage", "tagger", "topics", "recurrent", names=LEFT_OUT)
def embedding_left_out(p: Program) -> None:
    p.optimizer = lambda m: torch.optim.Adam([q for n, q in m.named_parameters() if not n.startswith("embed")], 1e-3)


@planted("optimizer-coverage", "tabular", "regressor", "denoiser", names=LEFT_OUT)
def head_replaced_afterwards(p: Program) -> None:
    optimizer = p.optimizer(p.model)
    p.model.head = nn.Linear(p.model.head.in_features, p.model.head.out_features)
    p.optimizer = lambda _: optimizer


@planted("optimizer-coverage", "forecaster", "mixer", names=LEFT_OUT)
def optimizer_of_a_copy(p: Program) -> None:
    make = p.optimizer
    p.optimizer = lambda model: make(copy.deepcopy(model))


class Plain(list):
    """Layers in a list that the model does not know for its own."""

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


@planted("optimizer-coverage", "transformer", "forecaster", names=LEFT_OUT)
def layers_in_a_plain_list(p: Program) -> None:
    name = "blocks" if p.kind == "transformer" else "layers"
    unseen = Plain(getattr(p.model, name))
    delattr(p.model, name)
    setattr(p.model, name, unseen)


@planted("optimizer-coverage", "tabular", "regressor", "topics")
def two_optimizers_of_one_layer(p: Program) -> None:
    make = p.optimizer
    p.optimizer = lambda model: [make(model), torch.optim.SGD(model.head.parameters(), 1e-2)]
    p.scheduler = None


SCHEDULE = ("scheduler-misuse", "learning-rate-decayed-too-early")


@planted("schedule-horizon", "images", "segmenter", "tagger", names=SCHEDULE)
def over_after_a_fifth(p: Program) -> None:
    p.scheduler = lambda optimizer, epochs, _: lr_scheduler.LinearLR(optimizer, 1.0, 0.001, epochs // 5)


@planted("schedule-horizon", "tabular", "mixer", names=SCHEDULE)
def one_cycle_of_one_epoch(p: Program) -> None:
    p.scheduler = lambda optimizer, _, steps: lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)


@planted("schedule-horizon", "transformer", "recurrent", names=SCHEDULE)
def warmup_longer_than_the_run(p: Program) -> None:
    p.scheduler = lambda optimizer, *_: lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4000))


@planted("schedule-horizon", "images", "siamese", names=SCHEDULE)
def milestones_after_the_end(p: Program) -> None:
    p.scheduler = lambda optimizer, *_: lr_scheduler.MultiStepLR(optimizer, [3000, 6000])


@planted("schedule-horizon", "denoiser", "forecaster", names=SCHEDULE)
def cosine_of_a_longer_run(p: Program) -> None:
    p.scheduler = lambda optimizer, *_: lr_scheduler.CosineAnnealingLR(optimizer, 10_000)


@planted("schedule-horizon", "topics", names=SCHEDULE)
def decayed_to_nothing_at_once(p: Program) -> None:
    p.scheduler = lambda optimizer, *_: lr_scheduler.ExponentialLR(optimizer, 0.1)


@planted("loss-falls", "images", "tagger", "topics", "denoiser", names=("loss-sign-flipped",))
def wrong_sign(p: Program) -> None:
    loss = p.loss
    p.loss = lambda outputs, targets: -loss(outputs, targets)


@planted("loss-falls", "tabular", "segmenter", "recurrent", names=("loss-sign-flipped", "optimizer-misconfigured"))
def maximizing(p: Program) -> None:
    p.optimizer = lambda model: torch.optim.AdamW(model.parameters(), 3e-3, maximize=True)
    p.scheduler = None


@planted("loss-falls", "images", "regressor", "siamese", names=("no-parameter-update", "learning-rate-too-low"))
def rate_of_zero(p: Program) -> None:
    p.optimizer = lambda model: torch.optim.SGD(model.parameters(), 0.0)
    p.scheduler = None


@planted("loss-falls", "forecaster", "transformer", "denoiser", names=("learning-rate-too-high",))
def enormous_rate(p: Program) -> None:
    p.optimizer = lambda model: torch.optim.Adam(model.parameters(), 3.0)
    p.scheduler = None


@planted("loss-falls", "mixer", "regressor", names=("no-parameter-update", "parameters-not-optimized"))
def steps_of_a_copy(p: Program) -> None:
    optimizer_of_a_copy(p)


def at_rate(p: Program, factor: float) -> None:
    """The program's own optimizer, its rate times a factor, without a schedule that would hide it."""
    make = p.optimizer

    def changed(model: nn.Module) -> torch.optim.Optimizer:
        optimizer = make(model)
        for group in optimizer.param_groups:
            group["lr"] *= factor
        return optimizer

    p.optimizer, p.scheduler = changed, None


@planted(
    *("useful-rate", "images", "tagger", "transformer", "tabular", "topics", "forecaster", "regressor"),
    names=("learning-rate-too-high",),
)
def three_hundred_times_the_rate(p: Program) -> None:
    at_rate(p, 300)


@planted(
    *("useful-rate", "images", "recurrent", "mixer", "topics", "denoiser", "siamese", "segmenter"),
    names=("learning-rate-too-low",),
)
def a_ten_thousandth_of_the_rate(p: Program) -> None:
    at_rate(p, 1e-4)


@planted("useful-rate", "images", "denoiser", names=("learning-rate-too-high", "unintended-gradient-scale"))
def summed_loss_at_the_rate_of_a_mean(p: Program) -> None:
    loss = p.loss
    p.loss = lambda outputs, targets: loss(outputs, targets, reduction="sum")
    p.optimizer = lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    p.scheduler = None


RESUME = ("resume-without-state",)


def keep_only(p: Program, *kept: str) -> None:
    def restore(parts: Parts, path: Path) -> None:
        held = torch.load(path)
        for name in kept:
            getattr(parts, name).load_state_dict(held[name])
        torch.set_rng_state(held["random"])

    p.load = restore


@planted("checkpoint-round-trip", "images", "tagger", "tabular", "denoiser", names=RESUME)
def optimizer_forgotten(p: Program) -> None:
    keep_only(p, "model", *(["scheduler"] if p.scheduler else []))


@planted("checkpoint-round-trip", "transformer", "segmenter", "siamese", "forecaster", names=RESUME)
def schedule_forgotten(p: Program) -> None:
    keep_only(p, "model", "optimizer")


class Centred(nn.Module):
    """By a running mean, which is no part of the checkpoint."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("mean", torch.zeros(width), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * features.detach().flatten(0, -2).mean(0))
        return self.layer(features - self.mean)


@planted("checkpoint-round-trip", "regressor", "topics", "recurrent", "images")
def buffer_forgotten(p: Program) -> None:
    p.model.head = Centred(p.model.head, p.model.head.in_features)


@planted("checkpoint-round-trip", "mixer", "segmenter")
def other_names_passed_over(p: Program) -> None:
    def store(parts: Parts, path: Path) -> None:
        save(parts, path)
        held = torch.load(path)
        torch.save(held | {"model": {f"module.{n}": v for n, v in held["model"].items()}}, path)

    def restore(parts: Parts, path: Path) -> None:
        model = parts.model
        held = torch.load(path)
        torch.save(held | {"model": model.state_dict()}, path)
        model.load_state_dict(held["model"], strict=False)
        load(parts, path)

    p.save, p.load = store, restore


@planted("checkpoint-round-trip", "tagger", "siamese")
def weights_in_half_precision(p: Program) -> None:
    def store(parts: Parts, path: Path) -> None:
        save(parts, path)
        held = torch.load(path)
        torch.save(held | {"model": {n: v.half() for n, v in held["model"].items()}}, path)

    p.save = store


@planted("memorise", "images", "transformer", names=("softmax-before-cross-entropy",))
def scores_squashed(p: Program) -> None:
    after_head(p, nn.Softmax(-1))


@planted("memorise", "regressor", "forecaster", names=("misplaced-activation",))
def negative_targets_out_of_reach(p: Program) -> None:
    after_head(p, nn.ReLU())


@planted("memorise", "denoiser", "segmenter", names=("capacity-too-low",))
def one_unit_wide(p: Program) -> None:
    if p.kind == "denoiser":
        p.model.encode[3], p.model.decode[0] = nn.Linear(64, 1), nn.Linear(1, 64)
    else:
        before_head(p, lambda features: features.mean((2, 3), keepdim=True).expand_as(features))


@planted("memorise", "tagger", "topics", "siamese")
def blind(p: Program) -> None:
    before_head(p, torch.zeros_like)


@planted("memorise", "tabular", names=("sigmoid-before-bce-with-logits",))
def logits_squashed(p: Program) -> None:
    after_head(p, nn.Sigmoid())


@planted("repeated-start", "images", "tagger", "topics", "regressor")
def dropout_seeded_by_the_system(p: Program) -> None:
    generator = torch.Generator()

    def drop(features: Tensor) -> Tensor:
        generator.seed()
        return features * (torch.rand(features.shape, generator=generator) > 0.1)

    before_head(p, drop)


@planted("repeated-start", "tabular", "segmenter", "transformer")
def noise_from_the_system(p: Program) -> None:
    def jitter(x: Tensor) -> Tensor:
        return x + 0.01 * torch.from_numpy(np.random.default_rng().standard_normal(x.shape)).to(x.dtype)

    before_head(p, jitter)
