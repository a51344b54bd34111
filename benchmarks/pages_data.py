"""A made-up but lifelike training for the pages: a transformer of so many tensors, with noise, a schedule and a spike.

The same numbers go to a run directory, through the real recorder, and to TensorBoard's event files, through its own
writer. Both are kept under benchmarks/.cache, by what they were made of.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import ModuleFact, OptimizerFact, ParameterFact, PhaseFact
from torchdoctor.store.writer import Recorder

CACHE = Path(__file__).with_name(".cache") / "pages"
VERSION = 1
"""To be raised when what is made here changes, so that old files are not used."""
CHUNK = 1000
"""Steps that are made at once."""
VALIDATED = 500
"""Steps from one validation to the next."""
THINNED = 10
"""TensorBoard gets the tensors' norms every so many steps: it keeps 1000 points of a series, whatever it is given."""
QUEUED, QUEUED_NUMBERS = 1500, 5_000_000
"""Rows, and numbers in them, that may wait for the recorder: it drops what is far more."""
FLUSHED = 0.2
"""Seconds between two looks of the recorder: what is made here comes faster than any training."""
BLOCK = (
    *(("ln1", "LayerNorm", 1), ("attn.qkv", "Linear", 2), ("attn.proj", "Linear", 2)),
    *(("ln2", "LayerNorm", 1), ("mlp.fc", "Linear", 2), ("mlp.proj", "Linear", 2)),
)
"""Layers of a block: name, type, dimensions of the weight. Each has a weight and a bias: 12 tensors."""
OUTPUTS = ("attn", "mlp.act", "ln2")


@dataclass(frozen=True)
class Part:
    """Steps that follow one another; of tensors (steps, tensors)."""

    steps: np.ndarray
    loss: np.ndarray
    rate: np.ndarray
    gradient: np.ndarray
    weight: np.ndarray
    ratio: np.ndarray


