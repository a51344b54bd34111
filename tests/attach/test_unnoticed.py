"""What a script can see of its own process is the same with us as without."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType, MethodType, TracebackType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchdoctor
from torchdoctor.attach import session as sessions
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.registry import Registry
from torchdoctor.attach.script import without_sites
from torchdoctor.facts import ModelFact
from torchdoctor.interruptions import entries
from torchdoctor.probes import forking
from torchdoctor.store.captured import open_capture


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[None]:
    with torchdoctor.watch(out=tmp_path, quiet=True):
        yield


class OutOfMemory(nn.Module):
    """Takes batches of up to eight samples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 8:
            raise RuntimeError("out of memory")
        return self.layer(x)


class Unwilling(torch.autograd.Function):
    @staticmethod
    def forward(_context: object, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_context: object, _gradient: Tensor) -> Tensor:
        raise RuntimeError("out of memory")


def fail_in_forward(model: nn.Module, samples: list[weakref.ref[object]]) -> None:
    x = kept(torch.randn(16, 4), samples)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(x)


def fail_in_loss(model: nn.Module, samples: list[weakref.ref[object]]) -> None:
    x = kept(torch.randn(8, 4), samples)
    with pytest.raises(ValueError, match="batch_size"):
        F.cross_entropy(model(x), kept(torch.zeros(9, dtype=torch.long), samples))


def fail_in_backward(model: nn.Module, samples: list[weakref.ref[object]]) -> None:
    output = model(kept(torch.randn(8, 4), samples))
    loss = F.cross_entropy(Unwilling.apply(output), kept(torch.zeros(8, dtype=torch.long), samples))
    samples += [weakref.ref(output), weakref.ref(loss)]
    with pytest.raises(RuntimeError, match="out of memory"):
        loss.backward()


def kept(tensor: Tensor, samples: list[weakref.ref[object]]) -> Tensor:
    """The same numbers in memory that tells when it is given back, through whatever tensor held it last."""
    memory = tensor.numpy().copy()
    samples.append(weakref.ref(memory))
    made = torch.from_numpy(memory)
    samples.append(weakref.ref(made))
    return made


def are_gone(samples: list[weakref.ref[object]]) -> bool:
    """The recorder's thread notes now and then where the script is, and holds its frames for that moment."""
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline and any(sample() is not None for sample in samples):
        time.sleep(0.01)
    return all(sample() is None for sample in samples)


@pytest.mark.parametrize("fail", [fail_in_forward, fail_in_loss, fail_in_backward])
@pytest.mark.usefixtures("watched")
def test_nothing_of_a_failed_pass_stays_alive(fail: object) -> None:
    model = OutOfMemory()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(6):
        samples: list[weakref.ref[object]] = []
        fail(model, samples)  # type: ignore[operator]
        assert are_gone(samples), step
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long)).backward()
        optimizer.step()


def test_a_pass_that_ends_the_script_is_in_its_capture(tmp_path: Path) -> None:
    model = OutOfMemory()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(RuntimeError, match="out of memory"), torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for size in (8, 8, 16):
            x = torch.randn(size, 4)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    (capture,) = (doctor.directory / "captures").iterdir()
    tensors = open_capture(capture).tensors
    assert [tuple(entry.shape) for name, entry in tensors.items() if name.startswith("batch/")] == [(16, 4)]


@pytest.mark.usefixtures("watched")
def test_anomaly_mode_is_what_the_script_has_set() -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def state() -> tuple[bool, bool]:
        return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()

    def train() -> tuple[tuple[bool, bool], bool]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(8, 4)), torch.zeros(8, dtype=torch.long))
        is_traced = "traceback_" in loss.grad_fn.metadata  # type: ignore[union-attr]
        loss.backward()
        optimizer.step()
        return state(), is_traced

    assert state() == (False, True)
    with torch.autograd.detect_anomaly(check_nan=False):
        assert train() == ((True, False), True)
    with torch.autograd.detect_anomaly(check_nan=True):
        assert train() == ((True, True), True)
    assert state() == (False, True)
    assert [train() for _ in range(3)][-1] == ((False, True), False)
    with torch.autograd.detect_anomaly(check_nan=False):
        assert train() == ((True, False), True)
    assert state() == (False, True)


