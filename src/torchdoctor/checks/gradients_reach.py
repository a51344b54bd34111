"""Gradients reach every trainable parameter, are finite, and neither vanish nor explode on their way."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import cycle, islice
from types import CellType
from typing import Any

import torch
from torch import nn

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, skipped
from torchdoctor.checks.model.cuts import FLAT, Cut, look_for_cut
from torchdoctor.checks.model.gradient_profile import judge_profile, summarise
from torchdoctor.checks.model.loss_wiring import as_written, consult
from torchdoctor.checks.model.records import outcome_of
from torchdoctor.checks.model.start import ModelNames, Notes, Start, start_of
from torchdoctor.checks.repeats.updating import nudge
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.tables import listed
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import walk
from torchdoctor.probes.operations import OperationProbe
from torchdoctor.rules.architecture import disconnected_parameters as rule
from torchdoctor.rules.architecture import vanishing_gradients
from torchdoctor.rules.architecture.depth import is_matrix
from torchdoctor.run import Run

CHECK = Check(
    name="gradients-reach",
    asks="gradients reach every trainable parameter and keep their scale",
    part=MODEL,
    order=50,
    diagnoses=(
        *("disconnected-parameters", "frozen-parameters", "parameters-not-optimized"),
        *("vanishing-gradients", "exploding-gradients"),
        *("sqrt-at-zero", "log-of-zero", "division-by-zero", "exp-overflow", "half-precision-overflow"),
    ),
)
NUMERICS = ("sqrt-at-zero", "log-of-zero", "division-by-zero", "exp-overflow", "half-precision-overflow")
SHOWN = 4
EMPTY = CellType()
"""Of a name that a function will know later."""
TRIED = 4
"""Small updates after which a gradient that was zero only because the next weights were is no longer."""


def perform(bench: Bench) -> Outcome:
    trainable = [name for name, p in ModelNames(bench.model).parameters() if p.requires_grad]
    if not trainable:
        return failed(
            "no parameter of the model requires a gradient, so nothing can be trained",
            "frozen-parameters",
            Fix("Let the parts that are to be trained require gradients.", "model.requires_grad_(True)"),
        )
    if not bench.train:
        return skipped("there is no batch to look at")
    start = start_of(bench)
    if start.broken or not all(map(math.isfinite, start.losses)):
        return _not_finite(bench, start)
    if start.missing:
        return _detached(bench, start, len(trainable))
    if (outcome := _strays(bench, start)) is not None:
        return outcome
    if (outcome := _zeros(bench, start)) is not None:
        return outcome
    return judge_profile(bench, start) or summarise(start, len(trainable))


def _not_finite(bench: Bench, start: Start) -> Outcome:
    bad = [number for number, loss in enumerate(start.losses) if not math.isfinite(loss)]
    found = consult(_with_operations(bench, start, bad[0] if bad else None), *NUMERICS) if start.finite_inputs else []
    if found:
        return outcome_of(found[0])
    if bad:
        return skipped(f"the loss of {len(bad)} of the first {len(start.losses)} batches is not finite")
    return failed(
        f"the loss is finite, but the gradient holds NaN or Inf in {len(start.broken)} parameters: "
        f"{listed(start.broken, SHOWN)}",
        None,
        Fix(
            "Find the operation whose gradient is not finite, and keep its input away from the edge.",
            "with torch.autograd.detect_anomaly():\n    loss_fn(model(x), y).backward()",
        ),
        where=_places(start.broken),
    )


def _with_operations(bench: Bench, start: Start, number: int | None) -> Run:
    """The record, and what the operations at risk kept of the batch of that number, or of each."""
    notes = Notes()
    context = Context(notes, ModelNames(bench.model), lambda tensor, use: use(tensor.detach().cpu().numpy()))
    probe = OperationProbe(context)
    for step, batch in enumerate(islice(cycle(bench.train), len(start.losses))):
        if number is not None and step != number:
            continue
        context.step = step if number is not None else 0
        with as_written():
            loss = bench.subject.loss(batch)
        graph = walk(loss) if loss.requires_grad else None
        if graph is not None and bool(loss.detach().isfinite()):
            probe.look(loss, graph)
        elif graph is not None:
            probe.trace(loss)
    return replace(start.run, seen=(*start.run.seen, *notes.run(len(start.losses)).seen), _cache={})


def _detached(bench: Bench, start: Start, count: int) -> Outcome:
    run, lost = start.run, start.missing
    trained = set(run.parameters) - set(lost)
    modules = rule.modules_of(lost)
    cut = look_for_cut(bench, modules, bench.train[0])
    share = rule.size_of(run, lost) / max(1, rule.size_of(run, [*lost, *trained]))
    is_cut = len(lost) == count or rule.runs_before(run, lost, trained)
    small = share < rule.SMALL or all(rule.POOLER in name.lower() for name in lost)
    one, how = len(modules) == 1, _told(bench, modules, cut)
    evidence = [how, *(f"{word} at {place} drops the history of a tensor" for word, place in cut.places[:2] if is_cut)]
    lacking = f"{_named(bench, modules)} {'gets' if one else 'get'} no gradient"
    return failed(
        f"{lacking} ({share:.0%} of the trainable weights): {how}",
        rule.RULE.name,
        Fix(
            "Use these modules in forward, remove them, or freeze them with requires_grad_(False)."
            if cut.unused
            else "Find the detach, no_grad, .data, .item() or numpy step around or after these modules and remove it.",
            "print([n for n, p in model.named_parameters() if p.requires_grad and p.grad is None])"
            if cut.unused
            else "assert out.grad_fn is not None  # after each of these modules; the first that fails is the cut",
        ),
        severity=Severity.ERROR if is_cut else Severity.INFO if small else Severity.WARNING,
        evidence=tuple(evidence),
        where=(
            *(Place(file=place.file, line=place.line) for _, place in cut.places[:1] if place is not None and is_cut),
            *_places(lost),
        ),
        missing=len(lost),
        share=share,
    )


def _told(bench: Bench, modules: list[str], cut: Cut) -> str:
    """How their gradient is lost."""
    they = "it" if len(modules) == 1 else "they"
    if cut.unused:
        return f"forward never calls {_named(bench, cut.unused)}"
    if cut.silent:
        who = they if cut.silent == modules else _named(bench, cut.silent)
        runs = "runs" if len(cut.silent) == 1 else "run"
        return f"{who} {runs} where no graph is recorded (torch.no_grad, or an input that has none)"
    return f"what {they} compute{'s' * (they == 'it')} is cut off on its way to the loss, or not used"


def _strays(bench: Bench, start: Start) -> Outcome | None:
    """Parameters that nobody trains: of modules in a plain list or dict, which the model uses, or of the loss."""
    held = {id(p) for optimizer in bench.optimizers for group in optimizer.param_groups for p in group["params"]}
    loose = [p for p in start.strays if id(p) not in held]
    if not loose or not bench.optimizers:
        return None
    many = "one parameter" if len(loose) == 1 else f"{len(loose)} parameters"
    shapes = f"of shape{'s' * (len(loose) > 1)} {listed([str(tuple(p.shape)) for p in loose], SHOWN)}"
    parts = [part for part in _losses_of(bench) if {id(p) for p in part.parameters()} & {id(p) for p in loose}]
    if parts and not any(module.training for part in parts for module in part.modules()):
        return None  # a fixed critic, as of a perceptual loss
    of_loss = {id(p) for part in parts for p in part.parameters()}
    if all(id(p) in of_loss for p in loose):
        rate, kind = _rate(bench), type(bench.optimizers[0]).__name__
        return failed(
            f"the loss function has {many} of its own ({shapes}) that no optimizer holds, so the loss is not trained",
            "parameters-not-optimized",
            Fix(
                "Give them to the optimizer, too; freeze them with requires_grad_(False) where they are to stay.",
                f"optimizer = torch.optim.{kind}([*model.parameters(), *loss_fn.parameters()]{rate})",
            ),
            severity=Severity.WARNING,
            strays=len(loose),
        )
    return failed(
        f"the loss depends on {many} that neither the model nor an optimizer holds, {shapes}",
        "parameters-not-optimized",
        Fix(
            "Keep submodules in nn.ModuleList or nn.ModuleDict instead of a plain list or dict.",
            "self.layers = nn.ModuleList(layers)",
        ),
        strays=len(loose),
    )


def _losses_of(bench: Bench) -> list[nn.Module]:
    """The loss where it is a module, and modules beside the model that the step holds or names."""
    subject = bench.subject
    found: list[Any] = [subject.loss_fn]
    for way in (subject.loss_fn, subject.step_fn):
        code = getattr(way, "__code__", None)
        found += [cell.cell_contents for cell in getattr(way, "__closure__", None) or () if cell != EMPTY]
        found += [way.__globals__.get(name) for name in code.co_names] if code is not None and way is not None else []
    return [part for part in found if isinstance(part, nn.Module) and part is not bench.model]


def _rate(bench: Bench) -> str:
    rate = bench.optimizers[0].param_groups[0].get("lr")
    return f", lr={float(rate):g}" if rate is not None else ""


def _named(bench: Bench, modules: list[str]) -> str:
    """With their kinds: in a Sequential a name is a number."""
    kinds = {clean(name): type(module).__name__ for name, module in bench.model.named_modules()}
    return listed([f"{m or 'the model'} ({kinds[m]})" if m in kinds else m for m in modules], SHOWN)


def _zeros(bench: Bench, start: Start) -> Outcome | None:
    """Weight matrices whose gradient is exactly zero, and stays so when the others have moved a little."""
    run = start.run
    zero = [n for n in start.zero if n in run.parameters and is_matrix(run.parameters[n])]
    operators: set[str] = set()
    for batch in islice(cycle(bench.train), TRIED if zero else 0):
        bench.model.zero_grad(set_to_none=True)
        loss = bench.subject.loss(batch)
        graph = walk(loss)
        operators |= set(graph.operators) if graph is not None else set()
        loss.backward()
        nudge(bench.model)
        parameters = dict(ModelNames(bench.model).parameters())
        zero = [n for n in zero if (g := parameters[n].grad) is None or not bool(torch.any(g != 0))]
    if not zero:
        return None
    share = rule.size_of(run, zero) / max(1, rule.size_of(run, list(run.parameters)))
    flat = sorted(name.partition("Backward")[0].lower() for name in operators.intersection(FLAT))
    before = (bench.outcomes.get(name) for name in ("initialisation", "activation-health"))
    told = any(outcome is not None and outcome.passed is False for outcome in before)
    why = f"{' and '.join(flat)} has no slope" if flat else "units that are dead or saturated pass none"
    return failed(
        f"the gradient of {listed(zero, SHOWN)} is exactly zero for every batch ({share:.0%} of the trainable "
        f"weights): {why}",
        rule.RULE.name if flat else vanishing_gradients.RULE.name,
        Fix("Pass the gradient straight through it.", f"y = x + (torch.{flat[0]}(x) - x).detach()")
        if flat
        else vanishing_gradients.remedy(vanishing_gradients.activations_on_the_way(run)),
        severity=Severity.INFO if share < rule.SMALL or told else Severity.ERROR,
        evidence=(f"they are zero over {len(start.losses)} batches, and over {TRIED} small updates of the others",),
        where=_places(zero),
        zero=len(zero),
    )


def _places(names: list[str]) -> tuple[Place, ...]:
    return tuple(Place(module=n.rpartition(".")[0] or None, parameter=n) for n in names[:SHOWN])
