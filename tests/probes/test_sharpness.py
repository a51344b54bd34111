from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchdoctor
from torchdoctor.facts import HealthFact, SharpnessFact
from torchdoctor.probes import sharpness
from torchdoctor.probes.forking import unsafe
from torchdoctor.probes.sharpness import Setup, measure
from torchdoctor.run import Run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a forked child measures it, on Linux only")


def setup(model: nn.Module, x: torch.Tensor, y: torch.Tensor, recorded: float | None = None) -> Setup:
    with torch.no_grad():
        output = model(x)
        found = float(F.mse_loss(output, y))
    return Setup(
        weakref.ref(model), [x], "mse_loss", output.shape, y, {}, found if recorded is None else recorded, len(x)
    )


def fitted(factor: float = 1.0) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A linear map that is right; with a factor, two large maps whose difference is right."""
    torch.manual_seed(0)
    x, true = torch.randn(64, 6), torch.randn(2, 6)
    model = nn.Linear(12, 2, bias=False)
    large = factor * torch.randn(2, 6)
    with torch.no_grad():
        model.weight.copy_(torch.cat([large + true, -large], 1))
    return model, torch.cat([x, x], 1), x @ true.T


def test_weights_that_cancel_are_sharper() -> None:
    flat, sharp = (measure(m, setup(m, x, y, recorded=0.01), at_end=True) for m, x, y in (fitted(0.0), fitted(10.0)))
    assert max(flat["losses"][0]) < 0.05
    assert min(sharp["losses"][0]) > 20 * max(flat["losses"][0])
    assert [len(found) for found in sharp["losses"]] == [sharpness.DRAWS, sharpness.DRAWS]


def test_the_scale_of_a_layer_does_not_matter() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32, bias=False), nn.ReLU(), nn.Linear(32, 1, bias=False))
    x = torch.randn(64, 6)
    y = model(x).detach() + 0.1
    before = measure(model, setup(model, x, y), at_end=False)
    torch.manual_seed(0)
    again = nn.Sequential(nn.Linear(6, 32, bias=False), nn.ReLU(), nn.Linear(32, 1, bias=False))
    with torch.no_grad():
        again[0].weight.mul_(8)
        again[2].weight.div_(8)
    after = measure(again, setup(again, x, y), at_end=False)
    assert after["losses"][0] == pytest.approx(before["losses"][0], rel=1e-4)


def test_a_pass_that_gives_another_loss_is_not_used() -> None:
    model, x, y = fitted()
    assert "recorded" in measure(model, setup(model, x, y, recorded=5.0), at_end=False)["reason"]


def test_another_thread_or_a_handler_of_children_forbids_the_fork() -> None:
    assert unsafe() is None
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="theirs")
    thread.start()
    try:
        assert "theirs" in (unsafe() or "")
    finally:
        stop.set()
        thread.join()
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        assert "child" in (unsafe() or "")
    finally:
        signal.signal(signal.SIGCHLD, before)


def train(steps: int, wrapped: Any = None, keep: list[nn.Module] | None = None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    if keep is not None:
        keep.append(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(512, 6)
    y = x[:, :3].argmax(1)
    for i in range(steps):
        model.train()
        chosen = torch.randint(0, 512, (32,))
        output = model(x[chosen])
        loss = F.cross_entropy(output if wrapped is None else wrapped(output), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 25 == 24:
            model.eval()
            with torch.no_grad():
                F.cross_entropy(model(x), y).item()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a child may need seconds."""
    monkeypatch.setattr(sharpness, "PATIENCE", 20.0)
    monkeypatch.setattr(sharpness, "DRAWING_SECONDS", 20.0)
    monkeypatch.setattr(sharpness, "CHILD_SECONDS", 15.0)


def watch(tmp_path: Path, steps: int, **how: Any) -> Run:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(steps, **how)
    run = doctor.run()
    assert run is not None
    return run


def count_forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    forked: list[int] = []
    fork = os.fork

    def counted() -> int:
        child = fork()
        forked.append(child)
        return child

    monkeypatch.setattr(os, "fork", counted)
    return forked


def assert_all_gone(children: list[int]) -> None:
    assert children
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_a_child_measures_while_it_trains_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[nn.Module] = []
    forked = count_forks(monkeypatch)
    found = watch(tmp_path, 300, keep=kept).facts_at(SharpnessFact)
    assert [fact.at_end for _, fact in found] == [False, True]
    assert found[0][0] >= sharpness.FIRST_STEP
    assert found[1][1].samples == 32
    assert all(len(losses) == sharpness.DRAWS for losses in found[1][1].losses)
    assert_all_gone(forked)


def test_the_training_that_was_forked_ends_with_the_same_bits(tmp_path: Path) -> None:
    bare: list[nn.Module] = []
    train(300, keep=bare)
    state = torch.get_rng_state()
    watched: list[nn.Module] = []
    assert watch(tmp_path, 300, keep=watched).facts(SharpnessFact)
    assert torch.equal(torch.get_rng_state(), state)
    pairs = zip(bare[0].state_dict().values(), watched[0].state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_model_that_is_gone_in_the_end_was_measured_before(tmp_path: Path) -> None:
    assert [fact.at_end for fact in watch(tmp_path, 300).facts(SharpnessFact)] == [False]


def test_what_could_not_be_measured_is_told_with_its_reason(tmp_path: Path) -> None:
    run = watch(tmp_path, 300, wrapped=lambda output: output.flip(1))
    assert run.facts(SharpnessFact) == []
    health = run.last_fact(HealthFact)
    assert health is not None
    assert "sharpness" in health.unsupported


def test_a_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any) -> None:
        signal.pause()

    monkeypatch.setattr(sharpness, "measure", hang)
    monkeypatch.setattr(sharpness, "PATIENCE", 0.3)
    forked = count_forks(monkeypatch)
    run = watch(tmp_path, 300)
    assert run.facts(SharpnessFact) == []
    assert_all_gone(forked)


def test_the_user_is_out_of_reach_in_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither handlers nor files of the user's are at work there."""
    kept = tmp_path / "log.txt"
    with kept.open("w") as shared:

        def disturb(*_: Any) -> dict[str, Any]:
            os.kill(os.getpid(), signal.SIGUSR1)
            raise AssertionError("the default action of that signal ends the child")

        def speak(*_: Any) -> dict[str, Any]:
            shared.write("seen")
            shared.flush()
            return {"reason": "spoken"}

        caught: list[int] = []
        previous = signal.signal(signal.SIGUSR1, lambda *_: shared.write("handled"))
        try:
            for work in (disturb, speak):
                monkeypatch.setattr(sharpness, "measure", work)
                caught.append(len(watch(tmp_path, 150).facts(SharpnessFact)))
        finally:
            signal.signal(signal.SIGUSR1, previous)
    assert caught == [0, 0]
    assert kept.read_text() == ""


def test_a_crash_is_not_answered_with_a_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[nn.Module] = []
    with pytest.raises(ZeroDivisionError), torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(100, keep=kept)
        monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
        raise ZeroDivisionError
    run = doctor.run()
    assert run is not None and run.facts(SharpnessFact) == []
