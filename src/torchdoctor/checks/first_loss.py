"""The first loss is about what knowing nothing costs: far above it the model is sure of wrong answers, far below it
knows what it cannot know."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.chance import Measured, measure
from torchdoctor.checks.model.cosines import gives_cosines
from torchdoctor.checks.model.freshness import is_fresh
from torchdoctor.checks.model.looks import Look, targets_of
from torchdoctor.checks.model.loss_wiring import wiring_of
from torchdoctor.checks.model.start import ModelNames, start_of
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.probes.activations import first_tensor
from torchdoctor.rules.architecture import bad_initialization_scale as scale
from torchdoctor.rules.baseline import ABSOLUTE, SQUARED
from torchdoctor.rules.curves import figure

CHECK = Check(
    name="first-loss",
    asks="the first loss is about what chance gives",
    part=MODEL,
    order=20,
    diagnoses=(
        "bad-initialization-scale",
        "unnormalized-inputs",
        "label-leakage",
        "nan-in-inputs",
        "nan-in-targets",
    ),
)

BELOW = 0.5
"""Of what the frequencies of the labels cost. A model that was never trained is never that good by luck."""
LEARNED = 0.9
"""Of the same: what a model that was never trained seldom reaches."""
NOTHING_LEFT = 1e-6
"""Of the targets' variance. A model that adds a correction to its input may start very low, but not there."""
LOUD_INPUTS = 10.0
"""Root mean square of inputs that may make a usual model sure of its answers; standardised ones have one."""


def perform(bench: Bench) -> Outcome:
    fresh = is_fresh(bench)  # before any pass has gathered statistics
    wiring = wiring_of(bench)
    if wiring.error is not None:
        return skipped("the loss cannot be computed; output-shape says why")
    broken = next((look for look in wiring.looks if look.broke), None)
    if broken is not None:
        return _not_finite(bench, broken)
    every = [m for m in measure(bench, wiring.looks) if m.chance > 0]
    measured = [m for m in every if m.loss > 0]
    if every and not measured:
        return skipped("the outputs are the target to the bit: a copy of the model makes it, as a teacher does")
    if not measured:
        return skipped("the loss is none of torch's, nor has it the value of one: what chance gives is not known")
    high = max(measured, key=lambda m: m.loss / m.chance / m.ratio)
    if high.loss >= high.ratio * high.chance:
        if fresh is not False and high.shuffled < high.ratio * high.chance:
            text = f"{figure(high.loss)}, and {figure(high.shuffled)} against other samples' labels: the loss itself is"
            return passed(f"{text} harder on the right answer, as with a margin ({high.words})", loss=high.loss)
        if high.classes is not None and gives_cosines(bench, wiring.looks[0].batch, high.classes):
            meant = "cosines times a factor that was chosen, which may start above chance"
            return passed(f"{figure(high.loss)} ({high.words}); the scores are {meant}", loss=high.loss)
        return _above(bench, high, fresh)
    low = min(measured, key=lambda m: m.loss / max(m.best, 1e-12))
    limit = NOTHING_LEFT if low.function in (*SQUARED, *ABSOLUTE) else BELOW
    is_below = low.loss < limit * low.best
    if is_below and fresh:
        return _below(low)
    told = low if is_below else measured[0]
    learned = is_below or told.loss < LEARNED * told.best
    known = "; lower than guessing, which is fine for a model that has been trained before" if learned else ""
    return passed(f"{figure(told.loss)} ({told.words}){known}", loss=told.loss, blind=told.blind, prior=told.prior)


def _above(bench: Bench, high: Measured, fresh: bool | None) -> Outcome:
    times = high.loss / high.chance
    text = f"the first loss is {figure(high.loss)}, {figure(times)} times chance: {high.words}"
    loud = _loud_inputs(bench, high)
    figures = {"loss": high.loss, "blind": high.blind, "prior": high.prior, "times": times}
    if loud is not None:
        return failed(
            f"{text}; it comes from inputs of size {figure(loud)}, with them scaled to one it is near chance",
            "unnormalized-inputs",
            Fix(
                "Standardise the inputs with the training set's mean and spread.",
                "mean, std = X_train.mean(0), X_train.std(0); X = (X - mean) / std",
            ),
            severity=Severity.WARNING,
            **figures,
        )
    if fresh is False:
        return failed(
            f"{text}; the model was trained before and is sure of wrong answers",
            None,
            Fix(
                "Compare its order of classes, its preprocessing and its scale of targets with those of this training.",
                "print(model(x[:4]).argmax(1), y[:4])",
            ),
            severity=Severity.WARNING,
            **figures,
        )
    layers = scale.layer_gains(start_of(bench).run)
    loudest = sorted((pair for pair in layers if pair[1] >= scale.LOUD), key=lambda pair: -pair[1])
    if not loudest and high.function in (*SQUARED, *ABSOLUTE):
        return failed(
            f"{text}; the weights are of usual size, so the targets are small beside the outputs (up to "
            f"{figure(high.score)})",
            "unnormalized-inputs",
            Fix("Standardise the targets.", "mean, std = y_train.mean(), y_train.std(); y = (y - mean) / std"),
            severity=Severity.INFO,
            **figures,
        )
    evidence = [f"{layer.name}: gain {gain:.1f}, where 1 keeps the scale" for layer, gain in loudest[:3]]
    return failed(
        f"{text}; the untrained model is sure of its answers, with scores up to {figure(high.score)}",
        scale.RULE.name,
        scale.remedy(start_of(bench).run, loudest)
        if loudest
        else Fix(
            "Start the last layer small, and multiply its scores by nothing.",
            "nn.init.normal_(model.head.weight, std=0.01); nn.init.zeros_(model.head.bias)  # the last layer",
        ),
        severity=Severity.WARNING,
        evidence=tuple(evidence),
        where=tuple(Place(module=layer.module, parameter=layer.name) for layer, _ in loudest[:3]),
        **figures,
    )


