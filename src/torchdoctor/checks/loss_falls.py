"""One update by the training's own optimizer lowers the loss of the batch that it was made from."""

from __future__ import annotations

import math

from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, said_before, skipped
from torchdoctor.checks.model.chance import measure
from torchdoctor.checks.model.descent import Slope, is_nothing
from torchdoctor.checks.model.loss_wiring import Wiring, wiring_of
from torchdoctor.facts import GraphFact
from torchdoctor.findings import Fix, Severity
from torchdoctor.rules.baseline import NOT_NEGATIVE
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data import unnormalized_inputs
from torchdoctor.rules.loss_graph import LossGraph
from torchdoctor.rules.procedure.loss_sign_flipped import signs_below

CHECK = Check(
    name="loss-falls",
    asks="one update lowers the loss of its own batch",
    part=PROCEDURE,
    order=60,
    diagnoses=(
        "learning-rate-too-high",
        "loss-sign-flipped",
        "no-parameter-update",
        "parameters-not-optimized",
        "disconnected-parameters",
    ),
)

UPDATES = 10
"""On one batch, after which a rate that is merely bold has gone below where it began."""
THROWN = 2.0
"""Times the first loss after these updates from which on nothing will be learned."""


JUMP = 10.0
"""Times the first loss to which one update may lift it at the most, even where units that are saturated by it have then
learned the batch by heart."""


def perform(bench: Bench) -> Outcome:
    wiring = wiring_of(bench)
    if wiring.error is not None or wiring.backward_error is not None:
        return skipped("the loss or its backward fails; output-shape says why")
    warmed = _leave_zero_rates(bench)
    slope = Slope.of(bench, bench.train[0])
    if not math.isfinite(slope.loss):
        return skipped("the first loss is not a number; first-loss says why")
    if not slope.attached or not slope.size > 0:
        return _without_gradient(bench, slope)
    if not math.isfinite(slope.size):
        return skipped("the first gradient holds NaN or Inf")
    sign = -1.0 if _is_negated(bench, wiring, slope.loss) else 1.0
    if not bench.optimizers:
        return _by_gradient(slope, sign)
    update = slope.update()
    if is_nothing(update):
        return _unchanged(bench, slope)
    after = slope.along(update, 1.0)
    if abs(after - slope.loss) <= slope.resolution and slope.rise_along(update) * sign < 0:
        return passed(f"an update goes down, by less than a loss of {figure(slope.loss)} can show", loss=slope.loss)
    if sign * (slope.loss - after) > 0:
        return passed(f"{_way(slope.loss, after)} in one update{_by(bench, warmed)}", loss=slope.loss, after=after)
    return _explain(bench, slope, update, after, sign, warmed)


def _explain(bench: Bench, slope: Slope, update: list[Tensor], after: float, sign: float, warmed: bool) -> Outcome:
    """Why the loss did not fall: too long a step, a step that climbs, or a gradient that is none."""
    if sign < 0:
        return _negated(slope, after)
    if len(bench.optimizers) > 1:
        return skipped("several optimizers: which of them is to lower this loss is not known")
    fraction = slope.fraction(update)
    if fraction is not None:
        return _too_long(bench, slope, update, after, fraction, warmed)
    if slope.falls_along(-1.0):
        return _climbs(bench, slope, update, after)
    if slope.falls_along(1.0):
        return _points_up(slope)
    return skipped(f"no small step changes a loss of {figure(slope.loss)} by more than rounding")


def _points_up(slope: Slope) -> Outcome:
    return failed(
        f"the gradient points the wrong way: a small step along it should raise the loss of {figure(slope.loss)}, and "
        "lowers it",
        "loss-sign-flipped",
        Fix(
            "Check every backward that is written by hand (torch.autograd.Function, hooks, gradient reversal).",
            "torch.autograd.gradcheck(MyFunction.apply, (x.double().requires_grad_(),))",
        ),
        loss=slope.loss,
    )


