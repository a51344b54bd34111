"""What is done about losses and gradients that are not finite: nothing, skip, halt, rollback."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from attach.loops import LOOPS
from torchdoctor.attach.options import Options
from torchdoctor.attach.snapshots import Snapshot, broken
from torchdoctor.doctor import Doctor
from torchdoctor.errors import StopTraining, TrainingHalted, UsageError
from torchdoctor.facts import BirthFact, RemedyFact
from torchdoctor.report.terminal import print_verdict
from torchdoctor.settings import Settings, read

STEPS = 60
BAD = (7, 33)
MODES = ("skip", "halt", "rollback")


def watch(tmp_path: Path, mode: str | None = None, **wishes: Any) -> Doctor:
    return torchdoctor.watch(out=tmp_path, quiet=True, on_nonfinite=mode, **wishes)


def remedy(doctor: Doctor) -> RemedyFact:
    run = doctor.run()
    assert run is not None
    fact = run.last_fact(RemedyFact)
    assert fact is not None
    return fact


def bits(*things: nn.Module | Optimizer) -> list[Any]:
    """Everything they hold, bit for bit."""
    found: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, Tensor):
            found.append(value.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        elif isinstance(value, dict):
            for key in value:
                found.append(str(key))
                walk(value[key])
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(inner)
        else:
            found.append(repr(value))

    for thing in things:
        walk(thing.state_dict())
    return found


def is_sound(model: nn.Module) -> bool:
    return all(bool(t.isfinite().all()) for t in model.state_dict().values())


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


def batch(i: int, bad: bool = False) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(100 + i))
    y = x[:, :3].argmax(1)
    if bad:
        x[3, 2] = math.nan
    return x, y


SGD: Callable[[Any], Optimizer] = lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01)  # noqa: E731
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": SGD,
    "sgd-foreach": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01, foreach=True),
    "sgd-fused": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "adam-amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, weight_decay=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, weight_decay=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01, weight_decay=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, 0.01, weight_decay=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, 0.01, weight_decay=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.01),
    "radam": lambda p: torch.optim.RAdam(p, 0.01, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, weight_decay=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, 0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, 0.01),
}


def train(make: Callable[[Any], Optimizer], bad: tuple[int, ...] = BAD, leave: bool = False) -> list[Any]:
    """A plain loop; `leave`: without the steps of the bad batches."""
    model = network()
    optimizer = make(model.parameters())
    for i in range(STEPS):
        if i in bad and leave:
            continue
        x, y = batch(i, i in bad)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return bits(model, optimizer)


# -- skip ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_skipped_step_is_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    expected = train(OPTIMIZERS[name], leave=True)
    with watch(tmp_path, "skip") as doctor:
        assert train(OPTIMIZERS[name]) == expected
    assert remedy(doctor) == RemedyFact("skip", skips=2, skipped=list(BAD))


def test_without_bad_steps_nothing_changes(tmp_path: Path) -> None:
    expected = train(SGD, bad=())
    for mode in MODES:
        with watch(tmp_path, mode) as doctor:
            assert train(SGD, bad=()) == expected
        assert remedy(doctor) == RemedyFact(mode)


@pytest.mark.parametrize("mode", ["skip", "rollback"])
@pytest.mark.parametrize("name", LOOPS)
def test_sound_loops_of_every_style_keep_their_bits(name: str, mode: str, tmp_path: Path) -> None:
    bare = LOOPS[name](40)
    with watch(tmp_path, mode) as doctor:
        assert LOOPS[name](40) == bare
    assert remedy(doctor) == RemedyFact(mode)


def test_report_touches_nothing_and_is_the_default(tmp_path: Path) -> None:
    expected = train(SGD)
    for mode in (None, "report"):
        with watch(tmp_path, mode) as doctor:
            assert train(SGD) == expected
        run = doctor.run()
        assert run is not None
        assert run.last_fact(RemedyFact) is None


def test_gradients_are_the_users_again_after_the_call(tmp_path: Path) -> None:
    model = network()
    optimizer = SGD(model.parameters())
    with watch(tmp_path, "skip"):
        F.cross_entropy(model(batch(0, bad=True)[0]), batch(0)[1]).backward()
        before = [p.grad for p in model.parameters()]
        optimizer.step()
    assert all(p.grad is grad for p, grad in zip(model.parameters(), before, strict=True))
    assert before[0] is not None
    assert bool(before[0].isnan().any())


def test_a_gradient_that_breaks_late_in_a_run_behind_a_finite_loss(tmp_path: Path) -> None:
    def loop(leave: bool) -> list[Any]:
        model = network()
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        for i in range(150):
            if i == 130 and leave:
                continue
            x, y = batch(i)
            loss = F.cross_entropy(model(x), y)
            if i == 130:
                loss = loss + (model[3].bias * 0.0).abs().sqrt().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return bits(model, optimizer)

    expected = loop(leave=True)
    with watch(tmp_path, "skip", overhead=0.01) as doctor:
        assert loop(leave=False) == expected
    assert remedy(doctor).skipped == [130]
    run = doctor.run()
    assert run is not None
    assert [(step, fact.backward) for step, fact in run.facts_at(BirthFact)] == [(130, True)]


def test_a_loss_that_is_nan_while_its_gradients_are_not(tmp_path: Path) -> None:
    def loop(leave: bool) -> list[Any]:
        model = network()
        optimizer = SGD(model.parameters())
        for i in range(20):
            if i == 12 and leave:
                continue
            x, y = batch(i)
            loss = F.cross_entropy(model(x), y) + (math.nan if i == 12 else 0.0)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
        return bits(model, optimizer)

    expected = loop(leave=True)
    with watch(tmp_path, "skip") as doctor:
        assert loop(leave=False) == expected
    assert remedy(doctor).skipped == [12]


@pytest.mark.parametrize("to_none", [True, False])
def test_who_throws_a_bad_gradient_away_himself_loses_no_update(to_none: bool, tmp_path: Path) -> None:
    def loop() -> list[Any]:
        model = network()
        optimizer = SGD(model.parameters())
        for i in range(20):
            x, y = batch(i)
            loss = F.cross_entropy(model(x), y) + (math.nan if i == 12 else 0.0)
            optimizer.zero_grad(set_to_none=to_none)
            loss.backward()
            if not math.isfinite(loss.item()):
                optimizer.zero_grad(set_to_none=to_none)
                continue
            optimizer.step()
        return bits(model, optimizer)

    expected = loop()
    with watch(tmp_path, "skip") as doctor:
        assert loop() == expected
    assert remedy(doctor).skips == 0


@pytest.mark.parametrize("mode", MODES)
def test_who_looks_at_his_loss_and_goes_on_loses_no_update(mode: str, tmp_path: Path) -> None:
    def loop() -> list[Any]:
        model = network()
        optimizer = SGD(model.parameters())
        for i in range(20):
            x, y = batch(i)
            loss = F.cross_entropy(model(x), y) + (math.nan if i == 12 else 0.0)
            if torch.isnan(loss):
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return bits(model, optimizer)

    expected = loop()
    with watch(tmp_path, mode) as doctor:
        assert loop() == expected
    assert remedy(doctor) == RemedyFact(mode)


def test_large_finite_gradients_are_no_reason(tmp_path: Path) -> None:
    assert broken([torch.full((4,), 1e30), torch.ones(2)]) == []
    assert broken([torch.ones(2), torch.tensor([1.0, math.inf])]) == [1]
    assert broken([torch.ones(2, dtype=torch.bfloat16), torch.tensor([1.0]), torch.tensor([math.nan])]) == [2]
    sparse = torch.sparse_coo_tensor([[0, 2]], torch.tensor([1.0, math.nan]), (4,))
    assert broken([torch.ones(2), sparse]) == [1]
    assert broken([sparse.to_dense().nan_to_num().to_sparse()]) == []


def test_accumulation_leaves_the_whole_step_out(tmp_path: Path) -> None:
    def loop(leave: bool) -> list[Any]:
        model = network()
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        for i in range(40):
            if 20 <= i < 24 and leave:
                continue
            x, y = batch(i, bad=i == 21)
            (F.cross_entropy(model(x), y) / 4).backward()
            if i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        return bits(model, optimizer)

    expected = loop(leave=True)
    with watch(tmp_path, "skip") as doctor:
        assert loop(leave=False) == expected
    assert remedy(doctor).skipped == [5]


@pytest.mark.parametrize("name", ["sgd", "adamw", "lbfgs"])
def test_an_optimizer_that_calls_a_closure(name: str, tmp_path: Path) -> None:
    def loop(leave: bool) -> list[Any]:
        model = network()
        make = OPTIMIZERS.get(name, lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3))
        optimizer = make(model.parameters())
        for i in range(30):
            if i in (0, 18) and leave:
                continue
            x, y = batch(i, bad=i in (0, 18))
            x = x.nan_to_num() if i == 0 else x  # batch statistics of the first step are nobody's to restore
            spoilt = math.nan if i == 0 else 1.0

            def closure(x: Tensor = x, y: Tensor = y, spoilt: float = spoilt) -> Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(model[3](model[2](model[0](x))), y) * spoilt
                loss.backward()
                return loss

            optimizer.step(closure)
        return bits(model, optimizer)

    expected = loop(leave=True)
    with watch(tmp_path, "skip") as doctor:
        assert loop(leave=False) == expected
    assert remedy(doctor).skipped == [0, 18]


@pytest.mark.parametrize("mode", ["skip", "rollback"])
def test_a_search_that_ends_beyond_all_numbers_is_undone(mode: str, tmp_path: Path) -> None:
    x = torch.linspace(0.1, 3.1, 64)
    weights = [torch.nn.Parameter(torch.tensor(v)) for v in (1.0, 2.5, 1.0)]
    optimizer = torch.optim.LBFGS(weights, lr=1.0, max_iter=5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weights[0] * (x - 0.1 + weights[2]) ** weights[1] - 2.0 * (x - 0.1) ** 1.7).square().mean()
        loss.backward()
        return loss

    with watch(tmp_path, mode) as doctor:
        for _ in range(12):
            optimizer.step(closure)
            assert all(w.isfinite() for w in weights)
    assert remedy(doctor).skips + remedy(doctor).rollbacks


def test_of_two_optimizers_only_the_one_whose_loss_broke_is_held(tmp_path: Path) -> None:
    def loop(leave: bool) -> list[Any]:
        one, other = network(), network()
        first, second = SGD(one.parameters()), OPTIMIZERS["adamw"](other.parameters())
        for i in range(30):
            x, y = batch(i)
            if not (leave and i == 17):
                first.zero_grad()
                F.cross_entropy(one(batch(i, bad=i == 17)[0]), y).backward()
                first.step()
            second.zero_grad()
            F.cross_entropy(other(x), y).backward()
            second.step()
        return bits(one, other, first, second)

    expected = loop(leave=True)
    with watch(tmp_path, "skip") as doctor:
        assert loop(leave=False) == expected
    assert remedy(doctor).skips == 1


def scaled_loop(overflow: bool, leave: bool = False) -> list[Any]:
    model = network()
    optimizer = SGD(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=8)
    for i in range(30):
        x, y = batch(i, bad=i == 21)
        loss = F.cross_entropy(model[3](model[2](model[0](x))), y) * (1e38 if overflow and i == 11 else 1.0)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [*bits(model, optimizer), scaler.state_dict()]


@pytest.mark.parametrize("mode", ["skip", "rollback"])
def test_a_scaler_skips_by_itself_and_keeps_its_scale(mode: str, tmp_path: Path) -> None:
    expected = scaled_loop(overflow=True)
    with watch(tmp_path, mode) as doctor:
        trained = scaled_loop(overflow=True)
    fact = remedy(doctor)
    assert trained[-1] == expected[-1]
    assert fact.skips == 0
    if mode == "skip":
        assert trained == expected
    else:
        assert [broke for broke, _ in fact.rolled_back] == [21]


def test_an_overflow_that_the_scaler_handles_is_no_reason_to_halt(tmp_path: Path) -> None:
    doctor = watch(tmp_path, "halt")
    with pytest.raises(TrainingHalted), doctor:
        scaled_loop(overflow=True)
    assert remedy(doctor).halted == 21


# -- halt -----------------------------------------------------------------------------------


def test_halt_names_operation_file_and_line_and_makes_no_update(tmp_path: Path) -> None:
    model = nn.Linear(6, 1)
    optimizer = SGD(model.parameters())
    before: list[Any] = []
    said = ""
    doctor = watch(tmp_path, "halt")
    try:
        for i in range(STEPS):
            x, _ = batch(i)
            shifted = model(x).sigmoid() * (0.0 if i == 33 else 1.0)
            loss = -shifted.log().mean()
            optimizer.zero_grad()
            before = bits(model, optimizer)
            loss.backward()
            optimizer.step()
    except StopTraining as error:
        said = str(error)
    doctor.close()
    assert bits(model, optimizer) == before
    assert said.startswith("halted at step 33")
    assert "log-of-zero" in said
    assert "log of 0 gave Inf at test_on_nonfinite.py:" in said
    assert remedy(doctor).halted == 33


def test_halt_on_a_gradient_behind_a_finite_loss(tmp_path: Path) -> None:
    model = nn.Linear(6, 1)
    optimizer = SGD(model.parameters())
    doctor = watch(tmp_path, "halt")
    with pytest.raises(StopTraining, match=r"halted at step 25: .*sqrt-at-zero.*test_on_nonfinite.py"):
        for i in range(STEPS):
            loss = model(batch(i)[0]).square().mean() + (model.bias * float(i != 25)).abs().sqrt().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    doctor.close()
    assert is_sound(model)


def test_a_block_does_not_swallow_the_error(tmp_path: Path) -> None:
    with pytest.raises(TrainingHalted, match="halted at step 7"), watch(tmp_path, "halt"):
        train(SGD)


# -- rollback -------------------------------------------------------------------------------


def test_rollback_goes_back_to_the_last_snapshot_and_on(tmp_path: Path) -> None:
    with watch(tmp_path, "rollback") as doctor:
        model = network()
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        states: list[Any] = []
        for i in range(STEPS):
            x, y = batch(i, i in BAD)
            states.append(bits(model, optimizer))
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i in BAD:
                broke, good = remedy_live(doctor).rolled_back[-1]
                assert broke == i
                assert bits(model, optimizer) == states[good] or good == 0
        assert is_sound(model)
    fact = remedy(doctor)
    assert [pair[0] for pair in fact.rolled_back] == list(BAD)
    assert fact.rollbacks == 2


def remedy_live(doctor: Doctor) -> RemedyFact:
    run = doctor.run()
    assert run is not None
    return run.facts(RemedyFact)[-1]


def test_weights_that_an_update_has_spoilt_are_mended(tmp_path: Path) -> None:
    model = network()
    optimizer = SGD(model.parameters())
    with watch(tmp_path, "rollback") as doctor:
        for i in range(STEPS):
            x, y = batch(i)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if i == 30:
                optimizer.param_groups[0]["lr"] = 3e38
                for parameter in model.parameters():
                    parameter.grad.mul_(100.0)  # type: ignore[union-attr]
            optimizer.step()
            optimizer.param_groups[0]["lr"] = 0.05
    assert is_sound(model)
    assert remedy(doctor).rolled_back[0][0] == 31


def test_after_three_rollbacks_in_a_row_it_halts(tmp_path: Path) -> None:
    model = network()
    optimizer = SGD(model.parameters())
    doctor = watch(tmp_path, "rollback")
    with pytest.raises(StopTraining, match="after 3 rollbacks to the same snapshot"):
        for i in range(STEPS):
            x, y = batch(i, bad=i >= 20)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    doctor.close()
    fact = remedy(doctor)
    assert (fact.rollbacks, fact.halted) == (3, 23)
    assert is_sound(model) or fact.halted == 23


def test_what_does_not_fit_is_said_and_left_out_instead(tmp_path: Path) -> None:
    with watch(tmp_path, "rollback", rollback_limit="100B") as doctor:
        train(SGD)
    assert remedy(doctor) == RemedyFact("rollback", skips=2, skipped=list(BAD), spoilt=remedy(doctor).spoilt)
    run = doctor.run()
    assert run is not None
    print_verdict(doctor.verdict(), run)


def test_a_snapshot_is_kept_apart_and_can_be_used_again() -> None:
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    kept = Snapshot(1 << 20)
    held = [*model.parameters(), *model.buffers()]

    def step() -> None:
        F.cross_entropy(model(batch(0)[0]), batch(0)[1]).backward()
        optimizer.step()

    assert kept.take(held, [optimizer], 0) is None
    fresh = bits(model, optimizer)
    step()
    kept.put_back()
    assert bits(model, optimizer) == fresh
    step()
    assert kept.take(held, [optimizer], 1) is None
    later = bits(model, optimizer)
    for _ in range(2):
        step()
        assert bits(model, optimizer) != later
        kept.put_back()
        assert bits(model, optimizer) == later


# -- how it is told and asked for -----------------------------------------------------------


def test_skips_are_told_in_letter_and_json_under_the_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "torchdoctor"), watch(tmp_path, "skip") as doctor:
        train(SGD)
    assert "step 7 is not finite" in caplog.text
    verdict = doctor.verdict()
    assert [f.name for f in verdict.findings if f.severity.value != "info"] == ["nan-in-inputs"]
    finding = verdict.findings[0]
    assert "its update was left out" in finding.summary
    assert "2 updates were skipped (steps 7, 33)" in [e.text for e in finding.evidence]
    assert verdict.to_dict()["run"]["on_nonfinite"]["text"] == "2 updates were skipped (steps 7, 33)"
    print_verdict(verdict, doctor.run())
    assert "2 updates were skipped (steps 7, 33)" in capsys.readouterr().err


def test_a_wrong_word_is_refused() -> None:
    with pytest.raises(UsageError, match="on_nonfinite is report, skip, halt or rollback, not 'stop'"):
        Options(on_nonfinite="stop")


def test_the_project_file_asks_and_a_call_goes_over_it(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.torchdoctor]\non-nonfinite = "skip"\nrollback-limit = "1MB"\n')
    settings = read(file)
    assert settings.remedy.over(None, None) == {"on_nonfinite": "skip", "rollback_bytes": 1_000_000}
    assert settings.remedy.over("halt", "2kB") == {"on_nonfinite": "halt", "rollback_bytes": 2_000}
    assert Settings.from_dict(settings.to_dict()) == settings
    file.write_text("[tool.torchdoctor]\non-nonfinite = 3\n")
    with pytest.raises(UsageError, match="on-nonfinite is one word"):
        read(file)


def test_a_loader_with_workers_in_the_way(tmp_path: Path) -> None:
    def loop(leave: bool) -> list[Any]:
        xs, ys = zip(*(batch(i, bad=i == 9) for i in range(20)), strict=True)
        loader = DataLoader(TensorDataset(torch.cat(xs), torch.cat(ys)), batch_size=8, num_workers=1)
        model = network()
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        for i, (x, y) in enumerate(_stream(loader)):
            if i == 9 and leave:
                continue
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return bits(model, optimizer)

    expected = loop(leave=True)
    with watch(tmp_path, "skip") as doctor:
        assert loop(leave=False) == expected
    assert remedy(doctor).skipped == [9]


def _stream(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    yield from loader
