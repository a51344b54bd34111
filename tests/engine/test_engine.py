from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.engine import describe, examine, link, rank
from torchdoctor.facts import HealthFact, WiringFact
from torchdoctor.findings import Finding, Fix, Proof, RuledOut, Severity
from torchdoctor.rules import LoadedRule, Rule
from torchdoctor.run import Run

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


def make_rule(name: str, code: str = "X001", family: str = "data", **fields: object) -> LoadedRule:
    """A rule that always finds its fault; severity, confidence and proof may be given."""
    severity = fields.pop("severity", ERROR)
    confidence = fields.pop("confidence", 0.9)
    proof = fields.pop("proof", Proof.STATISTICS)
    rule = Rule(code=code, name=name, family=family, needs=fields.pop("needs", ()), **fields)

    def detect(run: Run) -> Iterator[Finding | RuledOut]:
        yield rule.finding(
            severity=severity,
            confidence=confidence,
            title=name,
            summary=name,
            fix=Fix("change it"),
            evidence=(),
            proof=proof,
        )

    return LoadedRule(rule, detect, name)


def names(rules: list[LoadedRule]) -> list[str]:
    return [f.name for f in examine(RunBuilder().build(), rules).findings]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (make_rule("a", family="data"), make_rule("b", family="hyperparameters", confidence=1.0)),
        (make_rule("a", family="numerics"), make_rule("b", family="hyperparameters", confidence=1.0)),
        (make_rule("a", family="reproducibility", proof=Proof.STRUCTURE), make_rule("b", family="data")),
        (make_rule("a", family="throughput"), make_rule("b", severity=WARNING, proof=Proof.STRUCTURE)),
        (make_rule("a", severity=WARNING, confidence=0.5), make_rule("b", severity=INFO, proof=Proof.STRUCTURE)),
        (make_rule("a", severity=WARNING, family="evaluation"), make_rule("b", fallback=True)),
        (make_rule("a", fallback=True), make_rule("b", severity=INFO)),
        (make_rule("a", confidence=0.95), make_rule("b", confidence=0.9)),
    ],
)
def test_first_ranks_before_second(first: LoadedRule, second: LoadedRule) -> None:
    assert names([first, second]) == names([second, first]) == ["a", "b"]


def test_a_consequence_ranks_under_its_cause_however_severe() -> None:
    rules = [
        make_rule("divergence", proof=Proof.STRUCTURE),
        make_rule("rate", severity=WARNING, family="hyperparameters", explains=("divergence",)),
        make_rule("worth-knowing", severity=INFO),
    ]
    verdict = examine(RunBuilder().build(), rules)
    assert [f.name for f in verdict.findings] == ["rate", "divergence", "worth-knowing"]
    assert [f.consequence_of for f in verdict.findings] == [None, "rate", None]
    assert verdict.worst is ERROR
    assert not verdict.healthy


def test_chains_keep_their_order() -> None:
    rules = [
        make_rule("c", proof=Proof.STRUCTURE, family="data"),
        make_rule("b", severity=WARNING, family="numerics", explains=("c",)),
        make_rule("a", severity=WARNING, family="throughput", explains=("b",)),
    ]
    verdict = examine(RunBuilder().build(), rules)
    assert [(f.name, f.consequence_of) for f in verdict.findings] == [("a", None), ("b", "a"), ("c", "b")]


def test_an_info_explains_no_warning_but_another_info() -> None:
    rules = [
        make_rule("hint", severity=INFO, explains=("harm", "note")),
        make_rule("harm", severity=WARNING),
        make_rule("note", severity=INFO),
    ]
    causes = {f.name: f.consequence_of for f in examine(RunBuilder().build(), rules).findings}
    assert causes == {"harm": None, "hint": None, "note": "hint"}