def _loud_inputs(bench: Bench, high: Measured) -> float | None:
    """The size of the inputs, where that alone makes the loss high."""
    batch = bench.train[0]
    floats = [t for t in bench.inputs(batch) if t.is_floating_point() and t.numel()]
    size = max((float(t.float().square().mean().sqrt()) for t in floats), default=0.0)
    if not size >= LOUD_INPUTS:
        return None

    def quieten(_number: int, given: Tensor) -> Tensor:
        own = given.float().square().mean().sqrt() if given.is_floating_point() and given.numel() else None
        return given / own.to(given.dtype) if own is not None and own >= LOUD_INPUTS else given

    before = float(bench.subject.loss(batch).detach())
    with bench.with_inputs(quieten):
        after = float(bench.subject.loss(batch).detach())
    return size if before > 0 and high.loss * after / before < high.ratio * high.chance else None


def _below(low: Measured) -> Outcome:
    return failed(
        f"the first loss is {figure(low.loss)}, far below chance, though the model was never trained: {low.words}",
        "label-leakage",
        Fix(
            "Look for the target among the inputs: a column, a mask, an unshifted sequence; and at what the loss "
            "compares with what.",
            "print(batch)  # is y, or anything made from it, in what the model gets?",
        ),
        severity=Severity.WARNING,
        loss=low.loss,
        blind=low.blind,
        prior=low.prior,
    )


def _not_finite(bench: Bench, look: Look) -> Outcome:
    """Where the first NaN or Inf is: in what goes in, in the weights, or made on the way."""
    said = "NaN" if look.loss is None or math.isnan(look.loss) else "infinite"
    for what, name, tensors in (
        ("inputs", "nan-in-inputs", look.inputs),
        ("targets", "nan-in-targets", targets_of(bench, look)),
    ):
        if any(t.is_floating_point() and not bool(t.isfinite().all()) for t in tensors):
            return failed(
                f"the first loss is {said}: the {what} hold NaN or Inf",
                name,
                Fix(
                    "Drop or fill in what is missing.",
                    "keep = torch.isfinite(x).flatten(1).all(1); x, y = x[keep], y[keep]",
                ),
            )
    bad = [name for name, p in ModelNames(bench.model).parameters() if not bool(p.isfinite().all())]
    if bad:
        return failed(
            f"the first loss is {said}: {bad[0]} holds NaN or Inf before training begins",
            "nonfinite-parameters",
            Fix("Look where it comes from: a checkpoint, or an initialisation that divides by zero."),
            where=(Place(module=bad[0].rpartition(".")[0] or None, parameter=bad[0]),),
        )
    module, most = _first_broken(bench, look)
    at = f"{module} gives the first NaN or Inf" if module else "the outputs are finite, the loss makes it of them"
    large = f", from numbers up to {figure(most)}" if most else ""
    overflows = module is not None and most >= 1e4
    return failed(
        f"the first loss is {said}: {at}{large}",
        scale.RULE.name if overflows else None,
        Fix(
            "Start the weights by their fan-in." if overflows else "Keep the loss's argument from zero.",
            "nn.init.kaiming_normal_(layer.weight)" if overflows else "torch.log(x.clamp_min(1e-8))",
        ),
        where=(Place(module=module),) if module else (),
    )


def _first_broken(bench: Bench, look: Look) -> tuple[str | None, float]:
    """The first module whose output is not finite, and the largest number that went into it."""
    found: list[tuple[str, float]] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(_module: nn.Module, args: Any, output: Any) -> None:
            made, given = first_tensor(output), first_tensor(args)
            if not found and made is not None and made.is_floating_point() and not bool(made.isfinite().all()):
                found.append((name, float(given.detach().abs().max()) if given is not None and given.numel() else 0.0))

        return note

    names = ModelNames(bench.model).module_names
    leaves = [m for m in bench.model.modules() if next(m.children(), None) is None]
    handles = [m.register_forward_hook(hook(names[id(m)])) for m in leaves]
    try:
        bench.subject.loss(look.batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else (None, 0.0)
