"""From the outcomes of runs to what they say: which metric, which pairs, which verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchdoctor.distributions.multiplicity import holm
from torchdoctor.engine import examine
from torchdoctor.errors import UsageError
from torchdoctor.experiments.comparison import LEVEL, compare_pairs, noise_of_one, summarise
from torchdoctor.experiments.directions import is_higher_better, read_direction
from torchdoctor.experiments.metrics import (
    LAST,
    MEASURED,
    Metric,
    choose,
    find,
    is_held_out,
    names_of,
    read_text,
)
from torchdoctor.experiments.seed_spread import Against, SeedSpread, VariantSpread, say_same
from torchdoctor.experiments.seeds import FINISHED, Outcome
from torchdoctor.experiments.variants import Variant
from torchdoctor.facts import SeedsFact
from torchdoctor.findings import Verdict
from torchdoctor.rules import find as find_rule
from torchdoctor.run import Run

RULE = "within-seed-noise"


class Reader:
    """What was asked for: the metric, which of its values counts, and which way is better; the rest is found."""

    def __init__(self, metric: str | None = None, which: str = LAST, higher_is_better: bool | None = None) -> None:
        self.metric, self.which, self._higher = metric, which, higher_is_better
        self.others: list[str] = []

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Choose the metric once there are runs to choose from."""
        finished = [o for o in outcomes if o.status == FINISHED]
        if not finished:
            raise UsageError(say_failed(outcomes))
        if self.metric is None:
            recorded = [o.metrics for o in finished if o.metrics]
            if not recorded:
                raise UsageError(
                    "the script ended well, but torchdoctor saw no training in it and no metric; name one that it "
                    "prints with --metric NAME"
                )
            self.metric, self.others = choose(recorded)
        elif all(self.find(o) is None for o in finished):
            known = ", ".join(names_of(o.metrics for o in finished)) or "none"
            raise UsageError(f"no run logged or printed a metric {self.metric!r}; there are: {known}")

    @property
    def higher_is_better(self) -> bool:
        return is_higher_better(self.metric or "") if self._higher is None else self._higher

    @property
    def guesses(self) -> bool:
        """Nobody said which way is better, and the name does not tell."""
        return self._higher is None and read_direction(self.metric or "") is None

    def points_up(self, name: str) -> bool:
        """Whether more is better of that metric, which may be another one than asked for."""
        return self.higher_is_better if name == self.metric else is_higher_better(name)

    def find(self, outcome: Outcome) -> Metric | None:
        assert self.metric is not None
        found = find(outcome.metrics, self.metric)
        if found is None and outcome.log is not None:
            found = read_text(outcome.log, self.metric)
        return found

    def value(self, outcome: Outcome) -> float | None:
        """None for a run that failed or whose value is not finite."""
        metric = self.find(outcome) if outcome.status == FINISHED else None
        number = metric.value(self.which, self.higher_is_better) if metric is not None else math.nan
        return number if math.isfinite(number) else None


def read_variant(variant: Variant, outcomes: Sequence[Outcome], reader: Reader) -> VariantSpread:
    values = [reader.value(o) for o in outcomes]
    finite = [v for v in values if v is not None]
    per_run = [
        {n: m.value(reader.which, reader.points_up(n)) for n, m in o.metrics.items()} if o.status == FINISHED else {}
        for o in outcomes
    ]
    columns = {name: [r[name] for r in per_run if math.isfinite(r.get(name, math.nan))] for name in names_of(per_run)}  # type: ignore[arg-type]
    return VariantSpread(
        name=variant.name,
        command=variant.command,
        how=list(variant.how),
        seed_words=variant.passing.words,
        seeds=[o.seed for o in outcomes],
        values=values,
        spread=summarise(finite) if finite else None,
        failed=[_failure(o) for o, v in zip(outcomes, values, strict=True) if v is None],
        folders=[str(o.folder) if o.folder else None for o in outcomes],
        metrics={name: summarise(found) for name, found in columns.items() if found},
        per_run=per_run,
        settings=dict(variant.settings),
        beginnings=[o.beginning for o in outcomes],
        unmoved=_is_unmoved(outcomes),
        seeded=next(([_call(c) for c in o.seeded] for o in outcomes if o.seeded), []),
    )


