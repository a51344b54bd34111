"""Rules x run -> a verdict: findings ranked, consequences under their causes. The same live and afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchdoctor.findings import Finding, NotExamined, Proof, RuledOut, Severity, Verdict
from torchdoctor.rules import LoadedRule, catalogue
from torchdoctor.rules.rule import FAMILIES
from torchdoctor.run import Run

log = logging.getLogger("torchdoctor")


def examine(run: Run, rules: Sequence[LoadedRule] | None = None) -> Verdict:
    """Ask every rule about the run and rank what they say.

    A rule that raises is our bug, not the user's: it is logged and listed as not examined.
    """
    rules = catalogue() if rules is None else rules
    findings: list[Finding] = []
    ruled_out: list[RuledOut] = []
    not_examined: list[NotExamined] = []
    examined: list[str] = []
    for loaded in rules:
        missing = loaded.rule.missing(run)
        if missing:
            not_examined.append(NotExamined(loaded.rule.name, missing))
            continue
        try:
            said = list(loaded.detect(run))
        except Exception:
            log.exception("rule %s failed; please report this", loaded.rule.name)
            not_examined.append(NotExamined(loaded.rule.name, ("a rule without a bug (see the log)",)))
            continue
        examined.append(loaded.rule.name)
        findings.extend(f for f in said if isinstance(f, Finding))
        ruled_out.extend(r for r in said if isinstance(r, RuledOut))
    standing = {f.name for f in findings}
    return Verdict(
        run=run.info,
        findings=rank(link(findings, rules), rules),
        ruled_out=tuple(r for r in ruled_out if r.name not in standing),
        not_examined=tuple(not_examined),
        examined=tuple(examined),
    )


def link(findings: Iterable[Finding], rules: Sequence[LoadedRule]) -> list[Finding]:
    """Set `consequence_of` on findings that another standing finding explains.

    The first cause in rank order wins; an info never explains away an error or a warning; chains point at the
    immediate cause, and a finding never ends up, however indirectly, as its own cause.
    """
    explains = {r.rule.name: set(r.rule.explains) for r in rules}
    ordered = list(rank(findings, rules))
    cause_of: dict[str, str] = {}

    def is_behind(cause: str, effect: str) -> bool:
        while cause in cause_of:
            cause = cause_of[cause]
            if cause == effect:
                return True
        return cause == effect

    for effect in ordered:
        for cause in ordered:
            if effect.name not in explains.get(cause.name, ()) or is_behind(cause.name, effect.name):
                continue
            if cause.severity is Severity.INFO and effect.severity is not Severity.INFO:
                continue
            cause_of[effect.name] = cause.name
            break
    return [replace(f, consequence_of=cause_of.get(f.name)) for f in ordered]


def rank(findings: Iterable[Finding], rules: Sequence[LoadedRule]) -> tuple[Finding, ...]:
    """Causes before consequences, then by severity, structural proof, family, confidence."""
    fallback = {r.rule.name for r in rules if r.rule.fallback}

    def key(f: Finding) -> tuple[object, ...]:
        return (
            f.severity is Severity.INFO,
            f.consequence_of is not None,
            f.name in fallback,
            f.severity.rank,
            f.proof is not Proof.STRUCTURE,
            FAMILIES.index(f.family),
            -f.confidence,
            f.first_step if f.first_step is not None else -1,
            f.code,
        )

    return tuple(sorted(findings, key=key))
