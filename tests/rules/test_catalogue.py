"""Every entry of the catalogue: a rule in its one file, docs under the fixed headings, twins, known symptoms.

The names are public and never change, so they stand here once more, in the order of their codes.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from torchdoctor import rules, symptoms, zoo
from torchdoctor.facts import KINDS
from torchdoctor.rules.rule import FAMILIES, HEADINGS
from torchdoctor.signals import ALL, Signal

CATALOGUE: dict[str, tuple[str, ...]] = {
    "data": (
        "nan-in-inputs",
        "nan-in-targets",
        "unnormalized-inputs",
        "outlier-batch",
        "constant-inputs",
        "repeated-batch",
        "not-shuffled",
        "inputs-and-labels-unrelated",
        "class-imbalance",
        "train-validation-overlap",
        "train-validation-mismatch",
        "label-leakage",
        "augmentation-on-validation",
        "invalid-labels",
        "noisy-labels",
        "training-serving-skew",
    ),
    "architecture": (
        "vanishing-gradients",
        "exploding-gradients",
        "dead-relu",
        "saturated-activations",
        "symmetric-initialization",
        "bad-initialization-scale",
        "disconnected-parameters",
        "parameters-not-optimized",
        "missing-nonlinearity",
        "misplaced-activation",
        "shape-broadcast-in-loss",
        "batchnorm-small-batch",
        "attention-collapse",
        "representation-collapse",
        "capacity-too-low",
        "frozen-parameters",
        "attention-mask-ineffective",
    ),
    "procedure": (
        "softmax-before-cross-entropy",
        "sigmoid-before-bce-with-logits",
        "wrong-loss-for-task",
        "missing-zero-grad",
        "no-parameter-update",
        "eval-mode-in-training",
        "train-mode-in-evaluation",
        "gradients-in-evaluation",
        "scheduler-misuse",
        "unintended-gradient-scale",
        "clipping-out-of-order",
        "graph-kept-alive",
        "missing-target-shift",
        "resume-without-state",
        "ranks-out-of-sync",
        "stale-evaluation",
        "weights-overwritten",
        "autocast-not-applied",
        "frozen-layers-change",
        "loss-sign-flipped",
    ),
    "numerics": (
        "log-of-zero",
        "division-by-zero",
        "sqrt-at-zero",
        "exp-overflow",
        "half-precision-overflow",
        "half-precision-underflow",
        "loss-scale-collapse",
        "nonfinite-parameters",
    ),
    "hyperparameters": (
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "learning-rate-too-low",
        "learning-rate-decayed-too-early",
        "missing-warmup",
        "clipping-too-tight",
        "over-regularized",
        "batch-too-small",
        "weight-norm-growth",
        "optimizer-misconfigured",
        "plateau-or-saddle",
        "clipping-by-value",
        "abnormal-distribution",
    ),
    "evaluation": (
        "overfitting",
        "underfitting",
        "majority-class-collapse",
        "miscalibrated",
        "noisy-validation",
        "validation-better-than-training",
        "metric-disagrees-with-loss",
        "sharp-minimum",
        "weak-slice",
        "within-seed-noise",
        "metric-implementation-wrong",
    ),
    "throughput": (
        "input-bound",
        "host-sync-bound",
        "small-kernels",
        "memory-growth",
        "slow-transfer",
        "periodic-stall",
        "memory-bound-kernels",
        "device-underfilled",
    ),
    "reproducibility": (
        "unseeded-randomness",
        "nondeterministic-operations",
        "environment-differs",
    ),
}
LETTERS = dict(zip(FAMILIES, "DATNHEPR", strict=True))

LATER: dict[str, str] = {
    "ranks-out-of-sync": "comes with distributed training",
}
"""Entries without a rule, and why."""

WITHOUT_TWINS: dict[str, str] = {
    "environment-differs": "compares two runs; tests/compare holds it",
    "training-serving-skew": "needs samples from use; tests/instruments holds it",
    "plateau-or-saddle": "needs the Hessian's smallest eigenvalue; tests/instruments holds it",
    "within-seed-noise": "compares several runs; tests/experiments holds it",
    "unseeded-randomness": "compares several runs; tests/experiments holds it",
    "nondeterministic-operations": "compares several runs; tests/experiments holds it",
}
"""Diagnoses that no script of the zoo can show."""

CODES = {
    name: f"{LETTERS[family]}{number:03}" for family, names in CATALOGUE.items() for number, name in enumerate(names, 1)
}
CASES = zoo.cases()
DUE = [name for name in CODES if name not in LATER]


@pytest.mark.parametrize("name", DUE)
def test_it_has_a_rule_under_its_code(name: str) -> None:
    loaded = rules.find(name)
    assert loaded is not None, f"{name} has no rule"
    assert loaded.rule.code == CODES[name]
    assert loaded.rule.family == next(f for f, names in CATALOGUE.items() if name in names)
    assert loaded.detect.__module__.endswith(f".{loaded.rule.family}.{name.replace('-', '_')}")


@pytest.mark.parametrize("loaded", rules.catalogue(), ids=lambda r: r.rule.name)
def test_a_rule_is_in_the_catalogue_and_documented(loaded: rules.LoadedRule) -> None:
    assert loaded.rule.name in CODES
    assert loaded.title
    assert [h for h in HEADINGS if not loaded.sections.get(h)] == []
    assert [n for n in loaded.rule.explains if n not in CODES] == []
    for need in loaded.rule.reads:
        assert need.name in ALL if isinstance(need, Signal) else need.kind in KINDS


@pytest.mark.parametrize("name", [n for n in DUE if n not in WITHOUT_TWINS])
def test_it_has_twins_of_two_kinds(name: str) -> None:
    cases = [c for c in CASES if c.diagnosis == name]
    sick, healthy = ({c.kind for c in cases if c.healthy is h} for h in (False, True))
    assert len(sick) >= 2, f"{name} has sick cases of {len(sick)} kinds"
    assert sick & healthy, f"{name} has no healthy twin of the same kind"


def test_what_comes_later_is_not_there_yet() -> None:
    assert [name for name in LATER if rules.find(name)] == []
    assert set(LATER) | set(WITHOUT_TWINS) <= set(CODES)


def test_symptoms_name_diagnoses_of_the_catalogue() -> None:
    assert [c for s in symptoms.TABLE for c in s.causes if c not in CODES] == []
    assert len(symptoms.names()) == len(set(symptoms.names()))
    assert not set(symptoms.names()) & set(CODES)


@pytest.mark.parametrize("path", sorted(Path(rules.__file__).parent.rglob("*.py")), ids=lambda p: p.stem)
def test_every_symptom_that_a_finding_names_exists(path: Path) -> None:
    assert sorted(_named_symptoms(ast.parse(path.read_text())) - set(symptoms.names())) == []


def _named_symptoms(module: ast.Module) -> set[str]:
    """Strings in the tuples that `symptoms=` is given, or that a function about symptoms gives."""
    places: list[ast.AST] = []
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and node.arg == "symptoms":
            places.append(node.value)
        if isinstance(node, ast.FunctionDef) and "symptom" in node.name:
            places.append(node)
    tuples = [node for place in places for node in ast.walk(place) if isinstance(node, ast.Tuple)]
    return {e.value for t in tuples for e in t.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
