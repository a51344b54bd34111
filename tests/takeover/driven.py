"""Drives a script's loop in this process: `python driven.py early|late SCRIPT`. Prints a line of JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import Options
from torchdoctor.attach.script import execute
from torchdoctor.attach.target import read_target
from torchdoctor.takeover.limits import lift_epochs
from torchdoctor.takeover.parts import lay_out
from torchdoctor.takeover.rehearsal import Rehearsal


def compare_gradients(parts: Any, *batches: Any) -> dict[str, float]:
    """The norm of their sum, summed up in place and from one loss at a time."""
    import torch

    model, kept = parts.subject.model, []
    for batch in batches:
        loss = parts.subject.loss(batch)
        model.zero_grad()
        loss.backward()
        kept.append([p.grad.clone() for p in model.parameters()])
    model.zero_grad()
    for batch in batches:
        parts.subject.loss(batch).backward()
    found = {
        "summed": float(sum(p.grad.square().sum() for p in model.parameters()).sqrt()),
        "apart": float(sum(torch.add(a, b).square().sum() for a, b in zip(*kept, strict=True)).sqrt()),
    }
    model.zero_grad()
    return found


def drive(rehearsal: Rehearsal) -> None:
    import torch

    told: dict[str, Any] = {"why_not": rehearsal.why_not}
    try:
        parts = lay_out(rehearsal)
        told |= {"epochs": parts.epochs, "train": len(parts.train), "validation": len(parts.validation)}
        told |= {"accumulation": parts.accumulation, "schedule": parts.step_of_schedule}
        first, second = parts.train[:2]
        parts.subject.model.eval()
        told["losses"] = [parts.subject.loss(b).item() for b in (first, second, first, second)]
        told |= compare_gradients(parts, first, second)
        optimizer = parts.optimizers[0]
        rates = [g["lr"] for g in optimizer.param_groups]
        fitted = []
        for _ in range(30):
            loss = parts.subject.loss(first)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(*([lambda loss=loss: loss] if isinstance(optimizer, torch.optim.LBFGS) else []))
            fitted.append(loss.item())
        told |= {"fitted": [fitted[0], fitted[-1]], "rates": rates == [g["lr"] for g in optimizer.param_groups]}
        shape = parts.subject.outputs(first)
        parts.subject.model.train()
        drawn = []
        for _ in range(70):
            torch.manual_seed(0)
            drawn.append(parts.subject.loss(first).item())
        told["from_one_seed"] = len(set(drawn))
        told["outputs"] = list(shape.shape) if isinstance(shape, torch.Tensor) else type(shape).__name__
    except BaseException as error:
        told["error"] = f"{type(error).__name__}: {error}"
    print("TOLD", json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        attachment = Attachment(Options(out=folder, name="check", capture=(), overhead=1.0), examines=False)
        rehearsal = Rehearsal(attachment, quick=True, cuts=True, early=sys.argv[1] == "early", ready=drive)
        after_import("torch", rehearsal.prepare)
        attachment.begin()
        after_import("transformers.trainer", lift_epochs)
        after_import("torch", rehearsal.arrange)
        ending = execute(read_target(sys.argv[2:]))
        if rehearsal.driver is not None:
            rehearsal.driver.ended(str(ending.exception or "over"))
            rehearsal.wait()
        print("TOLD", json.dumps({"ended": str(ending.exception)}))
