"""How gradients run over the depth of a model, and over the time steps of a recurrent one, before its first update."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed, passed
from torchdoctor.checks.model.start import ModelNames, Start
from torchdoctor.checks.repeats.updating import train
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.rules.architecture import exploding_gradients as exploding
from torchdoctor.rules.architecture import vanishing_gradients as vanishing
from torchdoctor.rules.architecture.depth import Layer, Profile, hidden, is_recurrent, profile, stacks
from torchdoctor.rules.architecture.recurrence import PLAIN
from torchdoctor.rules.curves import figure
from torchdoctor.rules.movement import PLAIN as NOT_ADAPTIVE
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT_L2, TINY

UPDATES = 8
"""After which a gradient that is far too large has shown in the loss or the weights."""
HOPELESS = 1e6
"""A fall after which single precision leaves a step of the early layers nothing of the late ones' size."""


def judge_profile(bench: Bench, start: Start) -> Outcome | None:
    run = start.run
    for layers in _reached(start):
        if (steep := exploding.rising(run, layers)) is not None:
            return _exploding(bench, steep)
        found = profile(run.matrix(GRADIENT_L2), layers, None)
        inner = hidden(found) if found is not None and len(found) > vanishing.MIN_HIDDEN else None
        if inner is not None and inner.fall >= vanishing.FALL and inner.order >= vanishing.ORDER and inner.gradual:
            return _vanishing(bench, run, inner)
        recurrent = tuple(layer for layer in layers if is_recurrent(layer))
        sensitive = exploding.sensitivity(run, recurrent)
        if sensitive is not None and sensitive[1] >= exploding.SENSITIVE:
            return _sensitive(bench, *sensitive)
    return _over_time(bench)


def summarise(start: Start, count: int) -> Outcome:
    for layers in _reached(start):
        found = profile(start.run.matrix(GRADIENT_L2), layers, None)
        if found is not None and len(found) > 2:
            inner = hidden(found)
            return passed(
                f"all {count} of them; the late layers' gradients are {figure(inner.fall)} times the early ones'",
                parameters=count,
                fall=inner.fall,
                gradients=dict(zip((x.name for x in found.layers), found.values.tolist(), strict=True)),
            )
    return passed(f"all {count} of them", parameters=count)


def _reached(start: Start) -> list[tuple[Layer, ...]]:
    """Without layers whose gradient is exactly zero: before weights that start at zero, and not for long."""
    return [tuple(layer for layer in layers if layer.name not in start.zero) for layers in stacks(start.run)]


