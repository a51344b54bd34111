"""Outputs and targets fit each other: in shape, in kind, in the number of classes, and sample by sample."""

from __future__ import annotations

from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.head_and_loss import is_of_head
from torchdoctor.checks.model.chance import calls_of
from torchdoctor.checks.model.influence import sample_count
from torchdoctor.checks.model.looks import Look, OutOfRangeError, targets_of
from torchdoctor.checks.model.loss_wiring import Wiring, consult, wiring_of, with_calls
from torchdoctor.checks.model.pairing import own_share
from torchdoctor.checks.model.records import outcome_of
from torchdoctor.checks.sample_leakage import leak_of
from torchdoctor.findings import Fix, Severity

CHECK = Check(
    name="output-shape",
    asks="outputs and targets fit in shape and type",
    part=MODEL,
    order=10,
    diagnoses=(
        "shape-broadcast-in-loss",
        "invalid-labels",
        "wrong-loss-for-task",
        "inputs-and-labels-unrelated",
    ),
)

OWN = 0.5
"""Share of a target that has to reach its own sample. It is one where they belong together, and about one over the
number of samples or of time steps (the smaller of them) where the two are swapped."""


def perform(bench: Bench) -> Outcome:
    wiring = wiring_of(bench)
    if wiring.error is not None:
        return _explain(wiring)
    if wiring.backward_error is not None:
        return _explain_backward(wiring.backward_error, wiring.looks[0])
    found = [
        *consult(wiring.run, "shape-broadcast-in-loss", "invalid-labels"),
        *consult(with_calls(wiring.run, lambda call: not is_of_head(call)), "wrong-loss-for-task"),
    ]
    found.sort(key=lambda finding: finding.severity.rank)
    if found and found[0].severity is not Severity.INFO:
        return outcome_of(found[0])
    look = wiring.looks[0]
    share = own_share(bench, look)
    if share is not None and share < OWN and leak_of(bench, look.batch) is None:
        return _mixed_up(bench, look, share)
    if found:
        return outcome_of(found[0])
    return _fits(bench, look)


def _fits(bench: Bench, look: Look) -> Outcome:
    call = next(iter(look.calls[-1:] or calls_of(bench, look)), None)
    if call is None:
        return skipped("what the outputs are compared with is not known: the loss is not one of torch's")
    against = f" against {_said(call.target)}" if call.target is not None else ""
    shapes = {"outputs": list(call.input.shape), "targets": list(getattr(call.target, "shape", []))}
    return passed(f"{_said(call.input)}{against}", **shapes)


def _explain(wiring: Wiring) -> Outcome:
    """The loss could not be computed."""
    error, look = wiring.error, wiring.looks[-1]
    assert error is not None
    labels = consult(wiring.run, "invalid-labels")
    if consult(with_calls(wiring.run, is_of_head), "wrong-loss-for-task"):
        return skipped("the loss function refuses what the model gives; head-and-loss says why")
    if labels:
        return outcome_of(labels[0])
    if isinstance(error, OutOfRangeError):
        return skipped(f"the model cannot take its inputs: {error}")
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if look.outputs is None:
        given = ", ".join(map(_said, look.inputs)) or "what the loader gives"
        return failed(
            f"the model cannot be called with the first batch ({given}): {said}",
            None,
            Fix(
                "Call the model with one batch by hand and follow the shapes.",
                "print(model)\nmodel(next(iter(loader))[0])",
            ),
        )
    wanted = look.calls[-1].target if look.calls else None
    shapes = f"outputs {_said(look.outputs)}" + (f", targets {_said(wanted)}" if wanted is not None else "")
    return failed(
        f"the loss of the first batch cannot be computed ({shapes}): {said}",
        None,
        Fix("Give the loss what its documentation asks for.", "print(outputs.shape, outputs.dtype, y.shape, y.dtype)"),
    )


def _explain_backward(error: Exception, look: Look) -> Outcome:
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    wanted = look.calls[-1].target if look.calls else None
    if wanted is not None and not wanted.is_floating_point() and "dtype" in said:
        return failed(
            f"the loss takes {_said(wanted)} targets, but its backward does not ({said})",
            "invalid-labels",
            Fix("Give quantities as floats.", "y = y.float()"),
        )
    return failed(
        f"the backward of the loss fails: {said}",
        None,
        Fix("Let torch name the operation.", "with torch.autograd.detect_anomaly(): loss.backward()"),
    )


def _mixed_up(bench: Bench, look: Look, share: float) -> Outcome:
    outputs, targets = look.outputs, targets_of(bench, look)
    shapes = f" (outputs {_said(outputs)}, targets {_said(targets[-1])})" if isinstance(outputs, Tensor) else ""
    return failed(
        f"targets are compared with the outputs of other samples{shapes}: only {share:.0%} of what a sample's target "
        "changes is in its own sample",
        "inputs-and-labels-unrelated",
        Fix(
            "Bring samples and time into the same order on both sides before they are flattened.",
            "outputs = outputs.transpose(0, 1)  # (time, batch, classes) -> (batch, time, classes)\n"
            "loss = F.cross_entropy(outputs.flatten(0, 1), targets.flatten())",
        ),
        evidence=(
            f"the target of one of {sample_count(bench, look.batch)} samples was exchanged, and the gradients of other "
            "samples' inputs changed",
        ),
        own_share=share,
    )


def _said(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
