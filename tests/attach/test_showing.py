"""A doctor in a notebook: what it displays, and that a display which follows the training harms nothing."""

from __future__ import annotations

import random
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchdoctor
from processes import run_python
from torchdoctor.attach.showing import Showing
from torchdoctor.errors import UsageError


class Notebook:
    """IPython's display: one output a call, replaced by updates."""

    def __init__(self) -> None:
        self.outputs: list[list[str]] = []
        self.changed = threading.Condition()

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool | None = None) -> Any:
        assert raw and set(data) == {"text/html", "text/plain"}
        output = [data["text/html"]]
        self.outputs.append(output)

        def update(data: dict[str, str], *, raw: bool) -> None:
            with self.changed:
                output.append(data["text/html"])
                self.changed.notify_all()

        return SimpleNamespace(update=update) if display_id else None

    def wait_for(self, updates: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.outputs[0]) > updates, timeout=60)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    package, display = ModuleType("IPython"), ModuleType("IPython.display")
    package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = made.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return made


def train(steps: int, *, zero: bool = True, at: dict[int, Any] | None = None) -> list[Any]:
    """The weights and the state of every generator afterwards; `at` names what is done before a step."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for step in range(steps):
        if at and step in at:
            at[step]()
        x = torch.randn(16, 10)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        if zero:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = [p.detach().clone() for p in model.parameters()]
    return [*weights, torch.get_rng_state(), torch.tensor([random.random(), np.random.random()])]


def test_it_updates_in_place_while_it_trains(notebook: Notebook, tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, name="a", quiet=True, overhead=0.9) as doctor:
        doctor.show(interval=0.01)
        train(60, zero=False, at={40: lambda: notebook.wait_for(len(notebook.outputs[0]) + 2)})
    (output,) = notebook.outputs
    assert "waiting for the first step" in output[0]
    assert any("a: running" in drawn for drawn in output)
    assert "a: finished, 60 steps" in output[-1]
    assert "missing-zero-grad" in output[-1]
    assert output[-1].count("<svg") >= 2
    told = len(output)
    time.sleep(0.2)
    assert len(output) == told


def test_a_doctor_that_joined_shows_the_end_as_well(notebook: Notebook, tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, name="a", quiet=True, overhead=0.9):
        joined = torchdoctor.watch(quiet=True)
        joined.show(interval=0.01)
        train(20)
        joined.close()
    end = time.monotonic() + 60
    while "a: finished, 20 steps" not in notebook.outputs[0][-1]:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_findings_come_while_it_trains(notebook: Notebook, tmp_path: Path) -> None:
    def wait() -> None:
        end = time.monotonic() + 60
        while "missing-zero-grad" not in notebook.outputs[0][-1]:
            assert time.monotonic() < end
            time.sleep(0.01)

    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.9) as doctor:
        doctor.show(interval=0.01)
        train(60, zero=False, at={50: wait})
    assert "missing-zero-grad" in notebook.outputs[0][-1]


def test_the_training_is_the_same_bit_for_bit(notebook: Notebook, tmp_path: Path) -> None:
    alone = train(80)
    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.9) as doctor:
        doctor.show(interval=0.001)
        watched = train(80, at={60: lambda: notebook.wait_for(len(notebook.outputs[0]) + 2)})
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


def test_drawing_keeps_to_its_share_of_the_time() -> None:
    drawn: list[float] = []

    def draw() -> dict[str, str]:
        drawn.append(time.monotonic())
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return {"text/html": "", "text/plain": ""}

    showing = Showing(Notebook().display, draw, lambda: True, share=0.1, interval=0.001)
    end = time.monotonic() + 60
    while len(drawn) < 5:
        assert time.monotonic() < end
        time.sleep(0.01)
    following = drawn[1:5]  # the first one is the cell's own
    showing.end()
    assert min(b - a for a, b in pairwise(following)) > 0.02 / 0.1


def test_a_display_that_fails_is_given_up(notebook: Notebook, tmp_path: Path) -> None:
    calls: list[int] = []

    def fail() -> dict[str, str]:
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("no more")
        return {"text/html": "", "text/plain": ""}

    showing = Showing(notebook.display, fail, lambda: True, share=0.9, interval=0.001)
    time.sleep(0.3)
    assert len(calls) == 1 + 3
    showing.end()


def test_after_the_end_it_is_shown_once(notebook: Notebook, tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, name="a", quiet=True) as doctor:
        train(40)
    doctor.show()
    assert len(notebook.outputs) == 1
    assert "a: finished, 40 steps" in notebook.outputs[0][0]


def test_shown_again_the_first_output_stops(notebook: Notebook, tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.9) as doctor:
        doctor.show(interval=0.01)
        train(20)
        doctor.show(interval=0.01)
        held = len(notebook.outputs[0])
        train(20)
    assert len(notebook.outputs[0]) == held
    assert "40 steps" in notebook.outputs[1][-1]


def test_single_figures_of_a_doctor_while_it_trains_and_after(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        with pytest.raises(UsageError, match="nothing is recorded yet"):
            torchdoctor.plots.loss(doctor)
        train(40)
        assert torchdoctor.plots.loss(doctor).data
    assert (
        torchdoctor.plots.loss(doctor).layout.title.text == torchdoctor.plots.loss(doctor.directory).layout.title.text
    )


def test_outside_a_notebook_it_names_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torchdoctor.watch(out=tmp_path, name="a", quiet=True) as doctor:
        train(5)
        doctor.show()
    assert f"in a terminal: torchdoctor top {tmp_path / 'a'}" in capsys.readouterr().err


def test_a_shell_in_a_terminal_is_no_notebook(notebook: Notebook, tmp_path: Path) -> None:
    sys.modules["IPython"].get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train(5)
        doctor.show()
    assert notebook.outputs == []


def test_wrong_interval(notebook: Notebook, tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor, pytest.raises(UsageError, match="above 0"):
        doctor.show(interval=0)


def test_ipython_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys, torchdoctor\n"
        f"doctor = torchdoctor.watch(out={str(tmp_path)!r}, quiet=True)\n"
        "doctor.show(); doctor._repr_html_(); doctor.close()\n"
        "print([m for m in sys.modules if m.startswith('IPython') or m == 'plotly'])"
    )
    done = run_python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_doctor_displays_itself(tmp_path: Path) -> None:
    doctor = torchdoctor.watch(out=tmp_path, name="a", quiet=True)
    assert "waiting for the first step" in doctor._repr_html_()
    train(40, zero=False)
    shown = doctor._repr_html_()
    assert "a: running, 40 steps" in shown
    assert "missing-zero-grad" in shown
    assert "<svg" in shown
    assert "<script" not in shown
    doctor.close()
    assert "a: finished" in doctor._repr_html_()
