"""Batch normalisation takes its statistics over one or a few samples.

## What it means
In train mode batch normalisation subtracts the mean of the batch and divides by its standard deviation. Over two or
four samples these are hardly more than the samples themselves: each sample's activation depends on its neighbours, the
gradient is noisy, and in eval mode, where averages of the past are used instead, the model is another function than the
one that was trained. Over a single value the result is zero whatever the input, and torch refuses.

## Why it happens
Small batches for lack of memory; gradient accumulation, which does not enlarge what a normalisation sees; a large
batch split over many devices; a last batch with one sample left over.

## How it is detected
For every batch normalisation in train mode the number of samples under its statistics is read off the graph, and how
far the batch's mean and variance stray from the running ones: the squared distance of the mean over the variance, or
half the squared relative error of the variance, is about 1/n for n independent values. Four samples or fewer on most
looks are a warning if that shows fewer than ten independent values once the running statistics have settled, two or
fewer also where it is not known; else information: large feature maps have many values in each sample. torch's refusal
("Expected more than 1 value per channel") is an error.

## How to fix it
Use a normalisation that does not look at other samples (GroupNorm, LayerNorm), or larger batches; `drop_last=True`
for a last batch that is too small. With pretrained weights keep the normalisations in eval mode. On several devices
SyncBatchNorm takes the statistics over all of them.

## Known false alarms
Normalisations in eval mode, and batches that are small only at the end of an epoch, are not reported. Image translation
with one image a batch may mean batch normalisation to act on that image alone; InstanceNorm says so.

## References
Ioffe and Szegedy, "Batch Normalization" (2015). Wu and He, "Group Normalization" (2018): error rises by a tenth of the
images at two a batch. Ioffe, "Batch Renormalization" (2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import LoaderFact, ModuleFact, OptimizerFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.architecture.depth import reference
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import NORM_NOISE, NORM_SAMPLES

RULE = Rule(
    code="A012",
    name="batchnorm-small-batch",
    family="architecture",
    needs=(OptimizerFact,),
    explains=(
        "batch-too-small",
        "learning-rate-oscillation",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "exploding-gradients",
        "vanishing-gradients",
        "clipping-too-tight",
        "overfitting",
        "underfitting",
        "capacity-too-low",
        "validation-better-than-training",
        "noisy-validation",
        "over-regularized",
        "dead-relu",
        "plateau-or-saddle",
        "miscalibrated",
        "metric-disagrees-with-loss",
    ),
)

FEW, SOME = 2, 4
"""Samples: Wu and He (2018) lose a tenth of the images at two, and a thirtieth at four."""
STRAYING = 0.1
"""Fewer than ten independent values. 32 samples give 0.03."""
SETTLED = 60
"""Steps after which running statistics with the usual momentum of 0.1 have forgotten their start."""
MIN_LOOKS = 3
REFUSED = "Expected more than 1 value per channel"
"""torch.nn.functional.batch_norm on a batch of one in train mode."""


@dataclass(frozen=True)
class Layer:
    name: str
    samples: float
    noise: float


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    failure = run.info.get("exception") or {}
    if REFUSED in str(failure.get("message", "")):
        yield _refused(run)
        return
    layers = _layers(run)
    if not layers:
        return
    few = [layer for layer in layers if layer.samples <= FEW and not layer.noise < STRAYING]
    some = [layer for layer in layers if layer.samples <= SOME]
    straying = [layer for layer in some if layer.noise >= STRAYING]
    if some:
        yield _finding(run, few, some, straying)
        return
    least = min(layer.samples for layer in layers)
    yield RuledOut(RULE.name, f"batch statistics are taken over {least:.0f} samples", NORM_SAMPLES.name, least)


def _layers(run: Run) -> list[Layer]:
    samples, noise = run.matrix(NORM_SAMPLES), run.matrix(NORM_NOISE)
    found = []
    for name in samples.columns:
        counts = samples.column(name).values
        counts = counts[np.isfinite(counts)]
        if len(counts) < MIN_LOOKS:
            continue
        settled = noise.steps >= min(SETTLED, run.steps // 4)
        strayed = noise.column(name).values[settled] if name in noise.columns else np.zeros(0)
        strayed = strayed[np.isfinite(strayed)]
        known = len(strayed) >= MIN_LOOKS
        found.append(Layer(name, float(np.median(counts)), float(np.median(strayed)) if known else math.nan))
    return found


def _finding(run: Run, few: list[Layer], some: list[Layer], straying: list[Layer]) -> Finding:
    worst = max(some, key=lambda layer: (-layer.samples, layer.noise if math.isfinite(layer.noise) else 0.0))
    noisiest = max(straying, key=lambda layer: layer.noise) if straying else None
    evidence = [
        Evidence(
            f"statistics over {worst.samples:.0f} samples in {len(some)} batch normalisation{'s'[: len(some) - 1]} in "
            "train mode",
            NORM_SAMPLES.name,
            worst.samples,
            float(SOME),
        )
    ]
    if noisiest is not None:
        evidence.append(
            Evidence(
                f"{noisiest.name}: a batch's statistics stray from the running ones as those of "
                f"{1 / noisiest.noise:.1f} independent values would",
                NORM_NOISE.name,
                noisiest.noise,
                STRAYING,
            )
        )
    is_grave = bool(few or straying)
    shown = noisiest or worst
    return RULE.finding(
        severity=Severity.WARNING if is_grave else Severity.INFO,
        confidence=0.9 if straying else 0.75,
        proof=Proof.STRUCTURE,
        title=f"batch normalisation over {worst.samples:.0f} samples ({shown.name})",
        summary="With so few samples the statistics of a batch are mostly noise: what a sample is turned into depends "
        "on its neighbours, and eval mode, which uses running averages, computes something else than was trained."
        if is_grave
        else "So few samples are risky; here each brings enough values of its own for the statistics to hold.",
        where=[Place(module=layer.name) for layer in (straying or some)[:4]],
        evidence=evidence,
        fix=Fix(
            "Use GroupNorm or LayerNorm instead, or larger batches (accumulating gradients does not help here).",
            _replacement(run, shown.name),
        ),
        symptoms=("validation-jumps", "oscillating") if is_grave else (),
    )


def _replacement(run: Run, name: str) -> str:
    fact: ModuleFact | None = run.modules.get(name)
    weight = run.parameters.get(f"{name}.weight")
    width = weight.shape[0] if weight and weight.shape else fact.units if fact else None
    channels = str(width) if width else "channels"
    groups = math.gcd(width, 8) if width else 8
    return f"{reference(name)} = nn.GroupNorm({groups}, {channels})"


def _refused(run: Run) -> Finding:
    loaders = [f for f in run.facts(LoaderFact) if f.samples and f.batch_size and f.batch_size > 1]
    left = next((f for f in loaders if (f.samples or 0) % (f.batch_size or 1) == 1), None)
    evidence = [Evidence("torch refused: more than one value per channel is needed in train mode", value=1.0)]
    if left is not None:
        text = f"{left.samples} samples in batches of {left.batch_size} leave a last batch of one"
        evidence.append(Evidence(text, "loader", 1.0))
    failure = run.info.get("exception") or {}
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.98,
        proof=Proof.STRUCTURE,
        title="a batch of one sample reached a batch normalisation in train mode",
        summary="The mean of a single value is the value, so nothing would be left of it; torch stops the run.",
        where=[Place(file=failure.get("file"), line=failure.get("line"))] if failure.get("file") else [],
        evidence=evidence,
        fix=Fix(
            "Drop the last batch, which is incomplete; or use LayerNorm or GroupNorm."
            if left is not None or not loaders
            else "Use larger batches, LayerNorm or GroupNorm; in evaluation call model.eval() first.",
            "loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)",
        ),
    )
