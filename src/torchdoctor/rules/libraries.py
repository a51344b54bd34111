"""Findings about code in installed packages: an info each, and once, since the user cannot change that code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchdoctor.findings import Evidence, Finding, Place, Severity
from torchdoctor.rules.rule import LoadedRule
from torchdoctor.run import Run


class Ownership:
    """Which lines and parameters of a run belong to installed packages, by the facts that were seen there."""

    def __init__(self, run: Run) -> None:
        self._lines: dict[tuple[str, int], set[str | None]] = {}
        for seen in run.seen:
            fact = seen.fact
            file, line = getattr(fact, "file", None), getattr(fact, "line", None)
            if isinstance(file, str) and isinstance(line, int) and hasattr(fact, "library"):
                self._lines.setdefault((file, line), set()).add(fact.library)
        self._parameters = {name: fact.library for name, fact in run.parameters.items()}
        self._modules: dict[str, set[str | None]] = {}
        for fact in run.parameters.values():
            self._modules.setdefault(fact.module, set()).add(fact.library)

    def library_of(self, finding: Finding) -> str | None:
        """Return the package that all places of a finding lie in. Lines decide where there are any."""
        lines = [place for place in finding.where if place.file]
        owners: set[str | None] = set()
        for place in lines or finding.where:
            owners |= self._owners(place)
        return min((o for o in owners if o), default=None) if owners and None not in owners else None

    def _owners(self, place: Place) -> set[str | None]:
        if place.file:
            return self._lines.get((place.file, place.line or 0), {None})
        if place.parameter:
            return {self._parameters.get(place.parameter)}
        return self._modules.get(place.module or "", {None})


def limit(findings: Iterable[Finding], rules: Sequence[LoadedRule], run: Run) -> list[Finding]:
    """Lower findings about a library's code to infos, and join those of one diagnosis and library."""
    of_code = {r.rule.name for r in rules if r.rule.of_code}
    ownership = Ownership(run)
    kept: list[Finding] = []
    joined: dict[tuple[str, str], int] = {}
    for finding in findings:
        library = ownership.library_of(finding) if finding.name in of_code else None
        if library is None:
            kept.append(finding)
            continue
        first = joined.setdefault((finding.name, library), len(kept))
        if first == len(kept):
            note = Evidence(f"the code belongs to the installed package {library}; these places call it")
            kept.append(replace(finding, severity=Severity.INFO, evidence=(*finding.evidence, note)))
        else:
            places = dict.fromkeys((*kept[first].where, *finding.where))
            kept[first] = replace(kept[first], where=tuple(places))
    return kept