@pytest.mark.usefixtures("watched")
def test_an_error_in_autograd_grad_is_told_as_without_us(recwarn: pytest.WarningsRecorder) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = Unwilling.apply(nn.Linear(2, 2)(x)).sum()
    with pytest.raises(RuntimeError, match="out of memory"):
        torch.autograd.grad(loss, x)
    assert not [w for w in recwarn if "Error detected" in str(w.message)]


def test_the_end_of_a_model_runs_no_code_of_ours_that_a_signal_could_end() -> None:
    """Python drops what a signal handler raises inside the callback of a weak reference."""
    registry, model = Registry(), nn.Linear(1, 1)
    registry.count_modules(model)
    registry.is_unknown(model)
    registry.called_inside(model)
    registry.called_as_root(model)
    registry.add_model(model)
    callbacks = [ref.__callback__ for ref in weakref.getweakrefs(model) if ref.__callback__ is not None]
    ours = [c for c in callbacks if getattr(c, "__module__", "").startswith("torchdoctor")]
    assert callbacks and not [c for c in ours if isinstance(c, FunctionType | MethodType)]


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_handler_that_raises_while_we_fork_leaves_no_signal_blocked() -> None:
    class LateError(OSError):
        pass

    def raise_late(_number: int, _frame: FrameType | None) -> None:
        raise LateError

    before, raised = signal.signal(signal.SIGPROF, raise_late), 0
    try:
        for _ in range(40):
            try:
                signal.setitimer(signal.ITIMER_PROF, random.uniform(1e-5, 2e-3))
                while True:
                    errand = forking.Errand()
                    if errand.send(5.0) is not None:
                        os._exit(0)
                    errand.give_up()
                    errand.bury()
            except LateError:
                raised += 1
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert raised == 40


def test_the_traceback_of_an_interruption_shows_the_scripts_frames() -> None:
    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("late")

    site = guarded("interrupted site of a test")(lambda: signal.raise_signal(signal.SIGALRM))
    before = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(TimeoutError) as caught:
            site()
    finally:
        signal.signal(signal.SIGALRM, before)

    def names(trace: TracebackType | None) -> list[str]:
        return [entry.tb_frame.f_code.co_name for entry in entries(trace)]

    here = "test_the_traceback_of_an_interruption_shows_the_scripts_frames"
    trace = caught.value.__traceback__
    assert "call" in names(trace)
    assert names(without_sites(trace)) == [here, "late"]


def test_what_another_thread_trains_is_left_alone(tmp_path: Path) -> None:
    """Its backward pass replaces gradients without Python's lock; reading one meanwhile ends the process by SIGSEGV."""
    made: list[tuple[nn.Module, torch.optim.Optimizer]] = []

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

    def make() -> None:
        model = nn.Linear(4, 3)
        model(torch.randn(8, 4))
        made.append((model, torch.optim.SGD(model.parameters(), 0.1)))

    def elsewhere(action: Callable[[], None]) -> None:
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()

    with torchdoctor.watch(out=tmp_path, quiet=True):
        registry = sessions.current().registry  # type: ignore[union-attr]
        elsewhere(make)
        make()
        make()
        step(*made[1])
        assert [optimizer for _, optimizer in registry.live_optimizers()] == [made[1][1], made[2][1]]
        elsewhere(lambda: step(*made[2]))
        elsewhere(lambda: step(*made[1]))
        registry.held()
        assert [optimizer for _, optimizer in registry.live_optimizers()] == [made[1][1]]
        assert [model for _, model in registry.live_models()] == [made[1][0]]
        assert len(list(registry.parameters())) == 2


def test_a_model_that_another_thread_built_is_recorded_where_we_train_it(tmp_path: Path) -> None:
    made: list[tuple[nn.Module, torch.optim.Optimizer]] = []

    def make() -> None:
        model = nn.Linear(4, 3)
        made.append((model, torch.optim.SGD(model.parameters(), 0.1)))

    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        registry = sessions.current().registry  # type: ignore[union-attr]
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        model, optimizer = made[0]
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        assert [each for _, each in registry.live_optimizers()] == [optimizer]
        assert set(registry.held()) == {id(p) for p in model.parameters()}
    run = doctor.run()
    assert [fact.name for fact in run.facts(ModelFact)] == ["Linear"]
    assert set(run.parameters) == {"weight", "bias"}