def read_spread(
    variants: Sequence[Variant], outcomes: Sequence[Outcome], reader: Reader, claimed: float | None = None
) -> SeedSpread:
    """Variants against the first of them."""
    result = _read(variants, outcomes, reader)
    result.claimed = claimed
    first = result.variants[0]
    held = [(other, a) for other in result.variants[1:] if (a := _hold(first, other, result)) is not None]
    result.against = [against for _, against in held]
    count = _adjust(result.against)
    for other, against in held:
        if not against.same:
            _judge(result, _fact(result, first, other, against, count))
        if claimed is not None:
            result.notes.append(_say_claim(against, claimed, result.higher_is_better))
    spread = first.spread
    if spread is not None and spread.sd is not None and not first.unmoved:
        result.noise = noise_of_one(spread.sd, spread.n)
        if claimed is not None and len(result.variants) == 1:
            fact = SeedsFact(result.metric, result.higher_is_better, first.name, [spread.mean], [spread.sd], spread.n)
            _judge(result, _with(fact, claimed=claimed, noise=result.noise))
    return result


def read_sweep(variants: Sequence[Variant], outcomes: Sequence[Outcome], reader: Reader) -> SeedSpread:
    """All against the best of them, with p values after Holm; the variants by their means, the best first."""
    result = _read(variants, outcomes, reader)
    there = [v for v in result.variants if v.spread is not None]
    if not there:
        raise UsageError(f"no run gave a finite {result.metric}")
    sign = -1.0 if result.higher_is_better else 1.0
    there.sort(key=lambda v: sign * v.spread.mean)  # type: ignore[union-attr]
    result.variants = there + [v for v in result.variants if v.spread is None]
    best = there[0]
    result.best = best.name
    result.against = [a for other in there[1:] if (a := _hold(best, other, result)) is not None]
    _adjust(result.against)
    same = [a for a in result.against if a.same]
    if same:
        result.notes.append(say_same([*(a.name for a in same), best.name], result.metric, all(a.seen for a in same)))
    differing = next((a for a in result.against if not a.same), None)
    if differing is not None:
        second = next(v for v in there if v.name == differing.name)
        reverse = Against(second.name, best.name, compare_pairs(*_pairs(second, best)))
        _judge(result, _with(_fact(result, second, best, reverse), chosen=len(there)))
    return result


def say_failed(outcomes: Sequence[Outcome]) -> str:
    """Why there is nothing to read, with the script's last words."""
    failed = next((o for o in outcomes if o.status != FINISHED and o.log is not None), None)
    if failed is None:
        return "no run has finished; nothing can be said"
    tail = "".join(f"\n  | {line}" for line in failed.tail)
    said = f" ({failed.error})" if failed.error and not tail else ""
    return f"no run has finished: seed {failed.seed} {failed.status}{said}; its output is in {failed.log}{tail}"


def _read(variants: Sequence[Variant], outcomes: Sequence[Outcome], reader: Reader) -> SeedSpread:
    reader.settle(outcomes)
    by_variant = {v.name: [o for o in outcomes if o.variant == v.name] for v in variants}
    assert reader.metric is not None
    result = SeedSpread(
        metric=reader.metric,
        which=reader.which,
        higher_is_better=reader.higher_is_better,
        seeds=sorted({o.seed for o in outcomes}),
        variants=[read_variant(v, by_variant[v.name], reader) for v in variants],
        other_metrics=list(reader.others),
        seconds=sum(o.seconds for o in outcomes if not o.reused),
    )
    result.notes += _notes(result, outcomes, reader)
    return result


def _notes(result: SeedSpread, outcomes: Sequence[Outcome], reader: Reader) -> list[str]:
    notes: list[str] = []
    for variant in result.variants:
        if variant.failed:
            which = ", ".join(f"seed {f['seed']} {f['status']}" for f in variant.failed[:5])
            notes.append(f"{len(variant.failed)} of {len(variant.seeds)} runs of {variant.name} are left out: {which}")
    if reader.guesses:
        notes.append(
            f"that a higher {result.metric} is better is a guess, its name does not tell; --goal min or --goal max "
            "sets it (from code: higher_is_better=)"
        )
    used = next((m for o in outcomes if o.status == FINISHED and (m := reader.find(o)) is not None), None)
    held_out = is_held_out(result.metric) or result.metric.endswith(".validation")
    if used is not None and used.source == MEASURED and not held_out:
        notes.append("no metric of held-out data was found: this is the training loss, the mean over the last steps")
    return notes


def _is_unmoved(outcomes: Sequence[Outcome]) -> bool:
    beginnings = [o.beginning for o in outcomes if o.status == FINISHED]
    return len(beginnings) > 1 and None not in beginnings and len(set(beginnings)) == 1


