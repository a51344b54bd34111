"""Facts as they come back from disk: of the right kind and type, and never without bound."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchdoctor.facts import KINDS, BirthFact, Fact, HealthFact, InputsFact, LossCallFact
from torchdoctor.store.ledger import KEEP_FIRST, KEEP_LAST, MAX_BYTES, Entry, FactLog, read_fact, write_fact


def example(cls: type[Fact]) -> Fact:
    """A fact with something plausible in every field that has no default."""
    samples: dict[str, Any] = {"int": 1, "str": "x", "bool": True, "float": 0.5, "list[str]": ["a"], "list[int]": [1]}
    fields = {}
    for field in dataclasses.fields(cls):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            kind = str(field.type)
            options = [part.strip() for part in kind.split("|")]
            nested = {} if kind.startswith("dict") else []
            fields[field.name] = next((samples[o] for o in options if o in samples), nested)
    return cls(**fields)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_comes_back_as_it_was(kind: str) -> None:
    fact = example(KINDS[kind])
    assert read_fact(kind, write_fact(fact)) == fact


NUMBERS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf])
TEXT = st.text(max_size=4)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXT
JSON = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(TEXT, LEAVES, max_size=3)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Everything that a field of that type may hold."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(a) for a in args])
    if origin is list:
        return st.lists(values(args[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(TEXT, values(args[1]), max_size=3)
    numbers = {float: NUMBERS | st.sampled_from([np.float32("nan"), np.float64(0.5)]), int: st.integers(), str: TEXT}
    return JSON if hint is Any else numbers[hint] if hint in numbers else st.from_type(hint)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_fact_comes_back_whatever_its_fields_hold(kind: str, data: st.DataObject) -> None:
    hints = typing.get_type_hints(KINDS[kind])
    fact = KINDS[kind](**{f.name: data.draw(values(hints[f.name])) for f in dataclasses.fields(KINDS[kind])})
    text = write_fact(fact)
    parsed = read_fact(kind, text)
    assert parsed is not None and write_fact(parsed) == text


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_null_among_numbers_reads_as_not_a_number(kind: str, data: st.DataObject) -> None:
    hints = typing.get_type_hints(KINDS[kind])
    fact = KINDS[kind](**{f.name: data.draw(values(hints[f.name])) for f in dataclasses.fields(KINDS[kind])})
    nulls = re.sub(r"(?<=[\[:,])(NaN)(?=[\],}])", "null", write_fact(fact))
    assert read_fact(kind, nulls) is not None


def test_feature_statistics_with_missing_numbers_are_read() -> None:
    """Versions before November 2026 wrote null for the mean of a feature that was NaN in the whole batch."""
    fields = {"phase": "train", "role": "input", "shape": [2, 2], "dtype": "float32", "feature_mean": [None, 1.5]}
    fact = read_fact("inputs", json.dumps(fields))
    assert isinstance(fact, InputsFact) and fact.feature_mean is not None
    assert math.isnan(fact.feature_mean[0]) and fact.feature_mean[1] == 1.5 and fact.mean is None


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_kind_accepts_a_field_of_the_wrong_type(kind: str) -> None:
    data = json.loads(write_fact(example(KINDS[kind])))
    for name, value in data.items():
        hint = str({f.name: f.type for f in dataclasses.fields(KINDS[kind])}[name])
        wrong: Any = 3 if isinstance(value, str | list | dict) or value is None else {"not": "a number"}
        if hint == "Any" or (value is None and ("int" in hint or "float" in hint)):
            continue
        assert read_fact(kind, json.dumps({**data, name: wrong})) is None, name


def test_numbers_that_json_has_no_word_for_come_back() -> None:
    fact = HealthFact(overhead=float("inf"), budget=0.03)
    assert read_fact("own_health", write_fact(fact)) == fact


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([*sorted(KINDS), "unknown", ""]),
)
def test_no_json_ever_raises(value: Any, kind: str) -> None:
    read_fact(kind, json.dumps(value))
    names = [f.name for f in dataclasses.fields(KINDS.get(kind, LossCallFact))]
    read_fact(kind, json.dumps(dict.fromkeys(names, value)))


def entry(step: int, subject: str = "", padding: int = 0) -> Entry:
    data = json.dumps({"step": step, "padding": "x" * padding})
    return Entry(step, 0.0, "own_health", subject, data, HealthFact(float(step), 0.03))


def test_of_many_facts_the_first_and_the_last_stay_in_order() -> None:
    log = FactLog()
    for step in range(10_000):
        log.add(entry(step, subject="ab"[step % 2]))
    steps = [seen.step for seen in log.seen()]
    assert steps == sorted(steps) and len(steps) == 2 * (KEEP_FIRST + KEEP_LAST)
    assert steps[:4] == [0, 1, 2, 3] and steps[-2:] == [9998, 9999]


def test_large_facts_are_fewer() -> None:
    log = FactLog()
    for step in range(100):
        for subject in "abcdef":
            log.add(entry(step, subject, padding=300_000))
    kept = log.entries()
    assert sum(len(e.data) for e in kept) <= MAX_BYTES
    assert {e.subject for e in kept if e.step == 99} == set("abcdef")
    assert {e.subject for e in kept if e.step == 0} == set("abcdef")


def test_text_in_facts_can_be_written_anywhere() -> None:
    fact = read_fact("birth", json.dumps({"operator": "\ud800x", "backward": False, "result": "nan"}))
    assert isinstance(fact, BirthFact)
    fact.operator.encode()


def test_numbers_that_no_float_holds_are_refused() -> None:
    text = json.dumps({"operator": "x", "backward": False, "result": "nan"})
    assert read_fact("birth", text) is not None
    assert read_fact("birth", f'{text[:-1]}, "count": {10**400}}}') is None