@dataclass(frozen=True)
class Training:
    steps: int
    tensors: int

    @property
    def name(self) -> str:
        return f"v{VERSION}-{self.steps}x{self.tensors}"

    def parameters(self) -> list[ParameterFact]:
        blocks = max(1, (self.tensors - 12) // 12)
        layers = [("tok", "Embedding", 2), ("pos", "Embedding", 2)]
        layers += [(f"blocks.{i}.{name}", kind, dims) for i in range(blocks) for name, kind, dims in BLOCK]
        layers += [("ln_f", "LayerNorm", 1), *((f"head.{2 * i}", "Linear", 2) for i in range(self.tensors))]
        found: list[ParameterFact] = []
        for layer, kind, dims in layers:
            for end in ("weight",) if kind == "Embedding" else ("weight", "bias"):
                shape = [768] * (dims if end == "weight" else 1)
                found.append(ParameterFact(f"{layer}.{end}", shape, "float32", "cuda:0", layer, kind, len(found)))
        return found[: self.tensors]

    def modules(self) -> list[ModuleFact]:
        blocks = max(1, (self.tensors - 12) // 12)
        names = [f"blocks.{i}.{name}" for i in range(blocks) for name in OUTPUTS]
        kinds = {"act": ("GELU", "gelu"), "attn": ("Attention", None), "ln2": ("LayerNorm", None)}
        return [ModuleFact(n, *kinds[n.rpartition(".")[2]], order=i, units=768) for i, n in enumerate(names)]

    def parts(self) -> Iterator[Part]:
        random = np.random.default_rng(11)
        count = self.tensors
        depth = np.linspace(0.0, 1.0, count)
        level = 0.05 * np.exp(0.8 * depth + random.normal(0, 0.5, count))
        size = np.exp(random.normal(3.0, 0.6, count))
        spike_at = int(0.62 * self.steps)
        for first in range(0, self.steps, CHUNK):
            at = np.arange(first, min(first + CHUNK, self.steps))
            done = at / self.steps
            spike = np.where(at >= spike_at, np.exp(-(at - spike_at) / (0.004 * self.steps)), 0.0)
            quiet = 2.6 + 8.2 * (1 + 300 * done) ** -0.55
            loss = quiet * (1 + 1.4 * spike) + random.normal(0, 0.08, len(at))
            rate = 6e-4 * np.minimum(done / 0.02, 0.5 * (1.1 + 0.9 * np.cos(np.pi * done)))
            noise = random.lognormal(0, 0.25, (len(at), count))
            gradient = level * noise * (1 + 12 * spike[:, None]) * (1 + 3 * np.exp(-30 * done[:, None]))
            weight = size * (1 + 0.8 * done[:, None] ** 0.5)
            ratio = 1.6 * rate[:, None] * random.lognormal(0, 0.2, (len(at), count))
            yield Part(at, loss, rate, *(a.astype(np.float32) for a in (gradient, weight, ratio)))


def make_run(training: Training, folder: Path) -> Path:
    """The run directory, made unless it is there."""
    target = folder / f"run-{training.name}"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f"{folder.name}-{training.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    recorder = start_run(training, unfinished)
    for part in training.parts():
        record_part(training, recorder, part)
    recorder.fact(phase(training), training.steps - 1)
    recorder.close()
    assert not recorder.dropped, recorder.dropped
    unfinished.rename(target)
    return target


def start_run(training: Training, folder: Path, flush_seconds: float = FLUSHED) -> Recorder:
    info = {"argv": ["train.py", "--size", "small"], "seeds": {"torch": 11}, "packages": {"torch": "2.13.0"}}
    recorder = Recorder.create(folder, info, flush_seconds=flush_seconds)
    for fact in (*training.parameters(), *training.modules()):
        recorder.fact(fact, 0, fact.name)
    groups = [{"lr": 6e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}]
    recorder.fact(OptimizerFact("0", "AdamW", groups, training.tensors), 0, "0")
    return recorder


def phase(training: Training) -> PhaseFact:
    steps, passes = training.steps, training.steps // VALIDATED
    return PhaseFact(steps, steps, steps, 20 * passes, 0, passes, float(VALIDATED))


def record_part(training: Training, recorder: Recorder, part: Part) -> None:
    """Losses, rates, times and all statistics of every tensor and output, at every step."""
    parameters = tuple(p.name for p in training.parameters())
    outputs = tuple(m.name for m in training.modules())
    tables = _tables(part)
    activations = _activations(part, len(outputs))
    most = min(QUEUED, QUEUED_NUMBERS // (len(tables) * len(parameters)))
    for i, step in enumerate(part.steps.tolist()):
        for name, key, value in _scalars(part, i):
            recorder.scalar(name, step, value, key)
        if step % VALIDATED == VALIDATED - 1:
            recorder.scalar(signals.LOSS_VALIDATION.name, step, float(1.03 * part.loss[i] + 0.05))
        recorder.matrix(step, parameters, {name: table[i] for name, table in tables.items()})
        recorder.matrix(step, outputs, {name: table[i] for name, table in activations.items()})
        while len(recorder._rows) > most:
            time.sleep(0.002)


def _scalars(part: Part, i: int) -> Iterator[tuple[str, str, float]]:
    norm = float(np.sqrt((part.gradient[i] ** 2).sum()))
    beat = 0.21 + 0.02 * float(part.loss[i] % 0.1)
    yield signals.LOSS_TRAIN.name, "", float(part.loss[i])
    yield signals.LEARNING_RATE.name, "0.0", float(part.rate[i])
    yield signals.GRADIENTS_CLEARED.name, "0", 1.0
    yield signals.CLIP_NORM.name, "", norm
    yield signals.CLIP_THRESHOLD.name, "", 1.0
    yield signals.GRADIENT_GLOBAL_L2.name, "0", min(norm, 1.0)
    yield signals.TIME_STEP.name, "", beat
    for signal, share in (
        (signals.TIME_DATA, 0.02),
        (signals.TIME_FORWARD, 0.31),
        (signals.TIME_BACKWARD, 0.56),
        (signals.TIME_OPTIMIZER, 0.08),
        (signals.TIME_OWN, 0.007),
    ):
        yield signal.name, "", share * beat
    yield signals.SAMPLES_PER_SECOND.name, "", 512 / beat
    yield signals.MEMORY_HOST.name, "", 4.1e9
    yield signals.MEMORY_DEVICE.name, "", 3.3e10


def _tables(part: Part) -> dict[str, np.ndarray]:
    """All statistics that are taken of a gradient and of a weight, and how far a step moves it."""
    nothing = np.zeros_like(part.gradient)
    found = {signals.UPDATE_RATIO.name: part.ratio}
    for held, of in ((part.gradient, signals.GRADIENT), (part.weight, signals.WEIGHT)):
        shares = {"l2": 1.0, "std": 0.0013, "absmax": 0.011, "absmean": 0.001, "mean": 1e-5}
        found |= {of[k].name: (share * held).astype(np.float32) for k, share in shares.items()}
        found |= {of[k].name: nothing for k in ("zeros", "tiny", "nonfinite")}
    return found


def _activations(part: Part, count: int) -> dict[str, np.ndarray]:
    base = part.gradient[:, :count] / part.gradient[:, :count].mean(axis=0)
    shares = {"mean": 0.02, "std": 0.9, "absmax": 7.0, "zeros": 0.03, "saturated": 0.02, "dead": 0.01, "nonfinite": 0.0}
    return {signals.ACTIVATION[k].name: (share * base).astype(np.float32) for k, share in shares.items()}


def make_events(training: Training, folder: Path) -> Path:
    """Event files as a user would write them, made unless they are there: loss and rate at every step, the norm of
    every tensor's gradient every THINNED steps, each step's in one event."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    target = folder / f"events-{training.name}"
    if target.exists():
        return target
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    writer = EventFileWriter(str(unfinished / "run"), max_queue_size=1000)
    names = [f"gradient/{p.name}" for p in training.parameters()]
    begun = time.time() - training.steps

    def add(step: int, values: list[Any]) -> None:
        event = Event(step=step, wall_time=begun + step)
        event.summary.CopyFrom(Summary(value=values))
        writer.add_event(event)

    for part in training.parts():
        for i, step in enumerate(part.steps.tolist()):
            values = [("Loss/train", part.loss[i]), ("Loss/rate", part.rate[i])]
            if step % VALIDATED == VALIDATED - 1:
                values.append(("Loss/validation", 1.03 * part.loss[i] + 0.05))
            if step % THINNED == 0:
                values += zip(names, part.gradient[i], strict=True)
            add(step, [Summary.Value(tag=tag, simple_value=float(value)) for tag, value in values])
    writer.close()
    unfinished.rename(target)
    return target
