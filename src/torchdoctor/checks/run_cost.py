"""What the full run will take, in time and in memory, from a moment of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import COST, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.cost.run_plan import batches_of, updates_an_epoch
from torchdoctor.checks.cost.step_clock import Times, middle, time_training, time_validation
from torchdoctor.checks.cost.step_memory import Memory, measure_memory
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.rules.throughput import input_bound

CHECK = Check(
    name="run-cost",
    asks="what the full run takes",
    part=COST,
    order=10,
    diagnoses=("input-bound",),
)
SECONDS, QUICK_SECONDS = 2.0, 0.6
VALIDATION_SHARE = 0.3
NEARLY_FULL = 0.95
"""Of the memory that is there; fragments and kernels take the rest."""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped("there is no batch to time")
    bench.model.train()
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    memory = measure_memory(bench)
    times = time_training(bench, seconds)
    validation = time_validation(bench, VALIDATION_SHARE * seconds)
    figures = _figures(bench, times, validation) | {f"{k}_bytes": v for k, v in asdict(memory).items()}
    text = f"{_time(bench, figures)}; {_memory(memory)}"
    text += "; all without torch.compile, which the training uses" if bench.is_compiled else ""
    if memory.limit is not None and memory.needed > NEARLY_FULL * memory.limit:
        return failed(
            f"the run needs {_bytes(memory.needed)} of memory, and there are {_bytes(memory.limit)}: {text}",
            None,
            Fix(
                "Halve the batch and accumulate over two, use bfloat16, or recompute activations in the backward pass.",
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
            ),
            severity=Severity.WARNING,
            **figures,
        )
    return _waiting(bench, times, text, figures) or passed(text, **figures)


def _figures(bench: Bench, times: Times, validation: float | None) -> dict[str, Any]:
    batches, updates = batches_of(bench.train_loader), updates_an_epoch(bench)
    step = times.step(bench.accumulation)
    found: dict[str, Any] = {
        "seconds_step": step,
        "seconds_wait": times.waited if times.data_known else None,
        "seconds_forward": middle(times.forward),
        "seconds_backward": middle(times.backward),
        "seconds_update": middle(times.update),
        "seconds_start": times.start,
        "data_share": times.waited / step if step and times.data_known else None,
        "batches": batches,
        "updates": updates,
        "epochs": bench.epochs,
        "steps_timed": len(times.forward),
    }
    checked = batches_of(bench.validation_loader) if bench.validation_loader is not None else None
    found["seconds_validation"] = validation * checked if validation is not None and checked else 0.0
    if batches is not None:
        again = 0.0 if getattr(bench.train_loader, "persistent_workers", False) else times.start
        found["seconds_epoch"] = again + batches * step + found["seconds_validation"]
        if bench.epochs:
            found["seconds_run"] = bench.epochs * found["seconds_epoch"]
        elif bench.updates:
            found["seconds_run"] = bench.updates / max(1, updates or 1) * found["seconds_epoch"]
    return found


def _time(bench: Bench, figures: dict[str, Any]) -> str:
    wait = figures["seconds_wait"]
    named = {"data": wait, **{k: figures[f"seconds_{k}"] for k in ("forward", "backward", "update")}}
    parts = ", ".join(f"{name} {_span(value)}" for name, value in named.items() if value is not None)
    step = f"{_span(figures['seconds_step'])} a step ({parts})"
    if "seconds_epoch" not in figures:
        return f"{step}; how many there are is not known"
    epoch = f"{_span(figures['seconds_epoch'])} an epoch of {figures['batches']} steps at {step}"
    if figures["seconds_validation"]:
        epoch += f", {_span(figures['seconds_validation'])} of it validation"
    length = f"{bench.epochs} epochs" if bench.epochs else f"{bench.updates} updates" if bench.updates else None
    return f"{_span(figures['seconds_run'])} for {length}: {epoch}" if length else epoch


def _memory(memory: Memory) -> str:
    parts = ", ".join(
        f"{name} {_bytes(value)}"
        for name, value in (
            ("parameters", memory.parameters),
            ("gradients", memory.gradients),
            ("optimizer", memory.optimizer),
            ("activations", memory.activations),
        )
    )
    whole = f", the process {_bytes(memory.process)}" if memory.process is not None else ""
    return f"{_bytes(memory.peak)} of memory ({parts}){whole}"


def _waiting(bench: Bench, times: Times, text: str, figures: dict[str, Any]) -> Outcome | None:
    """By the limits of the rule on steps that wait for data."""
    share, samples = figures["data_share"], samples_in(bench.train[0])
    if share is None or share < input_bound.WARN_SHARE or times.waited < input_bound.WARN_SECONDS:
        return None
    if samples and times.waited / samples < input_bound.COLLATING:
        return None
    workers = getattr(bench.train_loader, "num_workers", 0)
    return failed(
        f"{share:.0%} of a step is spent waiting for data ({_span(times.waited)} of {_span(figures['seconds_step'])}); "
        f"{text}",
        input_bound.RULE.name,
        Fix(
            "Let more workers prepare the batches while the model trains, or do once what is the same in every epoch.",
            f"DataLoader(dataset, batch_size={samples}, num_workers={2 * workers or 4}, persistent_workers=True)",
        ),
        severity=Severity.WARNING,
        **figures,
    )


def _span(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} us"
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _bytes(size: int | float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