def _vanishing(bench: Bench, run: Run, inner: Profile) -> Outcome:
    """As the rule judges: does an update starve the early layers, or is their gradient below the optimizer's eps."""
    first, last = inner.layers[0], inner.layers[-1]
    quarter = max(1, len(inner) // 4)
    adaptive = bool(bench.optimizers) and all(type(o).__name__ not in NOT_ADAPTIVE for o in bench.optimizers)
    starved = 1.0 if adaptive else 1 / inner.fall
    if bench.optimizers:
        moved, _ = _movement(bench, [*inner.layers[:quarter], *inner.layers[-quarter:]], 1)
        early, late = (float(np.median(part)) for part in (moved[:quarter], moved[quarter:]))
        starved = early / late if late > 0 else starved
    lost = adaptive and float(np.median(inner.values[:quarter])) < TINY
    harmed = starved < vanishing.STARVED or lost
    if lost:
        told = f"the early gradients are below the optimizer's eps ({TINY:g})"
    elif harmed:
        told = f"an update changes the early layers by {starved:.1g} of what it changes the late ones"
    else:
        told = "the optimizer makes up for it"
    return failed(
        f"gradients shrink by a factor of {inner.fall:.0e} from {last.name} back to {first.name}, over {len(inner)} "
        f"layers; {told}",
        vanishing.RULE.name,
        vanishing.remedy(vanishing.activations_on_the_way(run)),
        severity=Severity.INFO if not harmed else Severity.ERROR if inner.fall >= HOPELESS else Severity.WARNING,
        evidence=(
            f"gradient of {first.name} (root mean square): {inner.values[0]:.1e}; of {last.name}: "
            f"{inner.values[-1]:.1e}",
        ),
        where=tuple(Place(module=layer.module, parameter=layer.name) for layer in inner.layers[:2]),
        fall=inner.fall,
    )


def _exploding(bench: Bench, steep: Profile) -> Outcome:
    moved, losses = _movement(bench, list(steep.layers), UPDATES)
    harm = _harm(losses, float(np.max(moved)))
    first, last = steep.layers[0], steep.layers[-1]
    return failed(
        f"gradients grow by a factor of {figure(1 / steep.fall)} from {last.name} back to {first.name}, over "
        f"{len(steep)} layers" + (f"; {harm}" if harm else ""),
        exploding.RULE.name,
        Fix(
            "Start the weights at the scale their width needs, add normalisation or skip connections, and clip.",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before optimizer.step()",
        ),
        severity=Severity.WARNING if harm else Severity.INFO,
        evidence=(
            f"gradient of {first.name} (root mean square): {steep.values[0]:.1e}; of {last.name}: "
            f"{steep.values[-1]:.1e}",
        ),
        where=tuple(Place(module=layer.module, parameter=layer.name) for layer in steep.layers[:2]),
        fall=steep.fall,
    )


def _sensitive(bench: Bench, layer: Layer, size: float) -> Outcome:
    moved, losses = _movement(bench, [layer], UPDATES)
    harm = _harm(losses, float(np.max(moved)))
    return failed(
        f"a change of {layer.name} by 1 % would change the loss by {figure(size)} % of itself: the gradient explodes "
        "over the time steps" + (f"; {harm}" if harm else ""),
        exploding.RULE.name,
        Fix(
            "Clip the gradient norm before the step, and start the recurrent matrix orthogonal.",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # before optimizer.step()",
        ),
        severity=Severity.WARNING if harm else Severity.INFO,
        where=(Place(module=layer.module, parameter=layer.name),),
        sensitivity=size,
    )


def _harm(losses: list[float], moved: float) -> str | None:
    if not all(map(math.isfinite, losses)):
        return f"the loss is no longer finite after {sum(map(math.isfinite, losses))} updates"
    if losses[-1] > exploding.WORSE * losses[0] > 0:
        return f"the first {len(losses)} updates raise the loss from {figure(losses[0])} to {figure(losses[-1])}"
    if moved >= exploding.SHARE_OF_WEIGHTS:
        return f"the first {len(losses)} updates change a layer by {figure(moved)} times its own size"
    return None


def _movement(bench: Bench, layers: list[Layer], updates: int) -> tuple[list[float], list[float]]:
    """Relative change of these weights by so many updates, and the losses on the way."""
    weights = dict(ModelNames(bench.model).parameters())
    before = [weights[layer.name].detach().clone() for layer in layers]
    losses = train(bench, updates)
    moved = []
    for layer, old in zip(layers, before, strict=True):
        change, size = (weights[layer.name].detach() - old).norm(), old.norm()
        moved.append(float(change / size) if float(size) > 0 else 0.0)
    return moved, losses


def _over_time(bench: Bench) -> Outcome | None:
    """What arrives at the first time step of a plain recurrent layer, by the gradient of its own input."""
    layers = [(n, m) for n, m in bench.model.named_modules() if type(m).__name__ in PLAIN and isinstance(m, nn.RNNBase)]
    for name, layer in layers:
        sizes = _sizes_over_time(bench, layer)
        if len(sizes) < 2 or sizes.max() <= 0 or sizes[0] >= vanishing.FADED * sizes.max():
            continue
        return failed(
            f"of the gradient of {name}, a plain RNN, {sizes[0] / sizes.max():.0e} arrives at the first of "
            f"{len(sizes)} time steps: what happens there can hardly be learned",
            vanishing.RULE.name,
            Fix(
                "Start the recurrent matrix orthogonal, so that it keeps the scale, or use an LSTM or GRU.",
                f"nn.init.orthogonal_(model.{name}.weight_hh_l0)",
            ),
            severity=Severity.INFO,
            where=(Place(module=name),),
            left=float(sizes[0] / sizes.max()),
        )
    return None


def _sizes_over_time(bench: Bench, layer: nn.RNNBase) -> np.ndarray[Any, Any]:
    given: list[Tensor] = []

    def watch(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if given or not args or not isinstance(args[0], Tensor) or args[0].dim() != 3:
            return None
        given.append(args[0] if args[0].requires_grad else args[0].detach().clone().requires_grad_())
        given[0].retain_grad()
        return (given[0], *args[1:])

    handle = layer.register_forward_pre_hook(watch)
    try:
        bench.subject.loss(bench.train[0]).backward()
    finally:
        handle.remove()
    if not given or given[0].grad is None:
        return np.zeros(0)
    others = (0, 2) if layer.batch_first else (1, 2)
    with torch.no_grad():
        return given[0].grad.float().square().sum(others).sqrt().cpu().double().numpy()
