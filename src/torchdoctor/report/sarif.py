"""A verdict as SARIF 2.1.0, the format that code scanning reads."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchdoctor.findings import Finding, Place, Severity, Silenced, Verdict
from torchdoctor.opening import current_folder
from torchdoctor.report.headlines import headline_of
from torchdoctor.report.json import encode
from torchdoctor.report.sheet import shorten
from torchdoctor.report.text import clean
from torchdoctor.rules import find

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def dump(verdict: Verdict) -> str:
    cwd = current_folder()
    named = dict.fromkeys([f.name for f in verdict.findings] + [s.name for s in verdict.silenced])
    results = [_result(f, cwd) for f in verdict.findings] + [_suppressed(s, cwd) for s in verdict.silenced]
    ending = {"headline": headline_of(verdict).title, **asdict(verdict.ending)}
    driver = {"name": "torchdoctor", "version": _version(), "rules": [_rule(name) for name in named]}
    told = {"tool": {"driver": driver}, "results": results, "properties": ending}
    return encode({"$schema": SCHEMA, "version": "2.1.0", "runs": [told]})


def _rule(name: str) -> dict[str, Any]:
    loaded = find(name)
    described: dict[str, Any] = {"id": name}
    if loaded is not None:
        described["name"] = loaded.rule.code
        described["shortDescription"] = {"text": loaded.title}
        described["help"] = {"text": loaded.sections.get("How to fix it") or loaded.title}
        described["properties"] = {"tags": [loaded.rule.family]}
    return described


def _result(finding: Finding, cwd: Path) -> dict[str, Any]:
    fix = "\n".join(filter(None, (clean(finding.fix.text), finding.fix.lead, finding.fix.listing)))
    return {
        "ruleId": finding.name,
        "level": LEVELS[finding.severity],
        "rank": round(100 * finding.confidence, 1),
        "message": {"text": f"{clean(finding.title)}. {clean(finding.summary)}\n{fix}"},
        "locations": [_location(place, cwd) for place in finding.where],
        "properties": {
            "firstStep": finding.first_step,
            "consequenceOf": finding.consequence_of,
            "symptoms": list(finding.symptoms),
            "evidence": [e.text for e in finding.evidence],
        },
    }


def _suppressed(silenced: Silenced, cwd: Path) -> dict[str, Any]:
    return {
        "ruleId": silenced.name,
        "level": "note",
        "message": {"text": clean(silenced.title)},
        "locations": [_location(Place(file=silenced.file, line=silenced.line), cwd)],
        "suppressions": [{"kind": "inSource"}],
    }


def _location(place: Place, cwd: Path) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if place.file:
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place.file, cwd)}}
        if place.line:
            location["physicalLocation"]["region"] = {"startLine": place.line}
    named = place.parameter or place.module
    if named:
        kind = "variable" if place.parameter else "module"
        location["logicalLocations"] = [{"fullyQualifiedName": named, "kind": kind}]
    return location


def _uri(file: str, cwd: Path) -> str:
    short = Path(shorten(file, cwd))
    return short.as_uri() if short.is_absolute() else quote(short.as_posix())


def _version() -> str:
    try:
        return version("torchdoctor")
    except PackageNotFoundError:
        return "0"
