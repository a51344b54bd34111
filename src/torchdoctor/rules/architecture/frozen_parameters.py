"""Parameters do not require gradients although they should train.

## What it means
A parameter with `requires_grad=False` gets no gradient and stays as it is. That is right for a pretrained body under a
new head. It is wrong where the frozen part holds random numbers, where an optimizer was given a group of its own for
it, or where nothing that matters is left to train.

## Why it happens
- Layers are frozen for a first stage (training the head) and never thawed for the second.
- The body was frozen, but the pretrained weights never got into it: a path that does not exist, `strict=False` with
  keys that do not match, a line that was lost.
- Everything is frozen after the new head was put in, so that the head is frozen, too; or only its bias was thawed.
- `requires_grad_(False)` in a helper (evaluation, saliency, a generator's step) that nobody takes back.

## How it is detected
By state, whenever an optimizer is about to step: which parameters require no gradient, which group holds them, and
whether their values still have exactly the spread of torch's own initialisation (to within four standard errors, and
inside its bounds), which trained weights do not keep. It is an error if backward fails because nothing requires
gradients, or all that an optimizer holds is frozen; a warning if a group with a learning rate of its own is all frozen,
if at least a tenth of the model (or its last layer) is frozen as it was initialised, if a later stage's optimizer
holds again what an earlier one left out and it is frozen still, or if a bias trains and its own weight does not.

## How to fix it
Call `requires_grad_(True)` on the part before the stage in which it should train. Where pretrained weights were meant,
look at what `load_state_dict` returns: missing and unexpected keys.

## Known false alarms
A frozen body whose weights were loaded or trained before is deliberate and not reported, whatever its share. Teachers,
targets and moving averages are left out: they have the shapes of a part that trains, change without an optimizer, or
say so by name. Random features that are meant to stay random are reported unless their name says random, fixed,
reservoir or fourier, or they are scaled in their own way. Layers thawed one after the other are reported only at the
end or after 300 updates.

## References
Yosinski et al., "How transferable are features in deep neural networks?" (2014). PyTorch documentation, "Autograd
mechanics: Setting requires_grad"; torch.nn.Module.load_state_dict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from torchdoctor.facts import FrozenFact, ModelFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.architecture.depth import reference
from torchdoctor.rules.places import call_places, known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="A016",
    name="frozen-parameters",
    family="architecture",
    needs=(WiringFact,),
    explains=(
        "no-parameter-update",
        "disconnected-parameters",
        "parameters-not-optimized",
        "learning-rate-too-low",
        "vanishing-gradients",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "majority-class-collapse",
        "representation-collapse",
        "frozen-layers-change",
    ),
)

SHARE = 0.1
"""Of the weights; smaller frozen parts (position tables, masks) are usual."""
LATE = 300
"""Updates after which a stage that thaws more layers would have come."""
ALL_BUT = 0.99
ON_PURPOSE = re.compile(r"random|fixed|reservoir|fourier|rff|target|teacher|momentum|frozen|(^|[._])ema([._]|$)", re.I)
NO_GRADIENT = "does not require grad"
"""From torch's message when backward is called on a loss that depends on nothing trainable."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    wiring = run.last_fact(WiringFact)
    if wiring is None:
        return
    frozen = {n for n in wiring.frozen if n not in wiring.frozen_changed}
    facts = {f.optimizer: f for f in run.facts(FrozenFact)}
    failure = run.info.get("exception") or {}
    if frozen and NO_GRADIENT in str(failure.get("message", "")) and len(frozen) >= ALL_BUT * wiring.total:
        yield _everything(run, sorted(frozen), wiring.total)
        return
    if not wiring.frozen:
        if wiring.total:
            yield RuledOut(RULE.name, f"all {wiring.total} parameters require gradients", "wiring", 0.0)
        return
    still = {k: f for k, f in facts.items() if f.frozen}
    fresh = _fresh(run, frozen, still.values())
    said = None
    if run.finished or run.steps >= LATE:
        said = _idle_group(run, still) or _held_again(run, still, frozen)
    said = said or (_untrained(run, fresh, frozen) if fresh else None) or _lone_bias(run, frozen)
    if said is not None:
        yield said


