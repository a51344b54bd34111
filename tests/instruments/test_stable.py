"""Pairs of formulas: each breaks by hand on its input, and the stable form gives the truth."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from torchdoctor import stable
from torchdoctor.errors import UnknownNameError, UsageError
from torchdoctor.rules import find


@pytest.mark.parametrize("name", stable.PAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_by_hand_it_breaks_and_the_stable_form_holds(name: str, dtype: torch.dtype) -> None:
    found = stable.show(name, dtype=dtype)
    assert not found.by_hand.right
    assert found.stable.right
    assert found.breaks_at is not None
    assert found.sizes.index(found.breaks_at) > 0 or name == "masked_mean"


@pytest.mark.parametrize("name", stable.PAIRS)
def test_on_harmless_inputs_both_forms_agree(name: str) -> None:
    pair = stable.PAIRS[name]
    inputs = pair.make(pair.sizes[1])
    assert torch.allclose(pair.by_hand(*inputs), pair.stable(*inputs), atol=1e-3)
    assert "both forms are right" in str(stable.show(name, *inputs, dtype=torch.float64))


def test_known_values() -> None:
    scores = torch.tensor([1000.0, 0.0])
    assert stable.softmax(scores).tolist() == [1, 0]
    assert stable.log_softmax(scores).tolist() == [0, -1000]
    assert stable.logsumexp(scores).item() == 1000
    assert stable.cross_entropy(scores[None], torch.tensor([1])).item() == 1000
    assert stable.binary_cross_entropy_with_logits(scores[:1], torch.zeros(1)).item() == 1000
    assert stable.log_sigmoid(-scores).tolist() == pytest.approx([-1000, -math.log(2)])
    assert stable.softplus(scores).tolist() == pytest.approx([1000, math.log(2)])
    assert stable.entropy(torch.zeros(4)).item() == pytest.approx(math.log(4))
    assert stable.entropy(scores).item() == 0
    assert stable.masked_mean(torch.tensor([1.0, math.nan, 3.0]), torch.tensor([True, False, True])).item() == 2
    assert stable.normalize(torch.zeros(3, dtype=torch.float16)).tolist() == [0, 0, 0]
    assert stable.distance(torch.zeros(2), torch.tensor([3.0, 4.0])).item() == 5
    assert stable.standardize(torch.ones(4)).tolist() == [0, 0, 0, 0]


def test_exp_overflows_where_the_rule_says() -> None:
    assert stable.show("softmax", torch.tensor([88.0, 0.0])).by_hand.right
    assert stable.show("softmax", torch.tensor([89.0, 0.0])).by_hand.value_is == "NaN"
    assert stable.show("softmax", torch.tensor([11.0, 0.0]), dtype=torch.float16).by_hand.right
    assert stable.show("softmax", torch.tensor([11.2, 0.0]), dtype=torch.float16).by_hand.value_is == "NaN"


def test_a_loss_that_is_finite_and_teaches_nothing() -> None:
    found = stable.show("binary_cross_entropy_with_logits")
    assert found.by_hand.value == [100] and found.by_hand.gradient == [0]
    assert found.stable.value == [50] and found.stable.gradient == [1]
    assert "is wrong and has no gradient" in str(found)


def test_a_gradient_that_no_loss_shows() -> None:
    found = stable.show("distance")
    assert found.by_hand.value_is == "right" and found.by_hand.gradient_is == "NaN"
    assert found.stable.gradient == [0, 0]


def test_every_pair_leads_to_a_diagnosis() -> None:
    assert all(find(pair.rule) is not None for pair in stable.PAIRS.values())


def test_the_text_has_both_forms() -> None:
    text = str(stable.show("log_softmax"))
    assert "torch.log(torch.softmax(x, dim=-1))" in text and "F.log_softmax(x, dim=-1)" in text
    assert "-Inf" in text and "torchdoctor explain log-of-zero" in text


def test_inputs_stay_as_they_are() -> None:
    given = torch.tensor([5.0, 1.0], requires_grad=True)
    with torch.no_grad():
        stable.show("softmax", given)
    assert given.grad is None and given.tolist() == [5.0, 1.0]
    assert torch.equal(F.softmax(given, -1), stable.softmax(given))


def test_the_table_and_the_pictures() -> None:
    overview = stable.table()
    assert "12 of 12" in str(overview)
    assert overview.plot().data[0].type == "table" and "12 of 12" in overview.plot().layout.title.text
    found = stable.show("softmax")
    assert "breaks where the largest score is 90" in found.plot().layout.title.text
    assert found.to_dict()["by_hand"]["value"][0] is None
    assert "plotly" in found._repr_html_()


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(UnknownNameError, match="log_softmax"):
        stable.show("sofmax")
    with pytest.raises(UsageError, match="floating-point"):
        stable.show("softmax", dtype=torch.int64)
    with pytest.raises(UsageError, match="floating-point"):
        stable.show("softmax", torch.tensor([1, 2]))
