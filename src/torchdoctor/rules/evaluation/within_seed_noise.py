"""A claimed gain is smaller than the spread over seeds.

## What it means
The same program started with another seed gives another number. The difference between the two variants is no larger
than what seeds alone do, so these runs do not show that one is better. They do not show that both are equally good,
either: there may be too few of them.

## Why it happens
- One run of each was compared, and the better one was lucky.
- The best of many configurations was picked by one run each; the luckiest of them wins.
- The gain is real but small against the spread, as gains of well-tuned models are.

## How it is detected
`torchdoctor seeds --compare other.py` or `--with lr=3e-4` runs both variants with the same seeds. The finding stands if
the 95 % interval of the mean paired difference (Student's t) holds zero. With `--claim GAIN` a gain that was seen
between two single runs is held against the difference that two runs of one program reach by their seeds in 95 of 100
pairs. It is an info where the best of a sweep cannot be told from the second. One run alone says nothing about seeds,
so this is never examined there.

## How to fix it
Run as many seeds as the verdict names, or keep the simpler variant. Report mean, standard deviation and the number of
seeds instead of the best run, and give both variants the same seeds. Choose by validation data, report on a test set.

## Known false alarms
With two or three seeds hardly anything can be told apart; more seeds may show the gain after all. Seeds that fail or
diverge are left out, and a variant that diverges less often may be the better one for that reason.

## References
Bouthillier et al., "Accounting for Variance in Machine Learning Benchmarks", 2021. Colas et al., "How Many Random
Seeds?", 2018. Picard, "torch.manual_seed(3407) is all you need", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import SeedsFact
from torchdoctor.findings import Evidence, Finding, Fix, RuledOut, Severity
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(code="E010", name="within-seed-noise", family="evaluation", needs=(SeedsFact,))

PLAIN, BARELY = 0.9, 0.7
DOUBTFUL_P = 0.2
"""Below this a few more seeds may well tell the variants apart."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    seeds = run.last_fact(SeedsFact)
    if seeds is None:
        return
    if seeds.candidate is not None:
        yield from _judge_pairs(seeds)
    elif seeds.claimed is not None and seeds.noise is not None:
        yield from _judge_claim(seeds, seeds.claimed, seeds.noise)


def _judge_pairs(seeds: SeedsFact) -> Iterator[Finding | RuledOut]:
    if seeds.difference is None or seeds.low is None or seeds.high is None or seeds.p is None:
        return
    size = abs(seeds.difference)
    interval = f"{figure(seeds.low)} to {figure(seeds.high)}"
    if not seeds.low <= 0.0 <= seeds.high:
        better = (seeds.difference > 0) is seeds.higher_is_better
        words = f"{seeds.candidate} is {'better' if better else 'worse'} than {seeds.baseline} by {figure(size)}"
        yield RuledOut(
            RULE.name, f"{words} over {seeds.n} seeds, 95 % interval {interval}", "difference", seeds.difference
        )
        return
    picked = f", the best of {seeds.chosen} configurations," if seeds.chosen else ""
    yield RULE.finding(
        severity=Severity.INFO if seeds.chosen else Severity.WARNING,
        confidence=PLAIN if seeds.p > DOUBTFUL_P else BARELY,
        title=f"the difference between {seeds.candidate} and {seeds.baseline} is within the noise of seeds",
        summary=f"{seeds.candidate}{picked} differs from {seeds.baseline} by {figure(size)} in {seeds.metric} over "
        f"{seeds.n} seeds; the true difference lies between {figure(seeds.low)} and {figure(seeds.high)} in 95 of 100 "
        "such experiments, and zero is among that.",
        evidence=[
            Evidence(
                f"mean paired difference {figure(seeds.difference)}, 95 % interval {interval}",
                "difference",
                seeds.difference,
                0.0,
            ),
            Evidence(f"paired t test: p = {figure(seeds.p)}", "p", seeds.p, 0.05),
            Evidence(_spreads(seeds), "sd", max(seeds.deviations)),
        ],
        fix=Fix(_more(seeds)),
        symptoms=("runs-differ",),
    )


def _judge_claim(seeds: SeedsFact, claimed: float, noise: float) -> Iterator[Finding | RuledOut]:
    if abs(claimed) > noise:
        words = f"a gain of {figure(abs(claimed))} in {seeds.metric} is more than seeds do to two single runs"
        yield RuledOut(RULE.name, f"{words}, {figure(noise)} in 95 of 100 pairs", "noise", noise)
        return
    yield RULE.finding(
        severity=Severity.WARNING,
        confidence=PLAIN,
        title=f"a gain of {figure(abs(claimed))} in {seeds.metric} is within the noise of seeds",
        summary=f"Two single runs of {seeds.baseline} differ by up to {figure(noise)} in {seeds.metric} for no other "
        f"reason than their seeds, in 95 of 100 pairs; the claimed gain is {figure(abs(claimed))}.",
        evidence=[
            Evidence(f"claimed gain {figure(abs(claimed))}, noise of two single runs {figure(noise)}", "noise", noise),
            Evidence(_spreads(seeds), "sd", max(seeds.deviations)),
        ],
        fix=Fix(
            "Run both variants with several seeds each and compare them pair by pair.",
            "torchdoctor seeds -n 5 train.py --compare other.py",
        ),
        symptoms=("runs-differ",),
    )


def _spreads(seeds: SeedsFact) -> str:
    names = (seeds.baseline, seeds.candidate)
    parts = [
        f"{name} {figure(mean)} with a standard deviation of {figure(sd)}"
        for name, mean, sd in zip(names, seeds.means, seeds.deviations, strict=False)
    ]
    return f"{seeds.metric} over {seeds.n} seeds: {', '.join(parts)}"


def _more(seeds: SeedsFact) -> str:
    if seeds.seeds_needed is None:
        return "Take the difference for none: no affordable number of seeds would show it. Keep the simpler variant."
    if seeds.seeds_needed <= seeds.n:
        return "A few more seeds may show a difference of this size; until then keep the simpler variant."
    return (
        f"A difference of this size takes about {seeds.seeds_needed:,} seeds of each to be found in 80 of 100 "
        "attempts; run those, or keep the simpler variant."
    )