def _everything(run: Run, frozen: list[str], total: int) -> Finding:
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.98,
        proof=Proof.STRUCTURE,
        title=f"all {total} parameters are frozen: there is nothing for backward to do",
        summary="No parameter of the model requires gradients, so the loss depends on nothing that can be trained and "
        "backward fails.",
        where=known(*call_places(run, "backward"), *_places(run, frozen)),
        evidence=[Evidence(f"{len(frozen)} of {total} parameters have requires_grad=False", "wiring", float(total))],
        fix=Fix("Thaw what should train before the optimizer is built.", _thaw(run, frozen, whole=True)),
        symptoms=("flat-from-start",),
    )


def _idle_group(run: Run, facts: dict[str, FrozenFact]) -> Finding | None:
    """A group (or a whole optimizer) that holds nothing but frozen parameters, at a rate nobody else has."""
    for key, fact in facts.items():
        idle = [g for g in fact.groups if g["parameters"] and g["frozen"] == g["parameters"] and g["lr"]]
        rates = {g["lr"] for g in fact.groups if g["parameters"] and g["frozen"] < g["parameters"]}
        own = [g for g in idle if g["lr"] not in rates]
        if not own:
            continue
        group, whole = own[0], not rates
        optimizer = run.optimizers.get(key)
        of = f"optimizer {key}" if len(run.optimizers) > 1 else "the optimizer"
        what = f"all {group['parameters']} parameters of {of}" if whole else f"a group of {of} with its own rate"
        return RULE.finding(
            severity=Severity.ERROR if whole else Severity.WARNING,
            confidence=0.93,
            proof=Proof.STRUCTURE,
            title=f"{what} {'are' if whole else 'is'} frozen",
            summary="These parameters were given to an optimizer with a learning rate meant for them, and they do not "
            "require gradients: no step changes them.",
            where=known(*([Place(file=optimizer.file, line=optimizer.line)] if optimizer else []))
            + tuple(_places(run, fact.frozen)),
            evidence=[
                Evidence(
                    f"{group['frozen']} of {group['parameters']} parameters in the group with lr {group['lr']:g} have "
                    "requires_grad=False when the optimizer steps",
                    "frozen",
                    float(group["frozen"]),
                    0.0,
                )
            ],
            fix=Fix("Thaw them before this stage.", _thaw(run, fact.frozen)),
        )
    return None


def _held_again(run: Run, facts: dict[str, FrozenFact], frozen: set[str]) -> Finding | None:
    """An optimizer of an earlier stage left the frozen part out; a later one holds it, and it is frozen still."""
    ordered = sorted(facts.values(), key=lambda f: (len(f.optimizer), f.optimizer))
    for i, later in enumerate(ordered):
        held = sum(g["frozen"] for g in later.groups)
        left_out = any(sum(g["frozen"] for g in earlier.groups) == 0 for earlier in ordered[:i])
        if not left_out or 2 * held < len(later.frozen) or not frozen & set(later.frozen):
            continue
        optimizer = run.optimizers.get(later.optimizer)
        return RULE.finding(
            severity=Severity.WARNING,
            confidence=0.85,
            proof=Proof.STRUCTURE,
            title=f"{held} parameters are still frozen in the stage that should train them",
            summary="An earlier stage trained the rest of the model alone. The optimizer of this stage was given the "
            "whole model, but the part that was frozen then was never thawed.",
            where=known(*([Place(file=optimizer.file, line=optimizer.line)] if optimizer else []))
            + tuple(_places(run, later.frozen)),
            evidence=[Evidence(f"optimizer {later.optimizer} holds {held} frozen parameters, the one before it none")],
            fix=Fix("Thaw them before this stage.", _thaw(run, later.frozen)),
        )
    return None


def _untrained(run: Run, fresh: list[str], frozen: set[str]) -> Finding | None:
    """Layers that run, are frozen, and still hold what they were initialised with."""
    share = _size(run, fresh) / max(1, _size(run, run.parameters))
    ends = _is_last(run, fresh)
    if share < SHARE and not ends:
        return None
    parts = _parts(run, fresh)
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85,
        proof=Proof.STRUCTURE,
        title=f"{_shown(parts)} is frozen with its random start ({share:.0%} of the weights)",
        summary="These layers do not require gradients, and their values still have the spread of a fresh "
        "initialisation: neither were pretrained weights loaded into them nor can they learn any.",
        where=_places(run, fresh),
        evidence=[
            Evidence(
                f"{len(fresh)} weights have requires_grad=False and the exact spread of torch's initialisation: "
                f"{_shown(fresh)}",
                "frozen",
                share,
                SHARE,
            ),
            Evidence(f"{_size(run, frozen) / max(1, _size(run, run.parameters)):.0%} of all weights are frozen"),
        ],
        fix=Fix(
            "Let these layers train, or load the pretrained weights that were meant for them and look at the keys that "
            "load_state_dict reports.",
            _thaw(run, fresh),
        ),
        symptoms=("flat-from-start",),
    )


