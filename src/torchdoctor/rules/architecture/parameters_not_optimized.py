"""Trainable parameters that no optimizer holds.

## What it means
The loss depends on these parameters and gradients are computed for them, but no optimizer will ever apply those. They
keep their random start values while the rest of the model works around them.

## Why it happens
- Submodules kept in a plain Python list or dict: `parameters()` does not find them; `nn.ModuleList` would.
- The optimizer was built before a layer was added or replaced, or before the model was built anew: it holds the old
  tensors.
- The optimizer was given one part only (`model.head.parameters()`), or one of several models was forgotten.

## How it is detected
By identity: the tensors that receive gradients are compared with those registered in modules and those that optimizers
hold. Four cases: parameters that no module registers; an optimizer that holds tensors no model uses any more; layers
with gradients that no optimizer holds although they were never loaded from a checkpoint (all three are errors); and the
same for pretrained layers, where training only a head is common (information: freeze them and save the work).

## How to fix it
Keep submodules in `nn.ModuleList` or `nn.ModuleDict`; build the optimizer after the model is complete, from
`model.parameters()`; with several models chain their parameters. What should stay fixed gets `requires_grad_(False)`.

## Known false alarms
Optimizing an input through a fixed network (style transfer, adversarial examples), parameters that are updated by hand,
and fixed critics in eval mode (perceptual losses) are not reported. A randomly initialised part that is meant to stay
random and was not frozen would be.

## References
PyTorch documentation, torch.nn.ModuleList and torch.optim ("Constructing it").
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from torchdoctor.facts import CallSiteFact, ModelFact, ModesFact, OptimizerFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import movement
from torchdoctor.rules.architecture.depth import reference
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="A008",
    name="parameters-not-optimized",
    family="architecture",
    needs=(WiringFact,),
    explains=(
        "no-parameter-update",
        "disconnected-parameters",
        "missing-zero-grad",
        "learning-rate-too-low",
        "vanishing-gradients",
        "symmetric-initialization",
        "underfitting",
        "capacity-too-low",
        "plateau-or-saddle",
    ),
)

MIN_UPDATES = 2
ASSIGNED = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")
STEPPED = re.compile(r"(?:^|[;:\s])([A-Za-z_][\w.]*)\.step\(\s*\)")


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    wiring = run.last_fact(WiringFact)
    if wiring is None or wiring.updates < MIN_UPDATES or not run.optimizers:
        return
    by_hand = set(wiring.changed_outside)
    used = [n for n in wiring.used if n not in by_hand]
    unregistered = [n for n in wiring.unregistered if n not in by_hand]
    held = set(run.parameters) - {*wiring.frozen, *wiring.unheld}
    of_modules = {n for n in held if run.parameters[n].module_type}
    if unregistered:
        yield _unregistered(run, unregistered)
    elif used and wiring.stale:
        yield _stale(run, used, wiring.stale)
    elif used and of_modules and not _were_held_before(run, wiring):
        yield _forgotten(run, wiring, used)
    elif held and run.optimizers and not wiring.unheld:
        yield RuledOut(RULE.name, f"optimizers hold all {len(held)} trainable parameters")


def _were_held_before(run: Run, wiring: WiringFact) -> bool:
    """All optimizers of the run together held as many tensors as there are to train: of several models trained one
    after the other (folds, stages, an ensemble) the earlier ones' optimizers are gone."""
    to_train = wiring.total - len({*wiring.frozen, *(wiring.loaded or ())})
    return len(run.optimizers) > 1 and sum(o.parameters for o in run.optimizers.values()) >= to_train


def _unregistered(run: Run, names: list[str]) -> Finding:
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.95,
        proof=Proof.STRUCTURE,
        title=f"{len(names)} parameters belong to no module and no optimizer: {_shown(names)}",
        summary="The loss depends on layers that the model does not register, typically because they are kept in a "
        "plain Python list. model.parameters() does not return them, so they are never trained, saved or moved.",
        where=_places(run, names),
        evidence=[
            Evidence(f"got gradients, but no module holds them: {_shown(names, 6)}", "wiring", float(len(names)))
        ],
        fix=Fix(
            "Keep the submodules in an nn.ModuleList (or ModuleDict), then build the optimizer.",
            "self.layers = nn.ModuleList(layers)  # instead of self.layers = layers",
        ),
        symptoms=("flat-from-start",),
    )


def _stale(run: Run, used: list[str], stale: int) -> Finding:
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.97,
        proof=Proof.STRUCTURE,
        title=f"the optimizer holds {stale} old tensors instead of {_shown(used)}",
        summary="The optimizer was built on parameters that the model no longer uses: the model, or a layer of it, was "
        "made or replaced afterwards. The layers that compute the loss are never updated.",
        where=[*_optimizer_places(run), *_places(run, used)],
        evidence=[
            Evidence(
                f"{stale} tensors in the optimizer never get a gradient and belong to no model that runs", "wiring"
            ),
            Evidence(f"{len(used)} parameters get gradients and no optimizer holds them: {_shown(used, 6)}", "wiring"),
        ],
        fix=Fix(
            "Build the optimizer after the model is complete.",
            _constructor(run, "model.parameters()") + "  # after the last change to the model",
        ),
        symptoms=("flat-from-start",),
    )


