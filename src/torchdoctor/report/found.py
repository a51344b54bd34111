"""What torchdoctor took the program to be, what it could not examine and what it cost, in sentences.

A wrong inference must show, so this says plainly what was inferred, and calls unknown what is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import (
    VALIDATION,
    ClipFact,
    HealthFact,
    LoaderFact,
    ModelFact,
    OptimizerFact,
    PhaseFact,
    SchedulerFact,
    WiringFact,
)
from torchdoctor.findings import RULE_FAILED, Verdict
from torchdoctor.last_seen import DIED
from torchdoctor.permits import find_strays
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import clean, count, listed, number, share
from torchdoctor.rules import baseline, movement
from torchdoctor.run import UNREAD, Run
from torchdoctor.settings import Settings, known_rules

WARNINGS_SHOWN = 5
EPOCH_TOLERANCE = 0.05
"""Validation this close to once a pass through the training loader is called once an epoch."""

OUR_FAULT = "torchdoctor's own fault, please report it"
RANKS_APART = "the ranks were not compared with one another; only the record of rank 0 was examined"
ALWAYS_SAID = (OUR_FAULT, RANKS_APART)
"""Reasons that are given in full, however many others there are."""
NO_STEP = "no step of a torch optimizer was seen"
WRITTEN_LAST = ("predictions", "samples")
"""What is counted over a whole training and written at its end."""
REASONS: tuple[tuple[str, str], ...] = (
    (RULE_FAILED, OUR_FAULT),
    ("ranks", RANKS_APART),
    ("comparison", "two runs are compared by: torchdoctor diff GOOD BAD"),
    ("seeds", "several seeds are compared by: torchdoctor seeds -n 5 train.py"),
    ("starts", "two starts are compared by: torchdoctor seeds --same 2 train.py"),
    ("landscape", "curvature is measured by: torchdoctor sharpness train.py --checkpoint FILE"),
    ("skew", "samples from use are compared by: torchdoctor skew RUN SAMPLES"),
    ("loss.validation", "no validation loss was seen"),
    ("accuracy.validation", "no validation pass with classes was seen"),
    ("confidence.validation", "no validation pass with classes was seen"),
    ("accuracy.train", "no classification was seen"),
    ("confidence.train", "no classification was seen"),
    ("predictions", "no classification was seen"),
    ("labels", "no class labels were seen"),
    ("label.", "no class labels were seen"),
    ("loss.", "no training loss was seen"),
    ("loss_call", "no call of a torch loss function was seen"),
    ("graph", "the graph at the loss was not seen"),
    ("wiring", NO_STEP),
    ("order", NO_STEP),
    ("gradients.cleared", "no second step of a torch optimizer was seen"),
    ("clip", "gradients are not clipped"),
    ("scaler.", "there is no gradient scaler"),
    ("scheduler", "there is no scheduler"),
    ("loader", "no DataLoader was seen"),
    ("inputs", "no batch was seen"),
    ("input.", "no batch was seen"),
    ("target", "no targets were seen"),
    ("batch.", "no batch was seen"),
    ("features", "no validation batch was seen"),
    ("tokens", "no token targets beside token inputs were seen"),
    ("token_targets", "no token targets beside token inputs were seen"),
    ("membership", "no samples of both splits were seen"),
    ("validation_batch", "no validation batch was seen"),
    ("split", "no DataLoader was seen"),
    ("library_warning", "no library warned of anything"),
    ("loss_division", "no loss was divided for accumulation"),
    ("spike", "no step stood out"),
    ("samples", "no classification was seen"),
    ("printed", "no metric was printed"),
    ("modes", "no forward pass of a module was seen"),
    ("module", "no layer outputs were measured"),
    ("activation.", "no layer outputs were measured"),
    ("residual.", "errors of similar samples were not seen side by side"),
    ("norm.", "there is no batch normalisation in train mode"),
    ("representation.", "no hidden features were measured"),
    ("attention.", "no attention was seen"),
    ("layers", "the graph at the loss was not seen"),
    ("operation", "nothing in the graph can overflow"),
    ("dropout", "there is no dropout"),
    ("frozen_change", "nothing is frozen"),
    ("frozen", "nothing is frozen"),
    ("overwrite", "nothing changed the parameters from outside"),
    ("resume", "nothing was loaded"),
    ("precision", "mixed precision is not used"),
    ("half_operation", "nothing delicate ran in half precision"),
    ("pause", "nothing held the training up"),
    ("synchronisation", "no device was waited for"),
    ("device", "no CUDA device was measured"),
    ("transfer", "nothing was copied to a device"),
    ("birth", "no step was run again"),
    ("remedy", "--on-nonfinite was not asked for"),
    ("sharpness", "no pass could be made again in a copy of the process"),
    ("fixed_samples", "no samples were seen twice"),
    ("update.", "updates were not measured"),
    ("gradient.", "gradients were not measured"),
    ("weight.", "weights were not measured"),
    ("parameter", "no parameters were seen"),
    ("model", "no model was seen"),
    ("optimizer", "no torch optimizer was seen"),
    ("group.", "no torch optimizer was seen"),
    ("time.", "step times were not measured"),
    ("rate.", "step times were not measured"),
    ("memory.", "memory was not measured"),
    ("phase", NO_STEP),
    ("call_site", "no call of the loop was seen"),
    ("nonfinite", "nothing was NaN or infinite"),
    ("leakage", "no input features with their targets were seen"),
    ("own_health", "torchdoctor did not record its own cost"),
    ("user", "nothing was logged with doctor.log"),
)
"""Why a rule could not look, by how the name of the missing signal or fact begins; the first that fits is said."""


NOT_OF_THIS_KIND = frozenset(
    [
        *("comparison", "clip", "scaler.", "scheduler", "tokens", "token_targets", "norm.", "attention.", "operation"),
        *("dropout", "frozen_change", "frozen", "overwrite", "resume", "precision", "pause", "synchronisation"),
        *("device", "transfer", "spike", "nonfinite", "user", "seeds", "starts", "skew", "landscape"),
    ]
)
"""What a script simply does not have or do: no reader can or need mend that, so it is only counted."""
REASONS_IN_FULL = 3
CAPTURE_NAME = re.compile(r"step-[\w-]{1,80}")

_UNKNOWN = {
    "birth": "where the NaN was born is not known",
    "state before a failure": "a capture could not hold the state from before a failure",
}
"""What is not there, where the name of what is measured says little."""


def describe_found(run: Run) -> str:
    """1 model (Net, 12.3 k parameters), 1 optimizer (SGD), training loss at train.py:41, validation ..."""
    parts = [_models(run), _optimizers(run), _loaders(run), _training(run), _validation(run), *_extras(run)]
    return ", ".join(part for part in parts if part)


def describe_unknown(run: Run) -> list[str]:
    """What was seen and not understood."""
    phase = run.phase
    if phase is None:
        return []
    notes = list(phase.notes)
    if phase.passes_unknown:
        passes = count(phase.passes_unknown, "forward pass", "forward passes")
        notes.append(f"{passes} with neither a backward pass nor a validation loss")
    return notes


def describe_not_examined(verdict: Verdict) -> list[str]:
    """One entry for each reason: `train-mode-in-evaluation and 3 others (no validation loss was seen)`. Of many reasons
    only how many diagnoses each has, and of what the script is not about only how many there are: their names are in
    the JSON, and the letter is to be short."""
    by_reason: dict[str, list[str]] = {}
    foreign = 0
    for entry in verdict.not_examined:
        beginning, reason = reason_of(entry.needs, verdict.run)
        if beginning in NOT_OF_THIS_KIND:
            foreign += 1
        else:
            by_reason.setdefault(reason, []).append(entry.name)
    ours = {reason: by_reason.pop(reason) for reason in ALWAYS_SAID if reason in by_reason}
    in_short = []
    if len(by_reason) > REASONS_IN_FULL:
        counted = [f"{reason} ({len(names)})" if len(names) > 1 else reason for reason, names in by_reason.items()]
        in_short = [f"{sum(map(len, by_reason.values()))} diagnoses: {'; '.join(counted)}"]
        by_reason = {}
    lines = in_short + [f"{listed(names, most=2)} ({reason})" for reason, names in (by_reason | ours).items()]
    what = count(foreign, "diagnosis", "diagnoses")
    return [*lines, f"{what} of what is not in this script (all in --json)"] if foreign else lines


def describe_silenced(verdict: Verdict, cwd: Path) -> list[str]:
    """What a comment in the source allows, each with its place."""
    return [f"{s.name} (allowed at {shorten(s.file, cwd)}:{s.line})" for s in verdict.silenced]


def describe_warnings(verdict: Verdict, cwd: Path) -> list[str]:
    """What libraries warned of during the run, a line each, with the place that Python named."""
    held = verdict.run.get("warnings")
    said = []
    for each in (held if isinstance(held, list) else [])[:WARNINGS_SHOWN]:
        if isinstance(each, Mapping):
            place = f"{shorten(str(each.get('file')), cwd)}:{each.get('line')}"
            said.append(clean(f"{each.get('category')} at {place}: {each.get('text')}"))
    return said


def describe_asked(verdict: Verdict, settings: Settings) -> str:
    """How many diagnoses were examined, and which were not asked for."""
    asked = len(verdict.examined) + len(verdict.not_examined)
    if not settings.select and not settings.ignore:
        return f"{len(verdict.examined)} of {asked} diagnoses were examined."
    words = f"{len(verdict.examined)} of the {asked} diagnoses asked for were examined"
    unasked = [name for name in known_rules() if settings.select and name not in settings.select]
    if unasked:
        words += f"; {len(unasked)} were not asked (--select)"
    if settings.ignore:
        words += f"; ignored: {listed(settings.ignore, most=8)}"
    return f"{words}."


def _read_codes() -> dict[str, str]:
    return {rule.name: rule.code for rule in known_rules().values()}


def describe_strays(verdict: Verdict, settings: Settings, cwd: Path) -> list[str]:
    """Comments on the lines of findings that allow what there is not."""
    return [
        f"{shorten(s.file, cwd)}:{s.line} allows {s.word!r}, and there is no such diagnosis{s.meant}"
        for s in find_strays(verdict.findings, settings.folders, _read_codes)
    ]


def captures(run: Run) -> tuple[list[str], list[str]]:
    """Names of the captures that were written, and of those that were not, why; a file says so: nothing is trusted."""
    recorded = run.info.get("captures")
    entries = [e for e in recorded if isinstance(e, dict)] if isinstance(recorded, list) else []
    written = [n for e in entries if isinstance(n := e.get("name"), str) and CAPTURE_NAME.fullmatch(n)]
    failed = [f"none of step {e.get('step')}: {why}" for e in entries if isinstance(why := e.get("failed"), str)]
    return written, failed


def describe_health(run: Run) -> list[str]:
    """What measuring cost, and what of it was dropped, switched off or is not supported."""
    health = run.last_fact(HealthFact)
    lines = _describe_cost(run, health) if health is not None else []
    recorded = run.info.get("dropped")
    dropped = {**(recorded if isinstance(recorded, dict) else {}), **(health.dropped if health else {})}
    if dropped:
        lines.append(f"dropped: {listed((f'{name} ({n})' for name, n in dropped.items()), most=4)}")
    unread = run.info.get(UNREAD)
    if unread and isinstance(unread, dict):
        parts = (f"{number:,} {name}" for name, number in unread.items())
        lines.append(f"not read, because the run folder is too large: {listed(parts, most=4)}")
    if health is not None:
        lines += [f"{name} was switched off: {why}" for name, why in health.disabled.items()]
        lines += [
            f"{_UNKNOWN.get(name, f'{name} is not supported')}: {why}" for name, why in health.unsupported.items()
        ]
        if health.skipped:
            parts = listed(f"{kind} ({often})" for kind, often in health.skipped.items())
            lines.append(f"measured in part or not at all, to stay within the overhead budget: {parts}")
    return lines


def _describe_cost(run: Run, health: HealthFact) -> list[str]:
    own, settling, unnoticed = health.own_seconds, health.settling_seconds, health.unnoticed
    if own is not None and own + (settling or 0.0) < unnoticed:
        return [f"measuring took {own + (settling or 0.0):.2g} s in all"]
    lines = []
    if own is not None and own < unnoticed:
        lines.append(f"measuring took {own:.2g} s")
    elif health.overhead is not None:
        allowed = health.budget + (unnoticed * health.overhead / own if own else 0.0)
        took = "" if own is None else f"{own:.2g} s, "
        budget = f"{'' if own is None else f'{unnoticed:.2g} s and '}{share(health.budget)}"
        over = f"more than its budget of {budget}{_step_time(run)}"
        kept = over if health.overhead > allowed else f"inside its budget of {budget}"
        lines.append(f"measuring took {took}{share(health.overhead)} of the step time, {kept}")
    if settling:
        lines.append(f"and once {settling:.2g} s, for a close look at the first steps")
    return lines


def _step_time(run: Run) -> str:
    """The number that tells whether short steps are to blame: what must be done each step has a cost of its own."""
    seconds = run.scalar(signals.TIME_STEP).values
    known = seconds[np.isfinite(seconds)]
    return f" (a step takes {1000 * float(np.median(known)):.3g} ms)" if len(known) else ""


def reason_of(needs: tuple[str, ...], info: Mapping[str, Any]) -> tuple[str, str]:
    """How what is missing begins, and why it is."""
    if info.get("status") == DIED and any(need in WRITTEN_LAST for need in needs):
        return needs[0], "classes are counted until a run ends, and this one was killed"
    if any(need.startswith(RULE_FAILED) for need in needs):
        needs = (RULE_FAILED,)
    for start, words in REASONS:
        if any(need.startswith(start) for need in needs):
            return start, words
    return "", f"the run lacks {listed(needs)}"


def _models(run: Run) -> str:
    models = {m.name: m for m in run.facts(ModelFact)}
    if not models:
        return "no model"
    if len(models) == 1:
        (model,) = models.values()
        trainable = _trainable(run, model)
        frozen = "" if trainable == model.parameters else f", {_amount(trainable)} of them trainable"
        compiled = ", compiled" if model.compiled else ""
        return f"1 model ({model.type}, {_amount(model.parameters)} parameters{frozen}{compiled})"
    shown = (f"{m.type} {_amount(m.parameters)}" for m in models.values())
    return f"{len(models)} models ({listed(shown)})"


def _trainable(run: Run, model: ModelFact) -> int:
    """Count the trainable elements at the updates; when a model is first seen, gradients may be off for a test pass."""
    wiring = run.last_fact(WiringFact)
    if wiring is None or not wiring.total or len(run.parameters) < wiring.total:
        return model.trainable
    frozen = sum(math.prod(p.shape) for name, p in run.parameters.items() if name in set(wiring.frozen))
    return max(0, model.parameters - frozen)


def _optimizers(run: Run) -> str:
    optimizers = list(run.optimizers.values())
    if not optimizers:
        return "no torch optimizer"
    return f"{count(len(optimizers), 'optimizer')} ({listed(map(_optimizer, optimizers))})"


def _optimizer(optimizer: OptimizerFact) -> str:
    rates = [r for r in map(movement.initial_rate, optimizer.groups) if r is not None]
    distinct = list(dict.fromkeys(rates))
    if not distinct:
        return optimizer.type
    scheduled = any(g.get("lr") != movement.initial_rate(g) for g in optimizer.groups if g.get("lr") is not None)
    return f"{optimizer.type}, lr {listed(map(number, distinct))}{' scheduled' if scheduled else ''}"


def _loaders(run: Run) -> str:
    loaders = {f.name: f for f in run.facts(LoaderFact)}
    shown = []
    for loader in loaders.values():
        samples = f" {loader.samples:,} samples" if loader.samples is not None else ""
        batches = f" by {loader.batch_size:,}" if loader.batch_size else ""
        shown.append(f"{loader.phase}{samples}{batches}")
    return f"{count(len(shown), 'loader')} ({listed(shown)})" if shown else "no DataLoader"


def _training(run: Run) -> str:
    phase = run.phase
    if phase is None or not phase.loss_sites:
        return "training loss at an unknown line" if run.has(signals.LOSS_TRAIN) else "no training loss"
    each = phase.backwards / phase.updates if phase.updates else 0
    divisor = baseline.division(run)
    divided = f", each loss divided by {divisor:.0f}; losses are shown before this division" if divisor > 1 else ""
    accumulated = f" ({each:.3g} backward passes per optimizer step{divided})" if each > 1.5 else ""
    return f"training loss at {listed(phase.loss_sites)}{accumulated}"


def _validation(run: Run) -> str:
    phase = run.phase
    if phase is None or not (phase.validations or phase.passes_validation):
        return "no validation"
    if phase.validations == 1:
        when = "once"
    elif phase.updates_between_validations is None:
        when = count(phase.validations, "time")
    else:
        every = phase.updates_between_validations
        when = (
            f"after every epoch (~{every:.0f} steps)" if _is_epoch(run, phase, every) else f"every ~{every:.0f} steps"
        )
    return f"validation {when}"


def _is_epoch(run: Run, phase: PhaseFact, every: float) -> bool:
    per_update = phase.backwards / phase.updates if phase.updates else 1.0
    epochs = [
        loader.batches / max(per_update, 1.0)
        for loader in run.facts(LoaderFact)
        if loader.batches and loader.phase not in (VALIDATION,)
    ]
    return any(abs(every - epoch) <= max(EPOCH_TOLERANCE * epoch, 1) for epoch in epochs)


def _extras(run: Run) -> list[str]:
    schedulers = {f.key: f.type for f in run.facts(SchedulerFact)}
    extras = [f"{count(len(schedulers), 'scheduler')} ({listed(schedulers.values())})"] if schedulers else []
    clip = run.last_fact(ClipFact)
    if clip is not None and math.isfinite(clip.threshold):
        extras.append(f"gradients clipped by {clip.how} at {number(clip.threshold)}")
    return extras + _scaler(run)


def _scaler(run: Run) -> list[str]:
    scale, skipped = run.scalar(signals.SCALE), run.scalar(signals.STEP_SKIPPED)
    if not len(scale):
        return []
    updates = len(skipped) * skipped.merged
    left_out = round(float(np.nansum(skipped.values)) * skipped.merged)
    last = number(float(scale.last(1).values[-1]))
    return [f"gradient scaler at {last} ({left_out:,} of {count(updates, 'update')} skipped)"]


def _amount(parameters: int) -> str:
    for unit, power in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if parameters >= power:
            return f"{parameters / power:.3g} {unit}"
    return f"{parameters:,}"