def _too_long(bench: Bench, slope: Slope, update: list[Tensor], after: float, fraction: float, warmed: bool) -> Outcome:
    tamed = slope.is_tamed(update)
    slope.go(update)
    later = _train(slope, UPDATES - 1)
    figures = {"loss": slope.loss, "after": after, "later": later, "fraction": fraction}
    jumped = after > JUMP * abs(slope.loss)
    if later < slope.loss and not jumped:
        return passed(
            f"the first update lifts it from {figure(slope.loss)} to {figure(after)}, but {UPDATES} of them bring it "
            f"to {figure(later)}",
            **figures,
        )
    if warmed:
        return passed(
            f"at the full rate the first update would lift it from {figure(slope.loss)} to {figure(after)}; the "
            "warm-up begins below",
            **figures,
        )
    rate = _rate(bench)
    smaller = rate * fraction
    thrown = not math.isfinite(later) or later > THROWN * abs(slope.loss)
    came_to = after if jumped and later < slope.loss else later
    now = "NaN" if math.isnan(came_to) else figure(came_to)
    count = "one update" if came_to is after else f"{UPDATES} updates on one and the same batch"
    unscaled = said_before(bench, unnormalized_inputs.RULE.name, Severity.WARNING)
    lower = Fix(
        f"Lower the learning rate to about {smaller:.0e}, or warm up to it.",
        f"optimizer = torch.optim.{type(bench.optimizers[0]).__name__}(model.parameters(), lr={smaller:.0e})",
    )
    return failed(
        f"{count} take{'s' * (came_to is after)} its loss from {figure(slope.loss)} to {now}{_by(bench, False)}; the "
        f"first lowers it only if it is {figure(1 / fraction)} times shorter"
        + (f"; the data are to be scaled first, as {unscaled[0]} says" if unscaled else ""),
        "learning-rate-too-high",
        unscaled[1].fix or lower if unscaled else lower,
        severity=unscaled[1].severity if unscaled else Severity.ERROR if thrown and not tamed else Severity.WARNING,
        consequence_of=unnormalized_inputs.RULE.name if unscaled else None,
        evidence=("without clipping: with gradients clipped to a norm of 1 the update would do",) if tamed else (),
        **figures,
    )


def _train(slope: Slope, updates: int) -> float:
    """The loss after so many further updates."""
    for _ in range(updates):
        loss = float(slope.backward().detach())
        if not math.isfinite(loss):
            return loss
        slope.step()
    return slope.value()


def _climbs(bench: Bench, slope: Slope, update: list[Tensor], after: float) -> Outcome:
    groups = [group for o in bench.optimizers for group in o.param_groups]
    figures = {"loss": slope.loss, "after": after, "cosine": slope.rise_along(update)}
    text = f"the update climbs: it takes the loss from {figure(slope.loss)} to {figure(after)}"
    kind = type(bench.optimizers[0]).__name__
    built = f"optimizer = torch.optim.{kind}(model.parameters(), lr={abs(_rate(bench)):g})"
    if any(group.get("maximize") for group in groups):
        fix = Fix("Build the optimizer without maximize=True.", built)
        return failed(f"{text}, as {kind} has maximize=True", "loss-sign-flipped", fix, **figures)
    if any(float(group["lr"]) < 0 for group in groups):
        fix = Fix("Keep the rate above zero.", built)
        return failed(f"{text}, as the learning rate is {_rate(bench):g}", "loss-sign-flipped", fix, **figures)
    if slope.rise_along(update) > 0:
        fix = Fix("Look at what the optimizer, or a hook on the gradients, does to their sign.")
        return failed(f"{text}, against the gradient", "loss-sign-flipped", fix, **figures)
    fix = Fix("Try a plain optimizer first.", "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)")
    return failed(
        f"{text}, and no part of it lowers the loss, though a step along the negative gradient does",
        None,
        fix,
        severity=Severity.WARNING,
        **figures,
    )


