"""What predicts the next step of a sequence does not see it: neither by looking ahead, nor as its own target."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.influence import Change, first_to_change, outputs_of
from torchdoctor.checks.model.looks import Look, targets_of
from torchdoctor.checks.model.loss_wiring import consult, wiring_of
from torchdoctor.checks.model.records import outcome_of
from torchdoctor.checks.model.sequences import (
    Sequence,
    by_position,
    exchange_step,
    moved_by_position,
    positions_first,
    sequence_of,
    sequences_in,
)
from torchdoctor.findings import Finding, Fix, Place
from torchdoctor.rules.procedure.missing_target_shift import RULE, SAME

CHECK = Check(
    name="causality",
    asks="what predicts the next step does not see it",
    part=MODEL,
    order=40,
    diagnoses=(RULE.name,),
)

AHEAD = 1e-4
"""Change of an earlier output over that of the later ones: far above rounding, far below any use."""


def perform(bench: Bench) -> Outcome:
    wiring = wiring_of(bench)
    if wiring.error is not None:
        return skipped("the loss cannot be computed; output-shape says why")
    found = consult(wiring.run, RULE.name)
    look = wiring.looks[0]
    inputs = bench.inputs(look.batch)
    sequences = list(sequences_in(inputs, _wanted(bench, look)))
    bench.model.eval()
    if not sequences:
        copied = _copies(bench, look, inputs) if not found else None
        return outcome_of(found[0]) if found else copied or skipped(_why_not(look, inputs))
    judged = [o for sequence in sequences if (o := _look_ahead(bench, look, sequence, found)) is not None]
    if judged:
        return _of_decoder(judged)
    return outcome_of(found[0]) if found else skipped("the outputs have no dimension of time")


def _of_decoder(judged: list[Outcome]) -> Outcome:
    """Of several inputs whose next step is asked for, one that is read from left to right is what the prediction goes
    on from; the others, such as the source of a copy, may be seen as a whole. Sources come first among inputs."""
    return next((outcome for outcome in judged if outcome.passed), judged[-1])


def _wanted(bench: Bench, look: Look) -> list[Tensor]:
    called = [call.target for call in look.calls if call.target is not None]
    return called[-1:] or targets_of(bench, look)[-1:]


def _copies(bench: Bench, look: Look, inputs: list[Tensor]) -> Outcome | None:
    """Targets that are the tokens themselves, in a model that reads from left to right: it was made to predict."""
    ids = [n for n, t in enumerate(inputs) if not t.is_floating_point() and t.dim() == 2 and t.dtype != torch.bool]
    for target in _wanted(bench, look) if len(ids) == 1 else ():
        for time in (1, 0):
            sequence = sequence_of(ids[0], inputs[ids[0]], target, time, ahead=0)
            if sequence is not None and _reads_forward(bench, look, sequence):
                return failed(
                    f"the targets are the inputs themselves, unshifted: at each of {sequence.length} steps the model "
                    "is given the token that it must name",
                    RULE.name,
                    Fix(
                        "Give the tokens without the last one and ask for those without the first.",
                        "inputs, targets = ids[:, :-1], ids[:, 1:]",
                    ),
                    evidence=("its outputs change with their own and earlier tokens, never with later ones",),
                )
    return None


def _reads_forward(bench: Bench, look: Look, sequence: Sequence) -> bool:
    """A step changes outputs after it, and none before it."""
    position = sequence.length // 2
    both = zip(
        outputs_of(bench, look.batch), outputs_of(bench, look.batch, exchange_step(sequence, position)), strict=True
    )
    for before, after in both:
        laid = by_position(before, sequence), by_position(after, sequence)
        if laid[0] is None or laid[1] is None:
            continue
        moved = moved_by_position(laid[0], laid[1], sequence)
        limit = AHEAD * float(moved.max())
        if float(moved[position + 1 :].max()) > limit >= float(moved[:position].max()):
            return True
    return False


def _look_ahead(bench: Bench, look: Look, sequence: Sequence, found: list[Finding]) -> Outcome | None:
    """None where the outputs have no time, or do not hang on this input."""
    base = outputs_of(bench, look.batch)
    laid = [rows for tensor in base if (rows := by_position(tensor, sequence)) is not None]
    seen = False
    for position in sorted({sequence.length // 2, sequence.length - 1}):
        change = exchange_step(sequence, position)
        after = [by_position(tensor, sequence) for tensor in outputs_of(bench, look.batch, change)]
        for before, now in zip(laid, [a for a in after if a is not None], strict=False):
            moved = moved_by_position(before, now, sequence)
            seen |= bool(moved.max() > 0)
            early = moved[:position]
            if float(early.max()) > AHEAD * float(moved.max()):
                return _sees_ahead(bench, look, sequence, position, early, change, found)
    if not seen:
        return None
    return passed(f"no output before a step of {sequence.length} changes when that step does", length=sequence.length)


def _sees_ahead(
    bench: Bench,
    look: Look,
    sequence: Sequence,
    position: int,
    early: Tensor,
    change: Change,
    found: list[Finding],
) -> Outcome:
    changed = int((early > AHEAD * early.max()).sum())
    rows = lambda made: positions_first(made, sequence)  # noqa: E731
    module, kind = first_to_change(bench, look.batch, change, rows, list(range(position)))
    at = f"; they first do at {clean(module)} ({kind}) or just before it" if module else ""
    told = next((finding for finding in found if finding.fix.code), None)
    return failed(
        f"outputs see the step that they must predict: changing step {position} of {sequence.length} changes {changed} "
        f"of the {position} outputs before it{at}",
        RULE.name,
        _fix(bench, module) or (told.fix if told is not None else _MASK),
        evidence=tuple(e.text for e in told.evidence) if told is not None else (),
        where=(Place(module=clean(module)),) if module else (),
        position=position,
        changed=changed,
    )


_MASK = Fix(
    "Mask what lies ahead in every attention layer.",
    "F.scaled_dot_product_attention(q, k, v, is_causal=True)  "
    "# nn.TransformerEncoder: mask=nn.Transformer.generate_square_subsequent_mask(length)",
)


def _fix(bench: Bench, name: str | None) -> Fix | None:
    module = bench.model.get_submodule(name) if name else None
    if isinstance(module, nn.RNNBase) and module.bidirectional:
        kind = type(module).__name__
        code = f"nn.{kind}({module.input_size}, {module.hidden_size}, batch_first={module.batch_first})"
        return Fix("Let the recurrent network run forward only.", code)
    if isinstance(module, nn.Conv1d):
        reach = (module.kernel_size[0] - 1) * module.dilation[0]
        return Fix(
            "Pad the convolution on the left alone.",
            f"x = F.pad(x, ({reach}, 0)); x = self.conv(x)  # with padding=0 in nn.Conv1d",
        )
    return None


def _why_not(look: Look, inputs: list[Tensor]) -> str:
    wanted = [call.target for call in look.calls if call.target is not None]
    same = any(
        t.numel() == given.numel() and _share(given, t) >= SAME for t in wanted for given in inputs if given.dim() >= 2
    )
    if same:
        return "the targets are the inputs themselves: what rebuilds them may see all of them"
    if any(given.dim() >= 2 and not given.is_floating_point() for given in inputs):
        return "the targets are not the next tokens: looking both ways is no fault"
    return "the targets are not the next step of any input"


def _share(given: Tensor, target: Tensor) -> float:
    return float((given.reshape(-1) == target.to(given.device).reshape(-1)).float().mean())