def _hold(first: VariantSpread, other: VariantSpread, result: SeedSpread) -> Against | None:
    if first.unmoved or other.unmoved:
        return None
    a, b = _pairs(first, other)
    if len(a) < 2:
        count = f"{len(a)} seed" if len(a) == 1 else f"{len(a)} seeds"
        result.notes.append(f"{other.name} cannot be held against {first.name}: both finished with only {count}")
        return None
    seen, same = _compare_beginnings(first, other)
    return Against(first.name, other.name, compare_pairs(a, b), same=a == b and same, seen=seen)


def _compare_beginnings(first: VariantSpread, other: VariantSpread) -> tuple[bool, bool]:
    """Whether the first losses of all pairs were seen, and whether those that were are the same."""
    theirs = dict(zip(other.seeds, zip(other.values, other.beginnings, strict=True), strict=True))
    pairs = [
        (mine, theirs[seed][1])
        for seed, value, mine in zip(first.seeds, first.values, first.beginnings, strict=True)
        if value is not None and seed in theirs and theirs[seed][0] is not None
    ]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return len(known) == len(pairs), all(a == b for a, b in known)


def _adjust(compared: Sequence[Against]) -> int:
    """Holm's p values where there are several; how many. A change that reaches nothing is no attempt to find one."""
    tried = [a for a in compared if not a.same]
    if len(tried) > 1:
        for against, p in zip(tried, holm([a.paired.p for a in tried]), strict=True):
            against.p_adjusted = p
    return len(tried)


def _say_claim(against: Against, claimed: float, higher_is_better: bool) -> str:
    """A gain is counted in the direction that is better."""
    ends = (against.paired.low, against.paired.high)
    low, high = ends if higher_is_better else (-ends[1], -ends[0])
    if low <= claimed <= high:
        return f"the claimed gain of {claimed:g} lies within what these seeds leave possible, {low:.3g} to {high:.3g}"
    more = "more" if claimed > high else "less"
    return f"the claimed gain of {claimed:g} is {more} than these seeds leave possible, {low:.3g} to {high:.3g}"


def _pairs(first: VariantSpread, other: VariantSpread) -> tuple[list[float], list[float]]:
    values = dict(zip(other.seeds, other.values, strict=True))
    both = [
        (a, b)
        for seed, a in zip(first.seeds, first.values, strict=True)
        if a is not None and (b := values.get(seed)) is not None
    ]
    return [a for a, _ in both], [b for _, b in both]


def _fact(
    result: SeedSpread, first: VariantSpread, other: VariantSpread, against: Against, count: int = 1
) -> SeedsFact:
    """`count`: so many comparisons were made. Where that is why one is not shown, its interval is the one that holds
    for all of them at once (Bonferroni's), in which zero is then."""
    pairs = _pairs(first, other)
    a, b = map(summarise, pairs)
    p = against.paired
    if p.told_apart and not against.told_apart:
        p = compare_pairs(*pairs, level=1.0 - (1.0 - LEVEL) / count)
    return SeedsFact(
        metric=result.metric,
        higher_is_better=result.higher_is_better,
        baseline=first.name,
        candidate=other.name,
        means=[a.mean, b.mean],
        deviations=[a.sd or 0.0, b.sd or 0.0],
        n=p.n,
        difference=p.difference,
        low=p.low,
        high=p.high,
        p=against.p,
        seeds_needed=p.seeds_needed,
    )


def _with(fact: SeedsFact, **fields: Any) -> SeedsFact:
    return SeedsFact(**{**fact.to_dict(), **fields})


def _judge(result: SeedSpread, fact: SeedsFact) -> None:
    verdict = examine_fact(fact)
    result.findings += verdict.findings
    result.ruled_out += [r.text for r in verdict.ruled_out]


def examine_fact(fact: SeedsFact) -> Verdict:
    rule = find_rule(RULE)
    return examine(Run.holding(fact), [rule] if rule is not None else [])


def _call(call: dict[str, Any]) -> str:
    at = f" at {Path(str(call['file'])).name}:{call['line']}" if call.get("file") else ""
    return f"{call['call']}({call['given']}){at}"


def _failure(outcome: Outcome) -> dict[str, Any]:
    status = outcome.status if outcome.status != FINISHED else "gave no finite value"
    log = str(outcome.log) if outcome.log is not None and Path(outcome.log).exists() else None
    return {"seed": outcome.seed, "status": status, "error": outcome.error, "log": log, "tail": list(outcome.tail)}
