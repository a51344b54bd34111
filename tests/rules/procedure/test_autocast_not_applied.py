from __future__ import annotations

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import PrecisionFact
from torchdoctor.findings import RuledOut, Severity

NAME = "autocast-not-applied"


def fact(
    products: dict[str, int], asked: tuple[str, ...] = ("cpu",), off: bool = False, scaler: bool = False
) -> PrecisionFact:
    return PrecisionFact("cpu", list(asked), off, scaler, products, ["float32"], "train.py", 12)


@pytest.mark.parametrize(
    ("seen", "title"),
    [
        (fact({"float32": 6}), "outside"),
        (fact({"float32": 6}, asked=("cuda",)), "is for cuda"),
        (fact({"float32": 6}, asked=(), scaler=True), "scaled"),
        (fact({"float32": 6}, asked=(), scaler=True, off=True), "scaled"),
        (fact({"float32": 5, "bfloat16": 1}), "1 of 6"),
    ],
)
def test_products_in_full_precision(seen: PrecisionFact, title: str) -> None:
    (found,) = findings(RunBuilder(50).fact(seen).build(), NAME)
    assert found.severity is Severity.WARNING and title in found.title
    assert found.where[0].line == 12


def test_autocast_in_effect_is_ruled_out() -> None:
    (said,) = RunBuilder(50).fact(fact({"bfloat16": 6, "float32": 1})).detect(NAME)
    assert isinstance(said, RuledOut)


def test_a_part_kept_in_full_precision_by_choice() -> None:
    assert not findings(RunBuilder(50).fact(fact({"float32": 5, "bfloat16": 1}, off=True)).build(), NAME)


def test_a_lone_product_says_nothing() -> None:
    assert not findings(RunBuilder(50).fact(fact({"float32": 1})).build(), NAME)
