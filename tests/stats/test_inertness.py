"""Measuring changes nothing: no input, no random state, no graph, no mode of the user's, no lifetime."""

from __future__ import annotations

import gc
import random
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stats.oddities import FLOATS, OTHERS, build, octets, sparse, unmeasurable
from stats.strategies import tensors
from torchdoctor import stats

MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "summarize": lambda t: stats.summarize([t, t]),
    "norms": lambda t: stats.norms([t, t]),
    "change_norms": lambda t: stats.change_norms([t], [t]),
    "histograms": lambda t: stats.histograms([t]),
    "activation": lambda t: stats.activation(t, "sigmoid"),
    "activation softmax": lambda t: stats.activation(t, "softmax"),
    "alive_units": lambda t: stats.alive_units(t, 0),
    "batch": stats.batch,
    "features": lambda t: stats.features(t, 0),
    "fingerprints": stats.fingerprints,
    "unit_spread": stats.unit_spread,
}
every_measure = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())


def same(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0, equal_nan=True)


@pytest.fixture
def strict() -> Iterator[None]:
    """Warnings and numpy's floating-point errors raise."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        yield


@settings(max_examples=40, deadline=None)
@given(tensors(FLOATS + OTHERS))
def test_no_input_is_written_and_no_random_number_drawn(tensor: Tensor) -> None:
    before, version = octets(tensor), tensor._version
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index,union-attr]
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        for measure in MEASURES.values():
            measure(tensor)
    assert octets(tensor) == before
    assert tensor._version == version
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index,union-attr]
    assert random.getstate() == states[2]


@every_measure
def test_nothing_raises_on_anything(measure: Callable[[Tensor], Tensor], strict: None) -> None:
    for odd in [*unmeasurable().values(), *sparse(1, 0.2), torch.tensor(2.0), torch.empty(0), torch.empty(2, 0)]:
        assert isinstance(measure(odd), Tensor)  # type: ignore[arg-type]


@every_measure
def test_no_graph_is_made(measure: Callable[[Tensor], Tensor]) -> None:
    parameter = torch.nn.Parameter(build((4, 5), torch.float32, 0, 1.0, 0.0, 0.0))
    found = measure(parameter)
    assert not found.requires_grad and found.grad_fn is None
    assert parameter.grad is None and torch.is_grad_enabled()
    hidden = torch.sigmoid(parameter * 2)
    assert not measure(hidden).requires_grad
    hidden.sum().backward()
    assert parameter.grad is not None


@every_measure
def test_no_tensor_outlives_the_call(measure: Callable[[Tensor], Tensor]) -> None:
    tensor = build((40, 1000), torch.float32, 0, 1.0, 0.0, 0.1)
    seen = weakref.ref(tensor)
    measure(tensor)
    gc.disable()
    try:
        del tensor
        assert seen() is None
    finally:
        gc.enable()


@every_measure
def test_the_modes_of_the_user_see_nothing(measure: Callable[[Tensor], Tensor]) -> None:
    calls: list[object] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            calls.append(func)
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            calls.append(func)
            return func(*args, **(kwargs or {}))

    tensor = build((4, 5), torch.float32, 0, 1.0, 0.0, 0.1)
    alone = measure(tensor)
    with Operations():
        inside = measure(tensor)
    assert not calls
    same(inside, alone)
    with Functions():
        measure(tensor)
    accesses = [call for call in calls if "__get__" not in str(call) and getattr(call, "__name__", "") != "__get__"]
    assert not accesses


@every_measure
def test_the_defaults_of_the_user_change_nothing(measure: Callable[[Tensor], Tensor]) -> None:
    tensor = build((4, 5), torch.float32, 0, 1.0, 0.0, 0.1)
    alone = measure(tensor)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    try:
        again = measure(tensor)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert again.dtype == alone.dtype and again.device == alone.device
    same(again, alone)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        same(measure(tensor), alone)


@pytest.mark.filterwarnings("ignore:.*jit.trace:DeprecationWarning")
@every_measure
def test_inert_inside_function_transforms_and_traces(measure: Callable[[Tensor], Tensor]) -> None:
    seen: list[Tensor] = []

    def model(x: Tensor) -> Tensor:
        seen.append(measure(x))
        return (x * x).sum()

    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(torch.func.grad(model)(x), 2 * x)
    assert torch.equal(torch.func.vmap(model)(x), (x * x).sum(1))
    assert torch.equal(torch.func.functionalize(model)(x), (x * x).sum())
    traced = torch.jit.trace(model, x, check_trace=False)
    assert {node.kind() for node in traced.graph.nodes()} <= {"aten::mul", "aten::sum", "prim::Constant"}
    for found in seen:
        assert not torch._C._functorch.is_functorch_wrapped_tensor(found)
        assert not found.is_floating_point() or found.isnan().all()


def test_several_threads_do_not_disturb_each_other() -> None:
    lists = [[build((n,), torch.float32, i, 1.0, 0.0, 0.1) for n in (10, 50_000, 300_000)] for i in range(4)]
    wanted = [stats.summarize(given) for given in lists]
    found: list[list[Tensor]] = [[] for _ in lists]

    def work(i: int) -> None:
        for _ in range(10):
            found[i].append(stats.summarize(lists[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(lists))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for want, got in zip(wanted, found, strict=True):
        assert len(got) == 10 and all(torch.allclose(want, g, rtol=1e-5, equal_nan=True) for g in got)