def _negated(slope: Slope, after: float) -> Outcome:
    return failed(
        f"the criterion stands in the loss with its sign turned: an update takes the loss from {figure(slope.loss)} "
        f"to {figure(after)}, and so makes the predictions worse",
        "loss-sign-flipped",
        Fix("Give backward the criterion itself, without the minus sign.", "loss = -loss\nloss.backward()"),
        loss=slope.loss,
        after=after,
    )


def _is_negated(bench: Bench, wiring: Wiring, first: float) -> bool:
    """Only ever under a minus: by the graph, or by a loss below zero made of one that is never."""
    fact = wiring.run.last_fact(GraphFact)
    graph = LossGraph(fact) if fact is not None else None
    signs = signs_below(graph) if graph is not None else []
    if signs and 0 not in signs:
        return all(sign < 0 for sign in signs)
    if first >= 0 or graph is None or graph.has_several_terms:
        return False
    calls = measure(bench, wiring.looks[:1])
    return len(calls) == 1 and calls[0].function in NOT_NEGATIVE and calls[0].loss > 0


def _by_gradient(slope: Slope, sign: float) -> Outcome:
    if sign < 0:
        return _negated(slope, slope.along(slope.gradient, -1e-3))
    if slope.falls_along(-1.0):
        return passed("a small step along the negative gradient lowers it; no optimizer was handed over")
    if slope.falls_along(1.0):
        return _points_up(slope)
    return skipped(f"no small step changes a loss of {figure(slope.loss)} by more than rounding")


def _without_gradient(bench: Bench, slope: Slope) -> Outcome:
    before = bench.outcomes.get("gradients-reach")
    if before is not None and before.passed is False:
        return skipped("no gradient arrives; gradients-reach says why")
    what = "has no graph: it was detached on the way" if not slope.attached else "has a gradient of zero everywhere"
    return failed(
        f"the loss of the first batch ({figure(slope.loss)}) {what}, so no update can lower it",
        "disconnected-parameters",
        Fix(
            "Look for detach(), .item(), .data, argmax, numpy() or torch.no_grad() between model and loss.",
            "print(outputs.requires_grad, loss.requires_grad)",
        ),
        loss=slope.loss,
    )


def _unchanged(bench: Bench, slope: Slope) -> Outcome:
    held = {id(p) for o in bench.optimizers for group in o.param_groups for p in group["params"]}
    if not any(id(p) in held for p in bench.model.parameters()):
        return failed(
            "the optimizer holds none of the model's parameters: its own are another model's, or an earlier copy's",
            "parameters-not-optimized",
            Fix(
                "Build the optimizer after the model is complete and on its device.",
                "model.to(device); optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
            ),
        )
    return failed(
        f"an update changes no parameter{_by(bench, False)}",
        "no-parameter-update",
        Fix(
            "Give the optimizer a rate that moves the weights.",
            "for group in optimizer.param_groups: group['lr'] = 1e-3",
        ),
        rate=_rate(bench),
    )


def _leave_zero_rates(bench: Bench) -> bool:
    """A schedule that warms up begins at zero: the rate that it will come to is taken instead."""
    warmed = False
    for group in (group for o in bench.optimizers for group in o.param_groups):
        if float(group.get("lr", 1.0)) == 0 and float(group.get("initial_lr", 0.0)) > 0:
            group["lr"], warmed = group["initial_lr"], True
    return warmed


def _way(first: float, after: float) -> str:
    """Both with as many digits as it takes to tell them apart."""
    digits = next((n for n in range(3, 9) if f"{first:.{n}g}" != f"{after:.{n}g}"), 9)
    return f"from {first:.{digits}g} to {after:.{digits}g}"


def _rate(bench: Bench) -> float:
    rates = [float(group["lr"]) for o in bench.optimizers for group in o.param_groups if "lr" in group]
    return max(rates, key=abs, default=0.0)


def _by(bench: Bench, warmed: bool) -> str:
    kinds = " and ".join(dict.fromkeys(type(o).__name__ for o in bench.optimizers))
    return f" by {kinds} at rate {_rate(bench):g}{', that of the end of the warm-up' if warmed else ''}"
