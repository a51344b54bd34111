"""Attention that collapses, stays uniform, or looks at padding."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.findings import RuledOut, Severity

COLLAPSE, MASK = "attention-collapse", "attention-mask-ineffective"
STUCK, SOLVED = np.linspace(3.0, 2.9, 100), np.geomspace(3.0, 0.01, 100)


def attention(entropy: object, loss: object = STUCK) -> RunBuilder:
    builder = RunBuilder(100).scalar(signals.LOSS_TRAIN, loss)
    return builder.matrix(signals.ATTENTION["entropy"], {"attention after qkv": entropy})


def masked(on_padding: float, padded: float = 0.4, empty: float = 0.0) -> RunBuilder:
    values = {"on_padding": on_padding, "padded": padded, "empty": empty}
    builder = RunBuilder(20)
    for name, value in values.items():
        builder.matrix(signals.ATTENTION[name], {"attention after layers.0": value})
    return builder


@pytest.mark.parametrize("entropy", [0.2, 1.0, np.r_[np.full(40, 0.9), np.full(60, 0.01)]])
def test_sharp_from_the_start_uniform_throughout_or_collapsed_without_progress(entropy: object) -> None:
    assert [f.severity for f in findings(attention(entropy).build(), COLLAPSE)] == [Severity.WARNING]


@pytest.mark.parametrize("entropy", [1.0, np.linspace(0.95, 0.01, 100)])
def test_heads_that_learn_are_fine(entropy: object) -> None:
    assert not findings(attention(entropy, SOLVED).build(), COLLAPSE)


def test_usual_entropies_rule_it_out() -> None:
    assert [type(s) for s in attention(0.9).detect(COLLAPSE)] == [RuledOut]


def test_an_inverted_mask() -> None:
    (said,) = findings(masked(0.99).build(), MASK)
    assert said.severity is Severity.ERROR and "inverted" in said.title


def test_padding_that_is_attended() -> None:
    (said,) = findings(masked(0.35).build(), MASK)
    assert said.severity is Severity.WARNING and said.where[0].module == "layers.0"


def test_a_mask_in_effect_rules_it_out() -> None:
    assert [type(s) for s in masked(0.0).detect(MASK)] == [RuledOut]


def test_hidden_keys_where_queries_are_real_or_everywhere() -> None:
    assert findings(masked(0.0, empty=0.2).build(), MASK)
    assert not findings(masked(float("nan"), float("nan"), 0.2).build(), MASK)
    assert findings(masked(float("nan"), float("nan"), 1.0).build(), MASK)
