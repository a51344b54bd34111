"""Schedules: values at steps that are known, and a preview that moves neither optimizer nor scheduler."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from torchdoctor import schedules
from torchdoctor.errors import UsageError


def optimizer(lr: float = 0.5) -> SGD:
    return SGD([nn.Parameter(torch.zeros(2))], lr=lr)


def rates(factory, steps: int, **options):  # type: ignore[no-untyped-def]
    return schedules.preview(factory, steps, **options).rates[0]


def test_warmup_cosine_at_known_steps() -> None:
    found = rates(lambda o: schedules.warmup_cosine(o, 110, warmup=10, end=0.1), 130, lr=2.0)
    assert found[0] == pytest.approx(2.0 * 0.1)
    assert found[5] == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert found[10] == 2.0
    assert found[60] == pytest.approx(2.0 * 0.55)
    assert found[35] == pytest.approx(2.0 * (0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2))
    assert found[110] == found[129] == pytest.approx(0.2)


def test_without_warmup_it_is_torchs_own_cosine() -> None:
    ours = rates(lambda o: schedules.warmup_cosine(o, 50, warmup=0), 50, lr=0.3)
    assert ours == pytest.approx(rates(lambda o: CosineAnnealingLR(o, 50), 50, lr=0.3))


def test_warmup_stable_decay_at_known_steps() -> None:
    found = rates(lambda o: schedules.warmup_stable_decay(o, 100, warmup=0.1, decay=0.2, start=0), 100)
    assert [found[i] for i in (0, 5, 10, 80, 90)] == pytest.approx([0, 0.5, 1, 1, 0.5])
    root = rates(lambda o: schedules.warmup_stable_decay(o, 100, shape="sqrt"), 120)
    assert root[85] == pytest.approx(1 - math.sqrt(0.25)) and root[119] == 0


def test_inverse_sqrt_halves_at_four_times_the_warmup() -> None:
    found = rates(lambda o: schedules.inverse_sqrt(o, 25), 401)
    assert [found[i] for i in (25, 100, 400)] == pytest.approx([1, 0.5, 0.25])


def test_one_cycle_and_cyclical_at_known_steps() -> None:
    found = rates(lambda o: schedules.one_cycle(o, 101, warmup=0.3, start=0.1, end=0.01, shape="linear"), 101, lr=2.0)
    assert found[0] == pytest.approx(0.2) and max(found) == pytest.approx(2.0, rel=0.02)
    assert found[100] == pytest.approx(0.02)
    cycle = rates(lambda o: schedules.cyclical(o, 10, peak=1.0, low=0.2), 41)
    assert [cycle[i] for i in (0, 5, 10, 20, 30, 40)] == pytest.approx([0.2, 0.6, 1, 0.2, 1, 0.2])


def test_momentum_is_left_alone_where_there_is_none() -> None:
    plain = optimizer()
    schedules.one_cycle(plain, 10)
    assert plain.param_groups[0]["momentum"] == 0
    adam = Adam([nn.Parameter(torch.zeros(1))], 0.1)
    assert schedules.preview(schedules.one_cycle(adam, 10), 10).momenta is not None


def test_groups_keep_their_ratio() -> None:
    found = schedules.preview(lambda o: schedules.warmup_cosine(o, 20), 20, lr=(1.0, 0.1))
    assert found.rates[1] == pytest.approx([r / 10 for r in found.rates[0]])
    assert "group 1" in str(found) and len(found.plot().data) == 2


def test_a_schedule_survives_a_checkpoint() -> None:
    first = optimizer()
    schedule = schedules.warmup_cosine(first, 20, warmup=5)
    for _ in range(7):
        first.step()
        schedule.step()
    other = optimizer()
    resumed = schedules.warmup_cosine(other, 99)
    other.load_state_dict(first.state_dict())
    resumed.load_state_dict(schedule.state_dict())
    assert schedules.preview(resumed, 10).rates == schedules.preview(schedule, 10).rates


MAKERS = {
    "warmup_cosine": lambda o, **given: schedules.warmup_cosine(o, 30, **given),
    "inverse_sqrt": lambda o, **given: schedules.inverse_sqrt(o, 4, **given),
    "one_cycle": lambda o, **given: schedules.one_cycle(o, 30, **given),
    "cyclical": lambda o, **given: schedules.cyclical(o, 5, **given),
    "cyclical to a peak": lambda o, **given: schedules.cyclical(o, 5, peak=0.2, low=0.3, **given),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_schedule_is_resumed_from_the_optimizer_alone(name: str) -> None:
    first, other = optimizer(), optimizer()
    schedule = MAKERS[name](first)
    for _ in range(12):
        first.step()
        schedule.step()
    other.load_state_dict(first.state_dict())
    resumed = MAKERS[name](other, last_step=11)
    assert other.param_groups[0]["lr"] == pytest.approx(first.param_groups[0]["lr"])
    assert schedules.preview(resumed, 15).rates[0] == pytest.approx(schedules.preview(schedule, 15).rates[0])


@pytest.mark.parametrize("name", ["warmup_cosine", "inverse_sqrt", "one_cycle", "cyclical"])
@pytest.mark.parametrize("earlier", ["warmup_cosine", "one_cycle", "cyclical"])
def test_a_schedule_after_another_has_the_same_peak(earlier: str, name: str) -> None:
    used = optimizer()
    MAKERS[earlier](used)
    after, alone = MAKERS[name](used), MAKERS[name](optimizer())
    assert schedules.preview(after, 25).rates[0] == pytest.approx(schedules.preview(alone, 25).rates[0])


@pytest.mark.parametrize("shape", ["cos", "linear"])
def test_one_cycle_stays_at_its_end_for_the_last_call_of_the_loop(shape: str) -> None:
    used = Adam([nn.Parameter(torch.zeros(1))], 0.5)
    schedule = schedules.one_cycle(used, 10, shape=shape)
    for _ in range(9):
        used.step()
        schedule.step()
    at_end = used.param_groups[0]["lr"], used.param_groups[0]["betas"]
    used.step()
    schedule.step()
    assert (used.param_groups[0]["lr"], used.param_groups[0]["betas"]) == at_end
    assert at_end[0] == pytest.approx(0.5 * 4e-6)
    with pytest.raises(ValueError, match="Tried to step 11 times"):
        schedule.step()


@pytest.mark.parametrize(("warmup", "top"), [(0, 0), (0.1, 0), (1, 9)])
def test_one_cycle_without_a_warmup_or_without_anything_else(warmup: float, top: int) -> None:
    found = rates(lambda o: schedules.one_cycle(o, 10, warmup=warmup), 10)
    assert found.index(max(found)) == top


@pytest.mark.parametrize(
    "make",
    [
        lambda o: schedules.warmup_cosine(o, 30),
        lambda o: StepLR(o, 3, 0.5),
        lambda o: SequentialLR(o, [LinearLR(o, total_iters=4), CosineAnnealingLR(o, 20)], [4]),
        lambda o: schedules.one_cycle(o, 30),
    ],
)
def test_the_preview_tells_the_truth_and_moves_nothing(make) -> None:  # type: ignore[no-untyped-def]
    model = nn.Linear(3, 2)
    used = AdamW(model.parameters(), 0.1)
    model(torch.ones(1, 3)).sum().backward()
    used.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule: LRScheduler = make(used)
    for _ in range(2):
        used.step()
        schedule.step()
    before = copy.deepcopy(schedule.state_dict()), copy.deepcopy(used.state_dict())
    weights = [p.detach().clone() for p in model.parameters()]
    step = used.step
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = schedules.preview(schedule, 12)
    assert str(before[0]) == str(schedule.state_dict()) and str(before[1]) == str(used.state_dict())
    assert used.step is step and schedule.optimizer is used
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    taken = []
    for _ in range(12):
        taken.append(used.param_groups[0]["lr"])
        used.step()
        schedule.step()
    assert found.rates[0] == pytest.approx(taken) and found.steps[0] == 2


def test_a_factory_gets_a_copy_of_the_optimizer() -> None:
    used = optimizer(0.25)
    found = schedules.preview(lambda o: schedules.warmup_cosine(o, 10, warmup=0), 10, optimizer=used)
    assert found.rates[0][0] == 0.25
    assert "initial_lr" not in used.param_groups[0]


def test_what_a_stranger_should_know_is_told() -> None:
    over = schedules.preview(lambda o: schedules.one_cycle(o, 20), 40)
    assert "the schedule is over after step 20" in str(over) and over.error is not None
    assert "rises again" in str(schedules.preview(lambda o: CosineAnnealingLR(o, 10), 20))
    idle = schedules.preview(lambda o: schedules.warmup_cosine(o, 9, warmup=3, start=0), 9)
    assert "the rate is 0 at 1 step" in str(idle)
    assert "stays at 0.5" in str(schedules.preview(lambda o: StepLR(o, 100), 20, lr=0.5))
    assert "turns 3 times" in schedules.preview(lambda o: schedules.cyclical(o, 5), 20).verdict


def test_calls_once_an_epoch() -> None:
    found = rates(lambda o: StepLR(o, 1, 0.5), 30, every=10)
    assert found[9] == 1.0 and found[10] == 0.5 and found[29] == 0.25


def test_a_schedule_that_follows_a_metric() -> None:
    with pytest.raises(UsageError, match="follows a metric"):
        schedules.preview(lambda o: ReduceLROnPlateau(o), 10)
    found = rates(lambda o: ReduceLROnPlateau(o, patience=2, factor=0.5), 10, metric=lambda step: 1.0)
    assert found[0] == 1.0 and found[-1] < 0.5


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: schedules.warmup_cosine(optimizer(), 0), "steps is 0"),
        (lambda: schedules.warmup_cosine(optimizer(), 10, warmup=11), "warmup is 11"),
        (lambda: schedules.warmup_cosine(optimizer(), 10, end=2), "end is 2"),
        (lambda: schedules.warmup_stable_decay(optimizer(), 10, warmup=6, decay=6), "do not fit"),
        (lambda: schedules.warmup_stable_decay(optimizer(), 10, shape="cubic"), "cubic"),
        (lambda: schedules.inverse_sqrt(optimizer(), 0.1), "whole number"),
        (lambda: schedules.one_cycle(optimizer(), 10, start=0), "above 0"),
        (lambda: schedules.cyclical(optimizer(), 0), "half_cycle"),
        (lambda: schedules.cyclical(optimizer(), math.nan), "half_cycle"),
        (lambda: schedules.cyclical(optimizer(), 5, peak=-0.1), "peak is -0.1"),
        (lambda: schedules.one_cycle(optimizer(), 5, peak=math.nan), "peak is nan"),
        (lambda: schedules.one_cycle(optimizer(), 5, shape="cosine"), "one of cos, linear"),
        (lambda: schedules.cyclical(optimizer(), 5, shape="cosine"), "one of triangular"),
        (lambda: schedules.warmup_cosine(optimizer(), 10, warmup=math.nan), "warmup is nan"),
        (lambda: schedules.warmup_stable_decay(optimizer(), 10, decay=math.inf), "decay is inf"),
        (lambda: schedules.warmup_cosine(optimizer(), 10, warmup="5%"), "warmup is 5%"),
        (lambda: schedules.preview(3, 10), "schedule is a int"),
        (lambda: schedules.preview(lambda o: None, 10), "gave a NoneType"),
        (lambda: schedules.preview(lambda o: StepLR(o, 1), 0), "steps is 0"),
        (lambda: schedules.preview(lambda o: StepLR(o, 1), 5, lr=()), "lr is empty"),
        (lambda: schedules.scale_lr(0.1, 0, 3), "above 0"),
        (lambda: schedules.scale_lr(0.1, 1, 3, rule="cubic"), "cubic"),
    ],
)
def test_what_cannot_be_is_said(call, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=said):
        call()


def test_rates_for_other_batch_sizes() -> None:
    assert schedules.scale_lr(0.1, 256, 1024) == pytest.approx(0.4)
    assert schedules.scale_lr(0.1, 256, 1024, rule="sqrt") == pytest.approx(0.2)
    assert schedules.scale_lr(0.1, 256, 64, optimizer=AdamW) == pytest.approx(0.05)
    assert schedules.scale_lr(0.1, 256, 1024, optimizer=optimizer()) == pytest.approx(0.4)
    assert schedules.scale_lr(0.1, 256, 1024, rule="linear", optimizer="adam") == pytest.approx(0.4)


def test_the_picture() -> None:
    found = schedules.preview(lambda o: schedules.one_cycle(o, 50), 50, lr=0.1)
    drawing = found.plot()
    assert "climbs to" in drawing.layout.title.text and drawing.layout.yaxis2.title.text == "momentum"
    assert found.plot(log=True).layout.yaxis.type == "log"
    assert found.to_dict()["verdict"] == found.verdict


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: schedules.warmup_cosine(o, 10, warmup=10),
        lambda o: schedules.warmup_stable_decay(o, 10, decay=0),
        lambda o: schedules.warmup_stable_decay(o, 10, warmup=0, decay=10),
        lambda o: schedules.warmup_cosine(o, 1),
    ],
)
def test_after_its_end_a_schedule_stays_where_it_is(schedule) -> None:  # type: ignore[no-untyped-def]
    found = schedules.preview(schedule, 14)
    assert found.error is None and len({*found.rates[0][10:]}) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda o: schedules.warmup_cosine("SGD", 10), "optimizer is a str"),
        (lambda o: schedules.cyclical(None, 10), "optimizer is a NoneType"),
        (lambda o: schedules.one_cycle(o, 10, warmup=3), "share of the steps"),
        (
            lambda o: schedules.one_cycle(torch.optim.Adagrad(o.param_groups[0]["params"]), 10, momentum=(0.8, 0.9)),
            "neit",
        ),
    ],
)
def test_what_a_schedule_cannot_stand_on_is_said(call, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=said):
        call(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1))
