"""Weights start finite, different from unit to unit, and at a scale that their width and depth can stand."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import cycle, islice

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from torchdoctor import stats
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.loss_wiring import consult, wiring_of
from torchdoctor.checks.model.start import ModelNames, Start, start_of
from torchdoctor.checks.repeats.updating import nudge, train
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.tables import listed
from torchdoctor.rules.architecture import bad_initialization_scale as scale
from torchdoctor.rules.architecture import symmetric_initialization as symmetry
from torchdoctor.rules.architecture.depth import Layer, initializer, stacks
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run

CHECK = Check(
    name="initialisation",
    asks="weights start different from each other and at a sane scale",
    part=MODEL,
    order=30,
    diagnoses=("symmetric-initialization", "bad-initialization-scale", "nonfinite-parameters"),
)
UPDATES = 5
"""After which units that can come apart have done so."""
TRIED = 12
"""Updates in which a loss moves, if the weights are not too small for it to."""
STILL, GROWN = 0.02, 10.0
"""Share of the loss by which it has moved, and factor by which the signal has grown, in these updates. The loss alone
moves a little where the last bias learns the mean."""
USUAL = "where usual starts have 0.5 to 1.7"
"""Said of gains beyond the rule's limit; from PyTorch's own to those of tanh."""
STACKED = {"LSTM": 4, "GRU": 3}
"""Matrices in one parameter, one for each gate."""


def perform(bench: Bench) -> Outcome:
    bad = [name for name, p in bench.named_parameters().items() if p.is_floating_point() and not p.isfinite().all()]
    if bad:
        return failed(
            f"{len(bad)} parameters hold NaN or Inf before training begins: {listed(bad)}",
            "nonfinite-parameters",
            Fix("Look where they come from: a checkpoint, or an initialisation that divides by zero."),
            where=tuple(Place(module=n.rpartition(".")[0] or None, parameter=n) for n in bad[:4]),
        )
    if not bench.train:
        return skipped("there is no batch to look at")
    start = start_of(bench)
    if not any(stacks(start.run)):
        return skipped("the loss reaches no weight matrix")
    return _symmetric(bench, start) or _too_large(bench, start) or _too_small(bench, start) or _sane(bench, start.run)


def _symmetric(bench: Bench, start: Start) -> Outcome | None:
    """Units that are equal and stay so. What only starts equal (a last layer of zeros) comes apart at once."""
    parameters = dict(ModelNames(bench.model).parameters())
    named = [(layer, parameters[layer.name]) for stack in stacks(start.run) for layer in stack]
    equal = [(layer, p) for layer, p in named if _is_equal(layer, p, symmetry.EQUAL)]
    if not equal:
        return None
    dropped = _without_dropout(bench.model)
    for batch in islice(cycle(bench.train), UPDATES):
        bench.model.zero_grad(set_to_none=True)
        bench.subject.loss(batch).backward()
        nudge(bench.model)
    found = [(layer, not bool(p.any())) for layer, p in equal if _is_equal(layer, p, symmetry.STILL_EQUAL)]
    if not found:
        return None
    kind = "zero" if found[0][1] else "equal"
    return failed(
        f"all units of {listed([layer.name for layer, _ in found], 3)} start {kind} and still are after {UPDATES} "
        f"updates{' (without dropout)' if dropped else ''}, so each of these layers is worth a single unit",
        symmetry.RULE.name,
        Fix(
            "Start the weights at random; only biases may start at a constant.",
            initializer(start.run, [layer for layer, _ in found]),
        ),
        severity=Severity.WARNING if dropped else Severity.ERROR,
        evidence=tuple(
            f"{layer.name}: its {layer.units} units {'are all zero' if zero else 'have the same weights'}"
            for layer, zero in found[:3]
        ),
        where=tuple(Place(module=layer.module, parameter=layer.name) for layer, _ in found[:4]),
        layers=len(found),
    )


def _is_equal(layer: Layer, weight: Tensor, tolerance: float) -> bool:
    """Within each of the matrices that are stacked in one: gates of a recurrent cell, the three of an attention."""
    parts = next((n for kind, n in STACKED.items() if kind in layer.module_type and layer.name.count("weight_")), 1)
    parts = 3 if layer.name.endswith("in_proj_weight") else parts
    if layer.units < 2 * parts:
        return False
    return all(
        not bool(part.any()) or float(stats.unit_spread(part)) <= tolerance for part in weight.detach().chunk(parts)
    )


def _without_dropout(model: nn.Module) -> bool:
    """Switches it off, where units may differ by what was dropped alone; whether there is any."""
    found = [
        module
        for module in model.modules()
        if (isinstance(module, _DropoutNd) and module.p > 0)
        or (isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0)
    ]
    for module in found:
        module.training = False
    return bool(found)


def _too_large(bench: Bench, start: Start) -> Outcome | None:
    """By the rule's own reading of the first loss, beside the record of the loss's calls."""
    told = bench.outcomes.get("first-loss")
    if told is not None and told.passed is False:
        return _loud(start.run) if told.diagnosis == scale.RULE.name else None
    calls = wiring_of(bench).run
    both = replace(
        start.run,
        available=start.run.available | calls.available,
        load=lambda name, key: (calls if (name, key) in calls.available else start.run).load(name, key),
        seen=(*start.run.seen, *calls.seen),
        _cache={},
    )
    found = next(iter(consult(both, scale.RULE.name)), None)
    if found is None:
        return None
    broken = not all(map(math.isfinite, start.losses))
    return failed(
        found.title,
        found.name,
        found.fix,
        severity=Severity.ERROR if broken else Severity.WARNING,
        evidence=tuple(e.text for e in found.evidence),
        where=found.where,
        first_loss=start.losses[0],
    )


def _loud(run: Run) -> Outcome | None:
    """The cause of what first-loss has told already: a note."""
    gains = sorted(scale.layer_gains(run), key=lambda pair: -pair[1])
    loud = [(layer, gain) for layer, gain in gains if gain >= scale.LOUD]
    if not loud:
        return None
    return failed(
        f"{len(loud)} of {len(gains)} weight matrices start with gains of {figure(loud[-1][1])} to "
        f"{figure(loud[0][1])}, {USUAL}; first-loss tells what comes of it",
        scale.RULE.name,
        Fix("Scale the weights by their fan-in, as first-loss says."),
        severity=Severity.INFO,
        where=tuple(Place(module=layer.module, parameter=layer.name) for layer, _ in loud[:3]),
        highest_gain=loud[0][1],
    )


def _too_small(bench: Bench, start: Start) -> Outcome | None:
    """A signal that fades, and a loss that does not move in the first updates."""
    run = start.run
    gains = scale.layer_gains(run)
    product = math.prod(gain for _, gain in gains)
    normed = any(part in p.module_type for p in run.parameters.values() for part in scale.NORMS)
    if normed or len(gains) <= scale.QUIET_LAYERS or not 0 < product < scale.QUIET:
        return None
    if statistics.median(gain for _, gain in gains) > scale.FAINT:
        return None
    losses = train(bench, TRIED)
    few = len(bench.train[:TRIED])
    weights = dict(ModelNames(bench.model).parameters())
    grown = math.prod(_gain(weights[layer.name], layer) for layer, _ in gains) / product
    moved = abs(statistics.fmean(losses[-few:]) - statistics.fmean(start.losses)) / max(1e-12, abs(losses[0]))
    worst, gain = min(gains, key=lambda pair: pair[1])
    stuck = moved < STILL or grown < GROWN
    return failed(
        f"the weights start so small that over {len(gains)} layers the signal fades to {product:.0e} of itself"
        + (f", and {TRIED} updates change that by a factor of {grown:.2g}" if stuck else ""),
        scale.RULE.name,
        scale.remedy(run, gains),
        severity=Severity.WARNING if stuck else Severity.INFO,
        evidence=(
            f"product of the layers' gains (root mean square weight times sqrt(fan-in)): {product:.1e}; 1 keeps the "
            "scale",
            f"{worst.name}: gain {gain:.2g} at fan-in {worst.fan_in}",
        ),
        where=(Place(module=worst.module, parameter=worst.name),),
        product=product,
    )


def _gain(weight: Tensor, layer: Layer) -> float:
    return float(weight.detach().float().square().mean().sqrt()) * math.sqrt(layer.fan_in)


def _sane(bench: Bench, run: Run) -> Outcome:
    gains = sorted(gain for _, gain in scale.layer_gains(run))
    if not gains:
        return passed("units differ")
    told = bench.outcomes.get("first-loss")
    borne = ", and the first loss is as it should be all the same" if told is not None and told.passed else ""
    return passed(
        f"units differ, and gains are {figure(gains[0])} to {figure(gains[-1])} over {len(gains)} weight matrices"
        + (f", {USUAL}{borne}" if gains[-1] >= scale.LOUD else ""),
        lowest_gain=gains[0],
        highest_gain=gains[-1],
    )
