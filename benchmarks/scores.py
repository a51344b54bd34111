"""Outcomes counted: what was named, how soon, how often for nothing, and whether stated confidence can be believed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import peers
from trials import GRADES, UNGRADED, Outcome

BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Edges of stated confidence."""
Rows = list[list[str]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of(part: Sequence[object], whole: Sequence[object]) -> str:
    """12/13 (92 %)."""
    if not whole:
        return ""
    return f"{len(part)}/{len(whole)} ({100 * len(part) / len(whole):.0f} %)"


def sick(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if o.trial.truth is not None]


def healthy(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [o for o in outcomes if o.trial.truth is None]


def counted(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Those that must be named: mild ones may be missed."""
    return [o for o in sick(outcomes) if o.trial.grade != "mild"]


def mild(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [o for o in sick(outcomes) if o.trial.grade == "mild"]


def alarms(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [o for o in healthy(outcomes) if o.grave]


def summary(outcomes: list[Outcome]) -> Rows:
    must, may, sound = counted(outcomes), mild(outcomes), healthy(outcomes)
    by_name = _grouped(must, lambda o: o.trial.diagnosis)
    weak = [name for name, group in by_name.items() if sum(o.named_first for o in group) < 0.8 * len(group)]
    rows = [
        ["medium, severe and ungraded faults: named first", of([o for o in must if o.named_first], must)],
        ["the same: named at all", of([o for o in must if o.named], must)],
        ["diagnoses under 80 % named first", f"{len(weak)} of {len(by_name)}" + (f": {_listed(weak)}" if weak else "")],
        ["mild faults: named first", of([o for o in may if o.named_first], may)],
        ["mild faults: named at all", of([o for o in may if o.named], may)],
        ["healthy runs with an error or a warning", of(alarms(outcomes), sound)],
        ["runs without a verdict", of([o for o in outcomes if o.error], outcomes)],
    ]
    return [row for row in rows if row[1]]


def by_diagnosis(outcomes: list[Outcome]) -> Rows:
    rows = []
    for name, group in sorted(_grouped(sick(outcomes), lambda o: o.trial.diagnosis).items()):
        must, may = counted(group), mild(group)
        twins = [o for o in healthy(outcomes) if o.trial.diagnosis == name]
        rows.append(
            [
                name,
                str(len({o.trial.case for o in group})),
                of([o for o in must if o.named_first], must),
                of([o for o in must if o.named], must),
                of([o for o in may if o.named_first], may),
                of([o for o in may if o.named], may),
                _told(group),
                of([o for o in twins if o.grave], twins),
            ]
        )
    return rows


def _told(group: list[Outcome]) -> str:
    """Median step of the first report, for each grade there is, with the runs' median length."""
    said = []
    for grade in (UNGRADED, *GRADES):
        told = [o for o in group if o.trial.grade == grade and o.told_at is not None]
        if told:
            steps = statistics.median(o.told_at or 0 for o in told)
            length = statistics.median(o.steps for o in told)
            said.append(f"{grade + ' ' if grade else ''}{steps:.0f} of {length:.0f}")
    return ", ".join(said)


def calibration(outcomes: list[Outcome]) -> Rows:
    """Errors and warnings that stand by themselves: of those as sure as this, how many named the planted fault."""
    stated: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for outcome in outcomes:
        for finding in outcome.grave:
            if finding["consequence_of"] is None:
                confidence = float(finding["confidence"])
                place = max(i for i, low in enumerate(BINS[:-1]) if confidence >= low)
                stated[place].append((confidence, finding["name"] == outcome.trial.truth))
    rows = []
    for place in sorted(stated):
        said = stated[place]
        right = [s for s in said if s[1]]
        mean = statistics.mean(c for c, _ in said)
        rows.append([f"{BINS[place]:.2f} to {BINS[place + 1]:.2f}", f"{mean:.2f}", of(right, said)])
    return rows


def by_peer(outcomes: list[Outcome]) -> Rows:
    """Each published rule: on the faults that it means, on other faults, on healthy runs."""
    rows = []
    sound, unsound = healthy(outcomes), counted(outcomes)
    for rule in peers.RULES:
        fired = [o for o in outcomes if rule.name in o.peers.get(rule.peer, ())]
        meant = [o for o in unsound if o.trial.truth in rule.means]
        other = [o for o in unsound if o.trial.truth not in rule.means]
        hits = [[o for o in fired if o in among] for among in (meant, other, sound)]
        rows.append([rule.peer, rule.name, of(hits[0], meant), of(hits[1], other), of(hits[2], sound)])
    return rows


def peers_together(outcomes: list[Outcome]) -> Rows:
    """A tool as a whole: a fault counts as named where any of its rules that means it fires."""
    unsound, sound = counted(outcomes), healthy(outcomes)
    rows = []
    for peer in dict.fromkeys(rule.peer for rule in peers.RULES):
        named = [o for o in unsound if any(o.trial.truth in peers.means(peer, n) for n in o.peers.get(peer, ()))]
        rows.append([peer, of(named, unsound), of([o for o in sound if o.peers.get(peer)], sound)])
    first = [o for o in unsound if o.named_first]
    rows.append(["torchdoctor (named first)", of(first, unsound), of(alarms(outcomes), sound)])
    return rows


def misses(outcomes: list[Outcome]) -> list[str]:
    said = []
    for outcome in sick(outcomes):
        if not outcome.named_first:
            found = outcome.error or ", ".join(_brief(f) for f in outcome.findings[:3]) or "nothing"
            at = " (named later)" if outcome.named else ""
            said.append(f"{outcome.trial.label}: {found}{at}")
    return said


def false_alarms(outcomes: list[Outcome]) -> list[str]:
    return [f"{o.trial.label}: {', '.join(_brief(f) for f in o.grave[:3])}" for o in alarms(outcomes)]


def failures(outcomes: list[Outcome]) -> list[str]:
    broken = [f"{o.trial.label}: rule failed: {text}" for o in outcomes for text in o.failed_rules]
    return broken + [f"{o.trial.label}: {o.error}" for o in healthy(outcomes) if o.error]


def _brief(finding: dict[str, object]) -> str:
    return f"{finding['name']} ({finding['severity']}, {finding['confidence']:.2f})"


def _grouped(outcomes: Iterable[Outcome], by: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[by(outcome)].append(outcome)
    return groups


def _listed(names: list[str]) -> str:
    return ", ".join(sorted(names))
