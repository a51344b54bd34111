"""Activations are alive before the first update: no dead ReLU, no saturated sigmoid or tanh, no exploding signal."""

from __future__ import annotations

import math

import numpy as np

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.start import Start, start_of
from torchdoctor.checks.repeats.updating import train
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.rules.architecture import dead_relu, exploding_gradients, gates, saturated_activations
from torchdoctor.rules.architecture.depth import Profile, stacks
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run
from torchdoctor.signals import ACTIVATION, Signal

CHECK = Check(
    name="activation-health",
    asks="activations are alive and not saturated",
    part=MODEL,
    order=40,
    diagnoses=("dead-relu", "saturated-activations", "exploding-gradients"),
)
SHOWN = 3
FEW_UNITS = 8
"""That are all silent by the chance of one in 256; the rule's own bar is beyond all of them for so few."""
UPDATES = 8
"""After which a signal that explodes has shown in the loss."""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped("there is no batch to look at")
    start = start_of(bench)
    run = start.run
    if not run.modules:
        return skipped("no activation could be seen: the model's parts are not called as modules")
    if (outcome := _broken(start)) is not None:
        return outcome
    if dead := _dead_layers(run):
        return _dead(run, dead)
    if (outcome := _saturated(run)) is not None:
        return outcome
    grown = next((g for layers in stacks(run) if (g := exploding_gradients.growth(run, layers)) is not None), None)
    if grown is not None:
        return _growing(bench, grown)
    return _healthy(run)


def _broken(start: Start) -> Outcome | None:
    """Values that are not finite: the first module that gives them, if what it was given was finite."""
    counts = start.run.matrix(ACTIVATION["nonfinite"])
    bad = [n for n in start.run.modules if n in counts.columns and np.nanmax(counts.column(n).values) > 0]
    if not bad:
        return None
    if not start.finite_inputs:
        return skipped("the inputs hold NaN or Inf, and so does everything after them")
    module, after = start.run.modules[bad[0]], len(bad) - 1
    half = module.dtype == "float16"
    return failed(
        f"{module.name} ({module.type}) gives NaN or Inf before anything is trained"
        + (f", and so do {after} modules after it" if after else ""),
        "half-precision-overflow" if half else None,
        Fix("Use bfloat16, whose range is that of float32.", "torch.autocast(device_type, dtype=torch.bfloat16)")
        if half
        else Fix("Look at what goes into this module and at its weights.", "print(torchdoctor.find_nonfinite(model))"),
        where=(Place(module=module.name),),
    )


def _dead_layers(run: Run) -> list[dead_relu.Layer]:
    trace, found = run.matrix(dead_relu.DEAD), []
    for name in trace.columns:
        seen = trace.column(name)
        layer = dead_relu.dead_layer(run, name, seen)
        if layer is None and (run.modules[name].units or 0) >= FEW_UNITS and bool((seen.values == 1.0).all()):
            layer = dead_relu.Layer(name, 1.0, 0, 1.0, seen)
        found += [layer] if layer is not None else []
    return found


def _dead(run: Run, layers: list[dead_relu.Layer]) -> Outcome:
    worst = max(layers, key=lambda layer: layer.share)
    bias = dead_relu.low_bias(run, worst.name)
    evidence = [
        f"{x.name}: {x.share:.0%} of its units are zero for every sample of {len(x.trace)} batches" for x in layers
    ]
    if bias is not None:
        evidence.append(f"{bias[0]} starts at {bias[1]:.2g} on average, so the units begin far below zero")
    return failed(
        f"{worst.share:.0%} of the units of {worst.name} give zero for every sample, and what is zero cannot learn",
        "dead-relu",
        dead_relu.remedy(worst.name, True, bias[0] if bias else None),
        severity=Severity.ERROR if worst.share >= dead_relu.CUT else Severity.WARNING,
        evidence=tuple(evidence[:SHOWN]),
        where=tuple(Place(module=layer.name) for layer in layers[:SHOWN]),
        dead=worst.share,
    )