def _forgotten(run: Run, wiring: WiringFact, used: list[str]) -> Finding:
    pretrained = wiring.loaded is not None and set(used) <= set(wiring.loaded)
    fixed = _is_fixed_critic(run, used)
    total = _size(run, list(run.parameters))
    share = _size(run, used) / max(1, total)
    if pretrained or fixed:
        severity, confidence = Severity.INFO, 0.7
    elif wiring.loaded is None:
        severity, confidence = Severity.WARNING, 0.8
    else:
        severity, confidence = Severity.ERROR, 0.95
    parts = list(dict.fromkeys(n.partition(".")[0] for n in used))
    summary = (
        "These pretrained layers are left out of the optimizer without being frozen: they stay fixed, but gradients "
        "are computed for them all the same."
        if severity is Severity.INFO
        else "The loss depends on these layers and gradients are computed for them, but no optimizer applies those: "
        "they keep the values they started with."
    )
    return RULE.finding(
        severity=severity,
        confidence=confidence,
        proof=Proof.STRUCTURE,
        title=f"no optimizer holds {_shown(parts)} ({share:.0%} of the parameters)",
        summary=summary,
        where=[*_optimizer_places(run), *_places(run, used)],
        evidence=[
            Evidence(
                f"{len(used)} parameters get gradients and are in no optimizer: {_shown(used, 6)}", "wiring", share
            )
        ],
        fix=Fix("Freeze them, which also saves their gradients.", f"{_owner(run, parts[0])}.requires_grad_(False)")
        if severity is Severity.INFO
        else Fix("Give these parameters to the optimizer as well.", _repair(run, used)),
        symptoms=() if severity is Severity.INFO else ("flat-from-start",),
    )


def _is_fixed_critic(run: Run, used: Sequence[str]) -> bool:
    """All of them belong to whole models that are in eval mode in training passes, beside the one that learns."""
    models = [f.name for f in run.facts(ModelFact)]
    owners = {next((m for m in models if n.startswith(f"{m}.")), None) for n in used}
    evaluated = {f.model for f in run.facts(ModesFact) if not f.training}
    training = {f.model for f in run.facts(ModesFact) if f.training}
    return len(models) > 1 and None not in owners and all(o in evaluated and o not in training for o in owners)


def _repair(run: Run, used: Sequence[str]) -> str:
    """Add a group: the optimizer that is there may hold groups with options of their own."""
    optimizer = next(iter(run.optimizers.values()))
    models = {f.name for f in run.facts(ModelFact)}
    parts = list(dict.fromkeys(_part(run, name, set(used)) for name in used))
    written = [reference(part) if part.partition(".")[0] not in models else _of_model(part) for part in parts]
    held = [
        f"*{words}.parameters()" if part not in run.parameters else words
        for part, words in zip(parts, written, strict=True)
    ]
    return f'{_variable(run, optimizer)}.add_param_group({{"params": [{", ".join(held)}]}})'


def _part(run: Run, name: str, used: set[str]) -> str:
    """The outermost module around a parameter all of whose parameters are used; the parameter itself where none is."""
    words = name.split(".")
    for depth in range(1, len(words)):
        prefix = ".".join(words[:depth])
        if used.issuperset(n for n in run.parameters if n.startswith(f"{prefix}.")):
            return prefix
    return name


def _of_model(part: str) -> str:
    """A part of one of several models, whose names begin with the model's own."""
    return reference(part).removeprefix("model.")


def _constructor(run: Run, parameters: str) -> str:
    optimizer = next(iter(run.optimizers.values()))
    rate = next((r for r in map(movement.initial_rate, optimizer.groups) if r is not None), None)
    given = f", lr={rate:g}" if rate is not None else ""
    others = movement.other_arguments(optimizer)
    return f"{_variable(run, optimizer)} = torch.optim.{optimizer.type}({parameters}{given}{others})"


def _variable(run: Run, optimizer: OptimizerFact) -> str:
    """The user's own name for it, where a recorded line of theirs shows it."""
    sites = run.facts(CallSiteFact)
    made = [ASSIGNED.match(s.code) for s in sites if (s.file, s.line) == (optimizer.file, optimizer.line)]
    stepped = [STEPPED.search(s.code) for s in sites if s.call == "step"] if len(run.optimizers) == 1 else []
    names = {m[1] for m in (list(filter(None, made)) or list(filter(None, stepped)))}
    return names.pop() if len(names) == 1 else "optimizer"


def _owner(run: Run, part: str) -> str:
    return part if part in {f.name for f in run.facts(ModelFact)} else f"model.{part}"


def _optimizer_places(run: Run) -> list[Place]:
    return [p for o in run.optimizers.values() for p in known(Place(file=o.file, line=o.line))]


def _places(run: Run, names: Sequence[str]) -> list[Place]:
    return [Place(module=run.parameters[n].module if n in run.parameters else None, parameter=n) for n in names[:4]]


def _size(run: Run, names: Sequence[str]) -> int:
    return sum(math.prod(run.parameters[n].shape) for n in names if n in run.parameters)


def _shown(names: Sequence[str], most: int = 3) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join(chain(names[:most])) + (" " + more[0] if more else "")
