"""Histories: bounded, exact where they are not merged, and the same however the looks came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.samples import assert_same_trace
from torchdoctor.run import HISTORY_ROWS, RAW_ROWS, Trace
from torchdoctor.store.history import MAX_CELLS, History, rows_allowed

NAN = float("nan")


def matrix(values: np.ndarray, portions: list[int], columns: tuple[str, ...] | None = None) -> History:
    columns = columns or tuple(f"c{i}" for i in range(values.shape[1]))
    history = History(())
    start = 0
    for size in portions:
        history.extend(np.arange(start, start + size), values[start : start + size].astype(np.float32), columns)
        start += size
    return history


def scalar(values: np.ndarray) -> Trace:
    history = History()
    history.extend(np.arange(len(values)), np.asarray(values, np.float64))
    return history.state().trace()


def test_a_row_is_a_look_while_they_fit() -> None:
    trace = scalar(np.arange(HISTORY_ROWS))
    assert trace.merged == 1 and len(trace) == HISTORY_ROWS
    assert trace.low is trace.values and trace.head is None
    np.testing.assert_array_equal(trace.values, np.arange(HISTORY_ROWS))


def test_rows_merge_pairwise_from_then_on_with_raw_ends() -> None:
    trace = scalar(np.arange(HISTORY_ROWS + 1))
    assert trace.merged == 2 and len(trace) == HISTORY_ROWS // 2 + 1
    np.testing.assert_array_equal(trace.values[:3], [0.5, 2.5, 4.5])
    np.testing.assert_array_equal(trace.low[:3], [0, 2, 4])
    np.testing.assert_array_equal(trace.high[:3], [1, 3, 5])
    np.testing.assert_array_equal(trace.steps[:3], [1, 3, 5])
    assert (trace.values[-1], trace.steps[-1]) == (HISTORY_ROWS, HISTORY_ROWS)
    assert trace.head is not None and trace.tail is not None
    np.testing.assert_array_equal(trace.first().values, np.arange(RAW_ROWS))
    np.testing.assert_array_equal(trace.last().values, np.arange(HISTORY_ROWS + 1)[-RAW_ROWS:])


@given(
    looks=st.integers(1, 9000),
    missing=st.sampled_from([0.0, 0.02, 0.6]),
    cuts=st.lists(st.integers(1, 1500), min_size=1, max_size=40),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_portions_do_not_matter_and_rows_are_what_numpy_says(
    looks: int, missing: float, cuts: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(looks, 3)).astype(np.float32)
    values[random.random(values.shape) < missing] = NAN
    values[:, 2] = NAN
    portions, left = [], looks
    while left:
        portions.append(min(left, cuts[len(portions) % len(cuts)]))
        left -= portions[-1]
    trace = matrix(values, portions).state().trace()
    assert_same_trace(trace, matrix(values, [looks]).state().trace())
    assert len(trace) == -(-looks // trace.merged) <= HISTORY_ROWS
    for row in {0, len(trace) // 2, len(trace) - 1}:
        part = values[row * trace.merged : (row + 1) * trace.merged]
        for column in range(3):
            seen = part[:, column][~np.isnan(part[:, column])]
            got = [a[row, column] for a in (trace.values, trace.low, trace.high)]
            if len(seen):
                np.testing.assert_allclose(got, [seen.mean(), seen.min(), seen.max()], rtol=1e-4, atol=1e-6)
            else:
                assert np.isnan(got).all()


@pytest.mark.parametrize("bad", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 4321, 9998, 9999])
def test_one_bad_loss_in_ten_thousand_stays_visible(bad: float, at: int) -> None:
    values = np.ones(10_000)
    values[at] = bad
    trace = scalar(values)
    rows = np.flatnonzero(~np.isfinite(trace.values))
    assert rows.tolist() == [at // trace.merged]
    if np.isnan(bad):
        assert np.isnan(trace.low[rows]).all() and np.isnan(trace.high[rows]).all()
    else:
        assert (trace.high if bad > 0 else trace.low)[rows] == bad


@pytest.mark.filterwarnings("error")
def test_nothing_warns_about_nan_inf_or_overflow() -> None:
    values = np.full((5000, 2), np.float32(3e38))
    values[::3] = NAN
    values[::5] = np.inf
    values[1::5] = -np.inf
    trace = matrix(values, [5000]).state().trace()
    assert (trace.high == np.inf).any()
    scalar(values[:, 0].astype(np.float64))


def test_means_of_values_near_the_largest_float_do_not_overflow() -> None:
    trace = matrix(np.full((5000, 1), np.float32(3e38)), [5000]).state().trace()
    np.testing.assert_allclose(trace.values, np.float32(3e38), rtol=1e-6)


def test_columns_that_come_later_are_nan_before_and_none_is_lost() -> None:
    history = History(())
    for step in range(3000):
        columns = ("a", "b") if step < 1000 else ("c", "a")
        history.extend(np.array([step]), np.array([[step, step + 0.5]], np.float32), columns)
    trace = history.state().trace()
    assert trace.columns == ("a", "b", "c")
    a, b, c = (trace.column(name) for name in "abc")
    assert np.isnan(c.values[c.steps < 1000]).all() and not np.isnan(c.values[c.steps > 1001]).any()
    assert np.isnan(b.values[b.steps > 1001]).all()
    assert a.last(1).values[0] == 2999.5


def test_looks_of_one_step_are_one_row() -> None:
    history = History(())
    for step in range(5):
        history.extend(np.array([step]), np.array([[1.0]], np.float32), ("generator",))
        history.extend(np.array([step]), np.array([[2.0]], np.float32), ("critic",))
    trace = history.state().trace()
    assert trace.steps.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(trace.values, [[1.0, 2.0]] * 5)


def test_columns_stand_in_the_order_asked_for_the_unknown_last_as_they_came() -> None:
    history = matrix(np.array([[1.0, 2.0, 3.0, 4.0]]), [1], ("x", "second", "y", "first"))
    order = {"first": 0.0, "second": 1.0}
    trace = history.state().trace(lambda name: order.get(name, float("inf")))
    assert trace.columns == ("first", "second", "x", "y")
    np.testing.assert_array_equal(trace.values, [[4.0, 2.0, 1.0, 3.0]])


def test_a_state_stays_as_it_was_while_the_history_goes_on() -> None:
    history = matrix(np.arange(3000.0)[:, None], [3000])
    state = history.state()
    before = state.trace()
    for step in range(3000, 20_000, 7):
        history.extend(np.array([step]), np.array([[-1.0]], np.float32), ("c0",))
    assert_same_trace(before, state.trace())


def test_very_many_columns_have_fewer_rows() -> None:
    width = 5000
    assert rows_allowed(150) == HISTORY_ROWS
    assert rows_allowed(width) * width <= MAX_CELLS
    trace = matrix(np.zeros((300, width)), [300]).state().trace()
    assert len(trace) <= rows_allowed(width) and trace.merged > 1


def test_shrinking_halves_the_rows_and_keeps_the_extremes() -> None:
    values = np.random.default_rng(0).normal(size=(4000, 2))
    history = matrix(values, [4000])
    before = history.state()
    assert history.shrink()
    after = history.state()
    assert len(after.trace()) <= HISTORY_ROWS // 2 and after.nbytes < before.nbytes
    assert after.trace().high.max() == np.float32(values.max())
    while history.shrink():
        pass
    assert 1 < len(history.state().trace()) <= 32


def test_appending_a_later_session_keeps_every_extreme() -> None:
    first, second = np.arange(2500.0)[:, None], 10_000 + np.arange(6000.0)[:, None]
    joined = matrix(first, [2500])
    later = History(())
    later.extend(np.arange(2500, 8500), second.astype(np.float32), ("c0",))
    joined.append(later.state())
    trace = joined.state().trace()
    assert len(trace) <= HISTORY_ROWS and (np.diff(trace.steps) > 0).all()
    assert (trace.low.min(), trace.high.max()) == (0, 15_999)
    np.testing.assert_array_equal(trace.first().values[:, 0], np.arange(RAW_ROWS))
    np.testing.assert_array_equal(trace.last().values[:, 0], 10_000 + np.arange(6000)[-RAW_ROWS:])
