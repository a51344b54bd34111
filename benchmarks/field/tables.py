"""The field's results as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from field.outcomes import Outcome
from field.projects import COUNTED, HALVES
from field.scoring import chance, grouped, score
from scores import table

HEAD = ["", "right first", "found", "healthy alarmed"]


def summary(outcomes: Sequence[Outcome]) -> str:
    """All figures, per half and together."""
    rows = []
    for name in (*HALVES, "together"):
        part = [o for o in outcomes if name in ("together", o.half)]
        if not part:
            continue
        s = score(part)
        rows.append(
            [
                name,
                str(len({o.project for o in part})),
                *(e.percent() for e in (s.right_first, s.found, s.alarmed)),
                s.time.ratio(),
                f"{s.memory.value:+.0f} MB",
                s.equal.percent(),
                str(s.failed),
                chance(part).percent(),
            ]
        )
    head = ["half", "projects", *HEAD[1:], "time beside bare", "memory", "results equal", "no verdict"]
    return table([*head, "right first with shuffled labels"], rows)


def by_kind(outcomes: Iterable[Outcome]) -> str:
    return _by(outcomes, "kind of program", lambda o: o.kind)


def by_style(outcomes: Iterable[Outcome]) -> str:
    return _by(outcomes, "style of loop", lambda o: o.style)


def by_category(outcomes: Iterable[Outcome]) -> str:
    return _by(outcomes, "category", lambda o: o.category)


def by_diagnosis(outcomes: Iterable[Outcome]) -> str:
    """Faults by the first accepted name; those that the catalogue has no name for stand together."""
    faults = [o for o in outcomes if not o.is_healthy]
    return _by(faults, "diagnosis", lambda o: (o.accepted or ("no name in the catalogue",))[0])


def _by(outcomes: Iterable[Outcome], what: str, key) -> str:  # type: ignore[no-untyped-def]
    rows = []
    for name, group in grouped(outcomes, key).items():
        s = score(group)
        rows.append([name, s.right_first.percent(), s.found.percent(), s.alarmed.percent()])
    return table([what, *HEAD[1:]], rows)


def by_tool(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """Tools, by title, on the same programs."""
    rows = []
    for title, part in outcomes.items():
        s = score(part)
        rates = (s.right_first, s.found, s.alarmed)
        crashes = sum(o.bare.status == 0 and o.recorded.status != 0 for o in part)
        rows.append(
            [
                title,
                f"{s.attached} of {len(part)}",
                *(e.percent() for e in rates),
                s.time.ratio(),
                s.equal.percent(),
                str(crashes),
            ]
        )
    return table(["tool", "attached", *HEAD[1:], "time beside bare", "results equal", "crashed"], rows)


def misses(outcomes: Iterable[Outcome]) -> list[str]:
    """Describe what was said instead of the right cause, for cases that may be read."""
    faults = [o for o in outcomes if not o.is_healthy and not o.is_right_first and o.half != COUNTED]
    return [f"{o.label} ({' or '.join(o.accepted or ()) or 'no name'}): {_said(o)}" for o in faults]


def alarms(outcomes: Iterable[Outcome]) -> list[str]:
    """Healthy programs that were alarmed, with the finding. Only of cases that may be read."""
    alarmed = [o for o in outcomes if o.is_healthy and o.is_alarmed and o.half != COUNTED]
    return [f"{o.label}: {_said(o)}" for o in alarmed]


def unequal(outcomes: Iterable[Outcome]) -> list[str]:
    """Programs that ended otherwise than bare, but not otherwise than themselves. Labels of the counted half are not
    shown."""
    different = [o for o in outcomes if o.is_repeatable and not o.is_equal]
    lines = [
        f"{o.label}: status {o.bare.status} and {o.recorded.status}, {o.bare.metrics} and {o.recorded.metrics}"
        for o in different
        if o.half != COUNTED
    ]
    hidden = Counter(o.half for o in different)[COUNTED]
    return lines + ([f"{hidden} of the counted half"] if hidden else [])


def comparison(before: Sequence[Outcome], after: Sequence[Outcome], names: tuple[str, str]) -> str:
    """Two builds on the cases that both have seen, and every case of the learning half that changed."""
    both = {o.label for o in before} & {o.label for o in after}
    old, new = ([o for o in part if o.label in both] for part in (before, after))
    rows = []
    for name, part in zip(names, (old, new), strict=True):
        s = score(part)
        rows.append([name, *(e.percent() for e in (s.right_first, s.found, s.alarmed)), s.time.ratio()])
    lines = [table(["build", *HEAD[1:], "time beside bare"], rows), ""]
    earlier = {o.label: o for o in old}
    for outcome in sorted(new, key=lambda o: o.label):
        was = earlier[outcome.label]
        if (was.is_right_first, was.is_alarmed) != (outcome.is_right_first, outcome.is_alarmed):
            if outcome.half == COUNTED:
                continue
            lines.append(f"- {outcome.label}: {_said(was)} became {_said(outcome)}")
    hidden = sum(o.half == COUNTED and earlier[o.label].is_right_first != o.is_right_first for o in new)
    return "\n".join([*lines, *([f"- {hidden} cases of the counted half"] if hidden else [])])


def _said(outcome: Outcome) -> str:
    if outcome.verdict.error:
        return outcome.verdict.error
    shown = outcome.grave or outcome.verdict.findings
    return ", ".join(f"{f['name']} ({f['severity']}, {f['confidence']:.2f})" for f in shown[:3]) or "nothing"
