from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchdoctor.report.text import (
    BLOCKS,
    BLOCKS_ASCII,
    SPARK_WIDTH,
    clean,
    clean_block,
    count,
    listed,
    number,
    share,
    size,
    spark,
)


@pytest.mark.parametrize(
    "hostile",
    [
        "\x1b[31mred\x1b[0m",
        "back\bspace",
        "bell\a",
        "right\u202eleft",
        "nul\0",
        "c1\x9b31m",
        "zero\u200bwidth",
        "\udc80",
    ],
)
def test_nothing_that_moves_the_cursor_or_turns_the_text_survives(hostile: str) -> None:
    shown = clean(hostile)
    assert all(c.isprintable() for c in shown)
    assert clean(shown) == shown


@given(st.text())
def test_cleaned_text_is_one_printable_line(text: str) -> None:
    assert "\n" not in clean(text)
    assert not any(c in clean(text) for c in "\x1b\r\x00\u202e\u2028")
    assert clean(text, ascii_only=True).isascii()


def test_code_keeps_its_lines_and_indentation() -> None:
    assert clean_block("for x in y:\n\tz()  \n") == "for x in y:\n    z()"
    assert clean_block("a → b — “c”", ascii_only=True) == 'a -> b - "c"'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1438.0, "1,438"),
        (0.03125, "0.0312"),
        (3.14e-9, "3.14e-09"),
        (36_412.7, "36,413"),
        (1.23456e9, "1.23e+09"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
        (None, "unknown"),
    ],
)
def test_numbers_are_short(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_words_for_amounts() -> None:
    assert count(1, "model") == "1 model"
    assert count(1438, "pass", "passes") == "1,438 passes"
    assert share(0.021) == "2.1 %"
    assert share(0.98) == "98 %"
    assert size(999) == "999 B"
    assert size(1_500) == "1.5 KB"
    assert size(7_200_000_000) == "7.2 GB"
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed("abcdef", most=2) == "a, b and 4 others"


def test_a_spark_rises_with_its_values() -> None:
    assert spark([0, 1, 2, 3, 4, 5, 6, 7]) == BLOCKS
    assert spark([0, 1, 2, 3, 4, 5, 6, 7], ascii_only=True) == BLOCKS_ASCII
    assert len(set(spark([2.0, 2.0, 2.0]))) == 1


def test_a_wide_positive_trace_is_drawn_on_a_log_scale() -> None:
    assert spark([10.0**i for i in range(8)]) == BLOCKS


def test_a_long_trace_is_thinned_and_its_spike_stays() -> None:
    values = [1.0] * 1000
    values[503] = 50.0
    drawn = spark(values)
    assert len(drawn) == SPARK_WIDTH
    assert drawn.count(BLOCKS[-1]) == 1


def test_values_that_are_not_finite_are_marked() -> None:
    assert spark([1.0, math.nan, 2.0, math.inf]) == f"{BLOCKS[0]}x{BLOCKS[-1]}x"
    assert spark([math.nan, math.nan]) == "xx"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200))
def test_any_trace_can_be_drawn(values: list[float]) -> None:
    assert len(spark(values)) == min(len(values), SPARK_WIDTH)