def _saturated(run: Run) -> Outcome | None:
    trace = run.matrix(saturated_activations.SATURATED)
    hidden = [m for m in saturated_activations.hidden_modules(run) if m.name in trace.columns]
    layers = [x for m in hidden if (x := saturated_activations.saturated_layer(m, trace.column(m.name)))]
    if layers:
        worst = max(layers, key=lambda layer: layer.share)
        return failed(
            f"{worst.share:.0%} of the outputs of {worst.name} ({worst.kind}) are at the flat ends of their range, "
            "where hardly any gradient passes",
            "saturated-activations",
            saturated_activations.remedy(worst.kind, True),
            severity=Severity.WARNING,
            evidence=tuple(f"{x.name}: {x.share:.0%} of its outputs are at a limit of the {x.kind}" for x in layers),
            where=tuple(Place(module=layer.name) for layer in layers[:SHOWN]),
            saturated=worst.share,
        )
    pinned = gates.pinned(run)
    if pinned is None:
        return None
    return failed(
        f"the gates of {pinned[0]} are pinned: the sums that go into them spread by {figure(pinned[1])}, and a sigmoid "
        "is flat beyond 4.6",
        "saturated-activations",
        Fix(
            "Leave PyTorch's default initialisation of the recurrent layer, and normalise what goes into it.",
            f"model.{pinned[0]}.reset_parameters()",
        ),
        severity=Severity.WARNING,
        where=(Place(module=pinned[0]),),
        spread=pinned[1],
    )


def _growing(bench: Bench, grown: Profile) -> Outcome:
    """A signal that grows over the depth is a fault where the first updates show it."""
    losses = train(bench, UPDATES)
    harm = not all(map(math.isfinite, losses)) or losses[-1] > exploding_gradients.WORSE * losses[0]
    first, last = grown.layers[0], grown.layers[-1]
    told = f", and the first updates raise the loss from {figure(losses[0])} to {figure(losses[-1])}" if harm else ""
    text = (
        f"the outputs' spread grows from {figure(float(grown.values[0]))} at {first.module} to "
        f"{figure(float(grown.values[-1]))} at {last.module}, over {len(grown)} layers"
    )
    return failed(
        text + told,
        "exploding-gradients",
        Fix(
            "Normalise between the layers, or start the last layer of each residual branch at zero.",
            "x = x + branch(nn.functional.layer_norm(x, x.shape[-1:]))",
        ),
        severity=Severity.WARNING if harm else Severity.INFO,
        where=(Place(module=last.module),),
        growth=float(grown.values[-1] / grown.values[0]),
    )


def _healthy(run: Run) -> Outcome:
    spread = run.matrix(ACTIVATION["std"])
    modules = [n for n in run.modules if n in spread.columns and " after " not in n]
    sizes = [float(np.nanmedian(spread.column(n).values)) for n in modules]
    sizes = [size for size in sizes if math.isfinite(size) and size > 0]
    dead = _most(run, dead_relu.DEAD, list(run.modules))
    full = _most(run, saturated_activations.SATURATED, [m.name for m in saturated_activations.hidden_modules(run)])
    said = [] if dead is None else [f"{dead:.0%} of a ReLU layer dead at most" if dead else "no ReLU unit is dead"]
    if full is not None:
        said.append(f"{full:.0%} of a hidden sigmoid or tanh saturated at most" if full else "none is saturated")
    if sizes:
        said.append(f"outputs spread by {figure(min(sizes))} to {figure(max(sizes))} over {len(sizes)} modules")
    if not said:
        return skipped("no output of a module could be measured")
    if dead is None and full is None:
        said.append("no ReLU, sigmoid or tanh module was seen whose units could die or saturate")
    return passed(", ".join(said), dead=dead, saturated=full, spread=sizes)


def _most(run: Run, signal: Signal, modules: list[str]) -> float | None:
    """Over all looks, which see more and more samples."""
    values = run.matrix(signal).select(modules).values[-1:]
    values = values[np.isfinite(values)]
    return float(values.max()) if values.size else None
