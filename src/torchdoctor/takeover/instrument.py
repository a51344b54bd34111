"""The process in which an instrument measures a script's training."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchdoctor.attach.importing import after_import
from torchdoctor.errors import UsageError
from torchdoctor.takeover.child import Child, serve
from torchdoctor.takeover.limits import TrainerLimits

if TYPE_CHECKING:
    from torchdoctor.takeover.driving import LoopSubject
    from torchdoctor.takeover.parts import Parts
    from torchdoctor.takeover.rehearsal import Rehearsal

OFTEN = 0.1
"""Seconds between two words on how far it is."""


LIMITS = TrainerLimits()


def measure(child: Child, rehearsal: Rehearsal) -> None:
    from torchdoctor.instruments.progress import listening
    from torchdoctor.takeover.driving import LoopEndedError
    from torchdoctor.takeover.measures import MEASURES
    from torchdoctor.takeover.parts import lay_out

    chosen = MEASURES[child.request["instrument"]]
    if chosen.drives and rehearsal.why_not is not None:
        child.end(why_not=rehearsal.why_not)
    if chosen.one_optimizer and len(rehearsal.optimizers()) > 1:
        child.end(why_not="several optimizers make the updates together, and this is of one")
    try:
        parts = lay_out(rehearsal)
        parts = replace(parts, accumulation=parts.accumulation * LIMITS.accumulation)
        if rehearsal.why_not is not None and len(rehearsal.roots()) > 1:
            parts = replace(parts, subject=_together(rehearsal))
        if _is_short(parts) and child.request["early"] and not child.request["few"]:
            child.end(later=True)
        checkpoint = child.request["checkpoint"]
        if checkpoint is not None:
            _load(parts, child.request["weights"], checkpoint)
        child.tell(subject=describe(parts, checkpoint) | {"notes": _notes(parts, child.request)})
        with listening(_Progress(child)):
            result = chosen.perform(parts, **child.request["options"])
    except UsageError as error:
        child.end(refused=str(error))
    except LoopEndedError as error:
        child.end(over=str(error))
    figure = result.plot().to_json() if child.request["draws"] else None
    child.tell(text=str(result), result=result.to_dict(), figure=figure)


def _is_short(parts: Parts) -> bool:
    """Whether the batches of the first steps are all there will be, for want of a loader."""
    return parts.why_no_loss is None and parts.train_loader is None


def _notes(parts: Parts, request: dict[str, Any]) -> list[str]:
    from torchdoctor.takeover.measures import MEASURES, lacks_statistics

    found = []
    if _is_short(parts):
        found.append(f"no DataLoader could be asked for more, so the batches of {len(parts.train)} steps are used")
    if MEASURES[request["instrument"]].of_weights and request["checkpoint"] is None:
        found.append("these are the weights that the script starts with; --checkpoint FILE measures trained ones")
    if request["options"].get("training") is False and lacks_statistics(parts):
        found.append("batch norm has hardly seen data yet, so this is measured in training mode")
    return found


def _together(rehearsal: Rehearsal) -> LoopSubject:
    """Several models, for instruments that need no loss of them."""
    from torch import nn

    from torchdoctor.takeover.driving import LoopSubject, Undriven

    roots = rehearsal.roots()
    named = {name: model for name, model in rehearsal.session.registry.live_models() if model in roots}
    models = nn.ModuleDict({name.replace(".", "-") or type(model).__name__: model for name, model in named.items()})
    return LoopSubject(models, Undriven(rehearsal.why_not or ""))


def describe(parts: Parts, checkpoint: str | None) -> dict[str, Any]:
    """What is measured, for a line above the result."""
    from torch import nn

    from torchdoctor.facts import LossCallFact
    from torchdoctor.instruments.one_batch import samples_in
    from torchdoctor.instruments.state import untouched
    from torchdoctor.takeover.measures import clipped_at

    model, optimizers = parts.subject.model, parts.optimizers
    losses = dict.fromkeys(fact.function for fact in parts.run.facts(LossCallFact) if fact.phase == "train")
    models = [
        type(m).__name__ for m in (model.children() if type(model) in (nn.ModuleDict, nn.ModuleList) else [model])
    ]
    value = None
    if parts.why_no_loss is None:
        with untouched(model, loaders=(parts.train_loader,)):
            value = float(parts.subject.loss(parts.train[0]).detach())
    rates = [float(group.get("initial_lr", group["lr"])) for o in optimizers for group in o.param_groups]
    return {
        "model": " and ".join(models),
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": " + ".join(losses) or None,
        "first_loss": value,
        "batch": samples_in(parts.train[0]) if parts.train else None,
        "accumulation": parts.accumulation,
        "optimizer": " and ".join(dict.fromkeys(type(o).__name__ for o in optimizers)),
        "lr": rates,
        "clipping": clipped_at(parts),
        "checkpoint": checkpoint,
    }


def _load(parts: Parts, weights: str, name: str) -> None:
    from torchdoctor.instruments.weight_space.checkpoints import read_weights

    model = parts.subject.model
    model.load_state_dict(read_weights(weights, model, name), strict=False)


class _Progress:
    """Tells the parent, not too often."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._told = ("", 0.0)

    def __call__(self, text: str, total: int | None, done: int) -> None:
        now = time.monotonic()
        if text != self._told[0] or now - self._told[1] > OFTEN:
            self._told = (text, now)
            self._child.tell(doing=text, total=total, parts=done)


if __name__ == "__main__":
    after_import("transformers.trainer", LIMITS.lift)
    serve(sys.argv[1], measure)