def _lone_bias(run: Run, frozen: set[str]) -> Finding | None:
    trained = [p for n, p in run.parameters.items() if n not in frozen]
    modules = {p.module for p in trained}
    weight = next((n for n in frozen if trained and n == f"{trained[0].module}.weight"), None)
    if not trained or len(modules) != 1 or weight is None or any(len(p.shape) > 1 for p in trained):
        return None
    if len(run.parameters[weight].shape if weight in run.parameters else ()) < 2:
        return None
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9,
        proof=Proof.STRUCTURE,
        title=f"nothing but {trained[0].name} trains",
        summary="All other parameters are frozen, the weight of the same layer among them. A bias alone can only shift "
        "the outputs by the same amount for every sample.",
        where=[Place(module=trained[0].module, parameter=weight)],
        evidence=[Evidence(f"{len(frozen)} of {len(run.parameters)} parameters have requires_grad=False", "wiring")],
        fix=Fix("Thaw the whole layer.", f"{reference(trained[0].module)}.requires_grad_(True)"),
        symptoms=("flat-from-start",),
    )


def _fresh(run: Run, frozen: set[str], facts: Iterable[FrozenFact]) -> list[str]:
    """Frozen weights at their initial values, in layers that run, less those that are somebody's copy or meant so."""
    found = [n for f in facts for n in f.fresh if n in frozen and n in run.parameters and not ON_PURPOSE.search(n)]
    copies = _copied_parts(run, frozen)
    runs = set(run.modules)
    kept = [n for n in dict.fromkeys(found) if not any(n.startswith(c) for c in copies)]
    return [n for n in kept if not runs or run.parameters[n].module in runs or _is_inner(run, n)]


def _is_inner(run: Run, name: str) -> bool:
    """Part of a module whose own leaves are not measured one by one (recurrent layers, attention)."""
    return run.parameters[name].module_type in ("LSTM", "GRU", "RNN", "MultiheadAttention", "Embedding")


def _copied_parts(run: Run, frozen: set[str]) -> set[str]:
    """Prefixes of frozen parts that have a twin of the same names and shapes among what trains."""
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, fact in run.parameters.items():
        prefix, _, rest = name.partition(".")
        parts.setdefault(prefix, {})[rest] = tuple(fact.shape)
    is_frozen = {p: all(f"{p}.{r}" in frozen for r in inner) for p, inner in parts.items()}
    return {
        f"{p}."
        for p, inner in parts.items()
        if is_frozen[p] and any(q != p and not is_frozen[q] and inner == other for q, other in parts.items())
    }


def _is_last(run: Run, names: Sequence[str]) -> bool:
    """Among these is the layer that gives the output."""
    weighted = {p.module for p in run.parameters.values()}
    ordered = [m for m, f in run.modules.items() if f.order is not None and m in weighted]
    return bool(ordered) and any(run.parameters[n].module == ordered[-1] for n in names)


def _parts(run: Run, names: Iterable[str]) -> list[str]:
    models = {f.name for f in run.facts(ModelFact)}
    return list(dict.fromkeys(n if n.partition(".")[0] in models else n.partition(".")[0] for n in names))


def _thaw(run: Run, names: Sequence[str], *, whole: bool = False) -> str:
    """The line that makes the part train."""
    models = [f.name for f in run.facts(ModelFact)]
    if whole or not names:
        return f"{models[0] if len(models) > 1 else 'model'}.requires_grad_(True)"
    part = names[0].partition(".")[0]
    owner = part if part in models and len(models) > 1 else reference(part)
    return f"{owner}.requires_grad_(True)"


def _size(run: Run, names: Iterable[str]) -> int:
    return sum(math.prod(run.parameters[n].shape) for n in names if n in run.parameters)


def _places(run: Run, names: Sequence[str]) -> list[Place]:
    return [Place(module=run.parameters[n].module if n in run.parameters else None, parameter=n) for n in names[:3]]


def _shown(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