def test_what_is_not_found_explains_nothing() -> None:
    cause = make_rule("cause", explains=("effect",), needs=(signals.LOSS_TRAIN,))
    verdict = examine(RunBuilder().build(), [cause, make_rule("effect")])
    assert verdict.findings[0].consequence_of is None


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_a_cycle_is_cut_at_the_finding_that_ranks_first(order: tuple[str, ...]) -> None:
    explained = {"a": "b", "b": "c", "c": "a"}
    rules = [make_rule(n, code=f"X00{'abc'.index(n)}", explains=(explained[n],)) for n in order]
    causes = {f.name: f.consequence_of for f in examine(RunBuilder().build(), rules).findings}
    assert causes == {"a": None, "b": "a", "c": "b"}


def test_a_rule_does_not_explain_itself() -> None:
    assert examine(RunBuilder().build(), [make_rule("a", explains=("a",))]).findings[0].consequence_of is None


def test_several_findings_of_one_rule_share_its_cause() -> None:
    cause, effect = make_rule("cause", explains=("effect",)), make_rule("effect", severity=WARNING)
    twice = LoadedRule(effect.rule, lambda run: iter([*effect.detect(run), *effect.detect(run)]), "effect")
    verdict = examine(RunBuilder().build(), [twice, cause])
    assert [f.consequence_of for f in verdict.findings] == [None, "cause", "cause"]


def test_linking_and_ranking_are_stable_when_repeated() -> None:
    rules = [make_rule("b", explains=("c",)), make_rule("c", severity=WARNING), make_rule("a", family="throughput")]
    once = rank(link([f for r in rules for f in r.detect(RunBuilder().build())], rules), rules)
    assert rank(link(once, rules), rules) == once


def test_a_rule_that_raises_is_not_examined_and_the_others_still_are(caplog: pytest.LogCaptureFixture) -> None:
    def fail(run: Run) -> Iterator[Finding]:
        yield next(iter(make_rule("half").detect(run)))
        raise ZeroDivisionError("of no use")

    broken = LoadedRule(Rule("X009", "half", "data", ()), fail, "half")
    verdict = examine(RunBuilder().build(), [broken, make_rule("whole")])
    assert [f.name for f in verdict.findings] == ["whole"]
    assert verdict.examined == ("whole",)
    assert verdict.not_examined[0].name == "half"
    assert "ZeroDivisionError: of no use" in verdict.not_examined[0].needs[0]
    assert "half" in caplog.text
    assert "Traceback" not in caplog.text


def test_missing_signals_and_facts_are_named() -> None:
    rule = make_rule("a", needs=(signals.LOSS_TRAIN, signals.GRADIENT_L2, WiringFact))
    verdict = examine(RunBuilder().scalar(signals.LOSS_TRAIN, 1.0).build(), [rule])
    assert verdict.findings == ()
    assert verdict.not_examined[0].needs == ("gradient.l2", "wiring")
    assert verdict.healthy

    whole = RunBuilder().scalar(signals.LOSS_TRAIN, 1.0).matrix(signals.GRADIENT_L2, {"w": 1.0})
    assert examine(whole.fact(WiringFact(updates=1, total=1)).build(), [rule]).not_examined == ()


def test_a_cause_is_ruled_out_only_where_it_does_not_stand() -> None:
    def speak(run: Run) -> Iterator[RuledOut]:
        yield RuledOut("standing", "no")
        yield RuledOut("absent", "no")

    quiet = LoadedRule(Rule("X008", "quiet", "data", ()), speak, "quiet")
    verdict = examine(RunBuilder().build(), [quiet, make_rule("standing")])
    assert [r.name for r in verdict.ruled_out] == ["absent"]


def test_the_verdict_describes_the_run_and_its_rules() -> None:
    run = (
        RunBuilder(steps=7)
        .info(argv=["train.py", "--lr", "1"])
        .optimizer("Adam", lr=1.0)
        .fact(HealthFact(overhead=0.02, budget=0.03))
        .build()
    )
    described = describe(run)
    assert described["argv"] == ["train.py", "--lr", "1"]
    assert described["steps"] == 7
    assert described["overhead"] == 0.02
    assert described["hyperparameters"] == [{"optimizer": "Adam", "key": "0", "groups": [{"lr": 1.0}]}]
    verdict = examine(run, [make_rule("a", family="numerics")])
    assert verdict.run == described
    assert verdict.families == {"a": "numerics"}
