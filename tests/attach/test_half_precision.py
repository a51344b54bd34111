"""What is recorded of 16-bit types: delicate operations, hidden overflows, updates that round away, the scaler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchdoctor
from torchdoctor.engine import examine
from torchdoctor.facts import Fact, HalfOperationFact, ModuleFact, OperationFact, PrecisionFact
from torchdoctor.probes.graph import walk
from torchdoctor.probes.operations import OperationProbe
from torchdoctor.probes.precision import PrecisionProbe
from torchdoctor.report.found import describe_found
from torchdoctor.run import Run
from torchdoctor.signals import SCALE, STEP_SKIPPED, UPDATE_LOST


def recording() -> tuple[Any, list[Fact]]:
    written: list[Fact] = []
    record = SimpleNamespace(fact=lambda fact, step, subject="": written.append(fact))
    names = SimpleNamespace(name_of=lambda p: "fc.weight", parameters=lambda: iter(()))
    return SimpleNamespace(record=record, step=3, names=names), written


def x(*shape: int, size: float = 1.0, dtype: torch.dtype = torch.float16) -> Tensor:
    return (torch.full(shape, size).requires_grad_() * 1.0).to(dtype)


def delicate(loss: Tensor) -> list[HalfOperationFact]:
    context, written = recording()
    probe = PrecisionProbe(context)
    probe.look(loss, walk(loss))
    return [f for f in written if isinstance(f, HalfOperationFact)]


@pytest.mark.parametrize(
    ("make", "operator"),
    [
        (lambda v: v.softmax(-1).float().sum(), "Softmax"),
        (lambda v: nn.functional.layer_norm(v, v.shape[-1:]).float().sum(), "NativeLayerNorm"),
        (lambda v: nn.functional.mse_loss(v, torch.zeros_like(v)), "MseLoss"),
        (lambda v: v.exp().float().sum(), "Exp"),
        (lambda v: v.cumsum(0).float().sum(), "Cumsum"),
    ],
)
def test_delicate_operations_in_half_precision_are_noted(make: Callable[[Tensor], Tensor], operator: str) -> None:
    (fact,) = delicate(make(x(4, 8)))
    assert (fact.operator, fact.dtype) == (operator, "float16")
    assert not delicate(make(x(4, 8, dtype=torch.float32)))


def test_only_long_sums_are_noted() -> None:
    (fact,) = delicate(x(2, 3000).mean(1).float().sum())
    assert (fact.operator, fact.length) == ("Mean", 3000)
    assert not delicate(x(2, 2048).mean(1).float().sum())


def hidden(loss: Tensor) -> list[OperationFact]:
    context, written = recording()
    graph = walk(loss)
    assert graph is not None
    OperationProbe(context).look(loss, graph)
    return [f for f in written if isinstance(f, OperationFact) and f.trouble == "half"]


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": lambda v: v / (v * v).mean(-1, keepdim=True).sqrt(),
    "rsqrt": lambda v: v * v.pow(2).mean(-1, keepdim=True).rsqrt(),
    "norm": lambda v: v / v.norm(dim=-1, keepdim=True),
    "reciprocal": lambda v: v * (v * v).sum(-1, keepdim=True).reciprocal(),
}


@pytest.mark.parametrize("norm", NORMS)
def test_an_infinite_denominator_is_seen_though_the_loss_is_finite(norm: str) -> None:
    loss = NORMS[norm](x(3, 64, size=20000.0)).float().sum()
    assert loss.isfinite()
    fact = hidden(loss)[0]
    assert (fact.over, fact.born, fact.count, fact.total) == (True, False, 3, 3)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("size", "dtype"), [(2.0, torch.float16), (20000.0, torch.float32), (20000.0, torch.bfloat16)])
def test_nothing_overflows_where_the_type_holds_it(norm: str, size: float, dtype: torch.dtype) -> None:
    assert not hidden(NORMS[norm](x(3, 64, size=size, dtype=dtype)).float().sum())


def test_a_mask_of_minus_infinity_is_no_overflow() -> None:
    scores = x(4, 4) / x(4, 4, size=2.0)
    masked = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf) / x(4, 4, size=3.0)
    assert not hidden(masked.softmax(-1).float().sum())


def train(tmp_path: Path, rate: float, dtype: torch.dtype, scaler: torch.amp.GradScaler | None = None) -> Run:
    torch.manual_seed(0)
    half = scaler is not None
    with torchdoctor.watch(out=tmp_path, quiet=True, overhead=0.5) as doctor:
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3)).to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
        for _ in range(30):
            inputs, labels = torch.randn(16, 8, dtype=dtype), torch.randint(0, 3, (16,))
            with torch.autocast("cpu", dtype=torch.float16, enabled=half):
                loss = nn.functional.cross_entropy(model(inputs).float(), labels)
            optimizer.zero_grad()
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    run = doctor.run()
    assert run is not None
    return run


@pytest.mark.parametrize(("rate", "low", "high"), [(1e-5, 0.9, 1.0), (1.0, 0.0, 0.2)])
def test_updates_that_leave_16_bit_weights_as_they_were(tmp_path: Path, rate: float, low: float, high: float) -> None:
    run = train(tmp_path, rate, torch.bfloat16)
    lost = run.matrix(UPDATE_LOST).column("0.weight").values
    assert low <= float(np.nanmedian(lost)) <= high
    assert {m.dtype for m in run.facts(ModuleFact)} == {"bfloat16"}


def test_weights_in_float32_have_no_such_record(tmp_path: Path) -> None:
    assert not len(train(tmp_path, 1e-5, torch.float32).matrix(UPDATE_LOST))


def test_a_scaler_that_searches_its_scale_is_recorded_and_told_and_no_fault(tmp_path: Path) -> None:
    run = train(tmp_path, 1e-2, torch.float32, torch.amp.GradScaler("cpu", init_scale=2.0**26))
    skipped = int(run.scalar(STEP_SKIPPED).values.sum())
    assert skipped > 0
    scale = run.scalar(SCALE).values[-1]
    assert f"gradient scaler at {scale:,.0f} ({skipped} of 30 updates skipped)" in describe_found(run)
    names = {f.name for f in examine(run).findings}
    assert not names & {"half-precision-overflow", "half-precision-underflow", "loss-scale-collapse"}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaler_that_is_switched_off_is_known(tmp_path: Path, enabled: bool) -> None:
    run = train(tmp_path, 1e-2, torch.float32, torch.amp.GradScaler("cpu", enabled=enabled))
    fact = run.last_fact(PrecisionFact)
    assert fact is not None
    assert (fact.scaler, fact.scaling) == (enabled, enabled)
