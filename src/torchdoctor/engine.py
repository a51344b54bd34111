"""Rules x run -> a verdict: findings ranked, consequences under their causes. The same live and afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torchdoctor.facts import HealthFact, LibraryWarningFact, RemedyFact
from torchdoctor.findings import (
    RULE_FAILED,
    Evidence,
    Finding,
    NotExamined,
    Proof,
    RuledOut,
    Severity,
    Silenced,
    Verdict,
)
from torchdoctor.fixes import fit_fix
from torchdoctor.last_seen import Ranks
from torchdoctor.permits import find_permit
from torchdoctor.rules import LoadedRule, catalogue, libraries, remedies
from torchdoctor.rules.ending import judge_ending
from torchdoctor.rules.rule import FAMILIES
from torchdoctor.rules.scope import describe_scope
from torchdoctor.rules.thresholds import adjust
from torchdoctor.run import Run
from torchdoctor.settings import Settings

log = logging.getLogger("torchdoctor")

ACROSS_RANKS = "ranks-out-of-sync"
"""The diagnosis that compares ranks; as long as there is no rule for it, nobody has looked."""


def examine(run: Run, rules: Sequence[LoadedRule] | None = None, settings: Settings | None = None) -> Verdict:
    """Ask every rule about the run and rank what they say; `settings` chooses, grades and silences.

    A rule that raises is our bug, not the user's: it is logged, and listed as not examined with what it raised.
    """
    rules = catalogue() if rules is None else rules
    settings = settings or Settings()
    rules = [adjust(r, settings.thresholds.get(r.rule.name, {})) for r in rules if settings.wants(r.rule.name)]
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
        except Exception as error:
            what = f"{RULE_FAILED}: {type(error).__name__}: {error}"
            log.warning("%s (%s); please report this", what, loaded.rule.name)
            log.debug("rule %s failed", loaded.rule.name, exc_info=True)
            not_examined.append(NotExamined(loaded.rule.name, (what,)))
            continue
        examined.append(loaded.rule.name)
        scope = describe_scope(run, loaded.rule)
        findings.extend(_within(f, scope) for f in said if isinstance(f, Finding))
        ruled_out.extend(_limited(r, scope) for r in said if isinstance(r, RuledOut))
    if len(Ranks.of(run.info).seen) > 1 and ACROSS_RANKS not in {r.rule.name for r in rules}:
        not_examined.append(NotExamined(ACROSS_RANKS, ("ranks",)))
    findings = libraries.limit(findings, rules, run)
    findings, silenced = silence([grade(f, settings) for f in findings], settings)
    standing = {f.name for f in findings}
    return Verdict(
        run=describe(run),
        findings=tuple(
            replace(f, fix=fit_fix(f.fix, f.where, run, settings.folders)) for f in rank(link(findings, rules), rules)
        ),
        ruled_out=tuple(r for r in ruled_out if r.name not in standing),
        not_examined=tuple(not_examined),
        examined=tuple(examined),
        silenced=silenced,
        families={r.rule.name: r.rule.family for r in rules},
        ending=judge_ending(run),
    )


def _within(finding: Finding, scope: str) -> Finding:
    """The finding with what it was looked for in, where that is not the whole batch."""
    looked = (Evidence(f"only {scope} was examined"),) if scope else ()
    return replace(finding, evidence=(*finding.evidence, *looked))


def _limited(ruled_out: RuledOut, scope: str) -> RuledOut:
    return replace(ruled_out, text=f"in {scope}, {ruled_out.text}") if scope else ruled_out


def grade(finding: Finding, settings: Settings) -> Finding:
    """As grave as the project says, where it says so."""
    wanted = settings.severity.get(finding.name)
    return replace(finding, severity=Severity(wanted)) if wanted else finding


def silence(findings: list[Finding], settings: Settings) -> tuple[list[Finding], tuple[Silenced, ...]]:
    """Those that stand, and those that a comment on their line allows."""
    permits = [(f, find_permit(f, settings.folders)) for f in findings]
    silenced = [Silenced(f.name, f.code, f.title, p.file or "", p.line or 0) for f, p in permits if p is not None]
    return [f for f, p in permits if p is None], tuple(silenced)


def describe(run: Run) -> dict[str, Any]:
    """The run's own record, with what the facts add to it: steps, hyperparameters, the overhead reached."""
    described = dict(run.info)
    described["steps"] = run.steps
    described["finished"] = run.finished
    described["hyperparameters"] = [
        {"optimizer": o.type, "key": o.key, "groups": o.groups} for o in run.optimizers.values()
    ]
    health = run.last_fact(HealthFact)
    described["overhead"] = health.overhead if health else None
    remedy = run.last_fact(RemedyFact)
    if remedy is not None:
        described["on_nonfinite"] = remedy.to_dict() | {"text": "; ".join(remedies.describe(run))}
    warned = [fact.to_dict() for fact in run.facts(LibraryWarningFact)]
    if warned:
        described["warnings"] = warned
    return described


def link(findings: Iterable[Finding], rules: Sequence[LoadedRule]) -> list[Finding]:
    """Set `consequence_of` on findings that another standing finding explains.

    The first cause in rank order wins; an info never explains away an error or a warning; a finding never ends up,
    however indirectly, as its own cause: where two explain each other, the one that ranks first is the cause.
    """
    explains = {r.rule.name: set(r.rule.explains) for r in rules}
    ordered = rank(findings, rules)
    cause_of: dict[str, str] = {}

    def is_behind(cause: str, effect: str) -> bool:
        while cause in cause_of and cause != effect:
            cause = cause_of[cause]
        return cause == effect

    for effect in reversed(ordered):
        for cause in ordered:
            if effect.name not in explains.get(cause.name, ()) or is_behind(cause.name, effect.name):
                continue
            if cause.severity is Severity.INFO and effect.severity is not Severity.INFO:
                continue
            cause_of[effect.name] = cause.name
            break
    return [replace(f, consequence_of=cause_of.get(f.name)) for f in ordered]


def rank(findings: Iterable[Finding], rules: Sequence[LoadedRule]) -> tuple[Finding, ...]:
    """Causes before consequences, then by severity, structural proof, family, confidence; infos last."""
    findings = list(findings)
    fallback = {r.rule.name for r in rules if r.rule.fallback}
    cause_of = {f.name: f.consequence_of for f in findings}

    def depth(name: str | None) -> int:
        far, cause = 0, cause_of.get(name or "")
        while cause is not None and far <= len(cause_of):
            far, cause = far + 1, cause_of.get(cause)
        return far

    def key(f: Finding) -> tuple[object, ...]:
        return (
            f.severity is Severity.INFO,
            depth(f.name),
            f.name in fallback,
            f.severity.rank,
            f.proof is not Proof.STRUCTURE,
            FAMILIES.index(f.family),
            -f.confidence,
            f.first_step if f.first_step is not None else -1,
            f.code,
        )

    return tuple(sorted(findings, key=key))
