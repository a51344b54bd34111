"""Determinism: the same numbers again, everything put back, and what it does not reach in words."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.instruments.repeating.cost import DeterminismCost, determinism_cost
from torchdoctor.instruments.repeating.determinism import CUBLAS, Switches, deterministic, seed_worker


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def put() -> None:
    """Two values to one place: torch has no deterministic form of it."""
    torch.zeros(4).put_(torch.tensor([0, 0]), torch.ones(2))


class Drawn(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, *draws()


def test_the_same_numbers_again_and_another_seed_gives_others() -> None:
    with deterministic(3):
        first = draws()
    with deterministic(3):
        assert draws() == first
    with deterministic(4):
        assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_everything_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CUBLAS, raising=False)
    before, filters, show = Switches.now(), list(warnings.filters), warnings.showwarning
    state = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), deterministic(0):
        assert Switches.now() == Switches(True, False, True, False)
        assert os.environ[CUBLAS] == ":4096:8"
        draws()
        _ = 1 / 0
    assert Switches.now() == before and CUBLAS not in os.environ
    assert warnings.filters == filters and warnings.showwarning is show
    assert random.getstate() == state[0] and (np.random.get_state()[1] == state[1]).all()
    assert torch.equal(torch.get_rng_state(), state[2])


def test_as_a_function_it_stays_until_it_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUBLAS, ":16:8")
    settings = torchdoctor.deterministic(0)
    try:
        assert torch.are_deterministic_algorithms_enabled() and os.environ[CUBLAS] == ":16:8"
        with torchdoctor.deterministic(1):
            draws()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        settings.restore()
    assert not torch.are_deterministic_algorithms_enabled()
    with settings:
        assert torch.are_deterministic_algorithms_enabled()
    settings.restore()
    assert not torch.are_deterministic_algorithms_enabled() and os.environ[CUBLAS] == ":16:8"


def test_operations_that_cannot_repeat_themselves_are_named() -> None:
    with pytest.raises(RuntimeError, match="deterministic implementation"), deterministic(0) as strict:
        put()
    assert strict.nondeterministic == ["put_"]
    with pytest.warns(UserWarning, match="put_") as told, deterministic(0, warn_only=True) as mild:
        put()
        put()
        assert mild.nondeterministic == ["put_"] and "met since: put_" in str(mild)
    assert len(told) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_give_the_same_batches(workers: int) -> None:
    seen = []
    for _ in range(2):
        with deterministic(0) as settings:
            options = settings.loader_options()
            loader = DataLoader(Drawn(), 4, shuffle=True, num_workers=workers, **options)
            seen.append([torch.stack([t.double() for t in batch]) for batch in loader])
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    assert settings.worker_init_fn is seed_worker and settings.generator.initial_seed() == 0


def test_workers_draw_what_torch_seeded_them_with() -> None:
    with deterministic(0):
        torch.manual_seed(7)
        seed_worker(0)
        first = random.random(), np.random.rand()
        torch.manual_seed(7)
        seed_worker(1)
        assert (random.random(), np.random.rand()) == first


@pytest.mark.parametrize(("given", "said"), [(None, True), ("0", False), ("random", True)])
def test_the_hash_seed_counts_only_from_the_start(given: str | None, said: bool) -> None:
    code = (
        "import os; os.environ['PYTHONHASHSEED'] = '1'\n"
        "from torchdoctor.instruments.repeating.determinism import _unreached\n"
        "print(any('PYTHONHASHSEED' in n for n in _unreached(None, False)))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    environment |= {} if given is None else {"PYTHONHASHSEED": given}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(said)


def test_cublas_too_late_is_said() -> None:
    from torchdoctor.instruments.repeating.determinism import _unreached

    assert "too late" in _unreached(None, True)[0]
    assert not any("too late" in n for n in _unreached(":4096:8", True))
    assert not any("too late" in n for n in _unreached(None, False))


def test_what_it_costs_leaves_no_trace() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    modes: list[bool] = []

    def step() -> None:
        modes.append(torch.are_deterministic_algorithms_enabled())
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        put()

    weights, drawn, before = model.weight.detach().clone(), torch.get_rng_state(), Switches.now()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = determinism_cost(step, rounds=6, warmup=1, model=model, optimizer=optimizer, progress=False)
    assert modes.count(True) == modes.count(False) == 7
    assert modes[:4] in ([True, False, False, True], [False, True, True, False])
    assert len(found.free) == len(found.bound) == 6 and found.low <= found.ratio <= found.high
    assert found.nondeterministic == ["put_"] and "put_" in str(found)
    assert torch.equal(weights, model.weight) and not optimizer.state
    assert torch.equal(drawn, torch.get_rng_state()) and Switches.now() == before


def test_what_it_costs_inside_a_block() -> None:
    with deterministic(0) as settings:
        found = settings.cost(lambda: None, rounds=6, progress=False)
        assert torch.are_deterministic_algorithms_enabled()
    assert "stays changed" in str(found)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (1.3, 1.2, 1.4, "30% slower"),
        (3.0, 2.9, 3.1, "3 times as long"),
        (1.0, 0.99, 1.01, "nothing that could be measured"),
        (1.2, 0.5, 2.0, "Too noisy"),
        (0.8, 0.7, 0.9, "20% faster"),
    ],
)
def test_the_verdict_and_the_picture(ratio: float, low: float, high: float, said: str) -> None:
    found = DeterminismCost([0.01] * 6, [0.01 * ratio] * 6, ratio, low, high, "CPU", [], [])
    assert said in str(found) and said in found.plot().layout.title.text
    assert len(found.plot().data) == 2 and found.to_dict()["ratio"] == ratio


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: deterministic(-1), "seed is -1"),
        (lambda: deterministic(2**32), "whole number"),
        (lambda: deterministic("0"), "seed is '0'"),
        (lambda: deterministic(0, workspace=":1:1"), "workspace"),
        (lambda: determinism_cost(3), "step is a int"),
        (lambda: determinism_cost(lambda: None, rounds=2), "rounds is 2"),
    ],
)
def test_what_cannot_be_is_said(call, said) -> None:  # type: ignore[no-untyped-def]
    before = Switches.now()
    with pytest.raises(UsageError, match=said):
        call()
    assert Switches.now() == before
