"""No hook of ours ever raises into the loop."""

from __future__ import annotations

import functools
import gc
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from attach.loggers import Run, SummaryWriter
from attach.loops import Result, fingerprint
from torchdoctor.attach import guard
from torchdoctor.attach import session as sessions
from torchdoctor.attach.governor import Governor
from torchdoctor.attach.guard import SITES, contained, guarded
from torchdoctor.attach.options import Options
from torchdoctor.attach.patches import SWITCHES, Doors, Gate, Patches
from torchdoctor.errors import StopTraining


def everything(steps: int = 14, compiles: bool = False) -> Result:
    """One loop that passes through every place where we stand."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 3))
    model.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend="eager") if compiles else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    quasi = torch.optim.LBFGS(model.parameters(), 1e-3, max_iter=2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    x = torch.randn(steps * 4, 6)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), 4)
    losses: list[float] = []
    for i, (a, b) in enumerate(loader):
        compiled.train()
        loss = F.cross_entropy(compiled(a), b)
        if i == 0:
            torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
            with pytest.raises(RuntimeError, match="not have been used"):
                torch.autograd.grad(loss, a.clone().requires_grad_(), retain_graph=True)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.item())
        if i % 5 == 4:
            model.eval()
            with torch.no_grad():
                total_loss = F.cross_entropy(model(a), b) + F.mse_loss(model(a), torch.zeros(4, 3))
                losses.append(total_loss.item())
        if i == 6:
            print(f"step {i}: val_acc 0.5")
            logging.getLogger("train").warning("val_acc %.1f", 0.5)
            Run().log({"val_acc": 0.5})
            SummaryWriter().add_scalar("val_acc", 0.5)
        if i == 7:
            quasi.step(lambda a=a, b=b: _closure(quasi, model, a, b))
        if i == 9:
            with pytest.raises(RuntimeError):
                torch.zeros(1).backward()
            with pytest.raises(RuntimeError, match="shapes"):
                model(a[:, :2])
            with pytest.raises(ValueError, match="boolean"):
                model.train("yes")  # type: ignore[arg-type]
            with pytest.raises(IndexError):
                F.cross_entropy(model(a), b + 100)
        if i == 2:
            nn.Bilinear(6, 3, 1)(a, F.one_hot(b, 3).float()).sum().backward()
        if i == 1:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                pass
        if i == 10:
            _handle(model, optimizer, schedule)
        if i == 11:
            (1000 * F.cross_entropy(model(a), b)).backward()
            model.zero_grad()
        if i == 8 and sessions.current() is not None:
            torchdoctor.watch(quiet=True).capture()
        if i == 12:
            bad = F.cross_entropy(model(a * float("nan")), b)
            bad.backward()
            model.zero_grad()
    return fingerprint(losses, model)


def steadily(steps: int = 60) -> Result:
    """So plain a loop that most of its steps are only counted; the one above never is, for it has a scaler."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return fingerprint(losses, model)


def _handle(model: nn.Sequential, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    """Everything that a script may do around its loop, and none of it changes anything."""
    held = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, held)
    held.seek(0)
    state = torch.load(held, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(schedule.state_dict())
    nn.init.constant_(model[4].bias, 0.5)
    model.load_state_dict(state["model"])
    gc.collect()
    torch.cuda.empty_cache()
    with torch.autograd.graph.save_on_cpu():
        pass


def _closure(optimizer: torch.optim.Optimizer, model: nn.Module, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(a), b)
    loss.backward()
    return loss


@pytest.fixture(autouse=True)
def _read_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchdoctor.doctor.Options", functools.partial(Options, prints=True))


@pytest.fixture(autouse=True)
def _quiet(loggers: None) -> Iterator[None]:
    logger = logging.getLogger("torchdoctor")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)
    guard.reset()


ELSEWHERE = ("waiting by", "device: look", "device: rates", "in-place: explain", "remedy: scaler", "last words")
"""Sites that these loops do not reach: they need a device, an error that ends the run (test_inplace, test_last_words),
or an update that a scaler leaves out, after which buffers are mended (test_on_nonfinite)."""
TOGETHER = 8
"""Sites that fail in the same run: what one of them hides of the others is seen, and they fail once more alone."""


def _watch(tmp_path: Path, **wishes: Any) -> Any:
    return torchdoctor.watch(out=tmp_path, quiet=True, **wishes)


def train_with_failures(names: list[str], tmp_path: Path) -> list[str]:
    """The loop ends as it does without us, though these sites fail; those that were not even reached."""
    steady, compiles = names in (["backward counted"], ["watched gradient"]), names == ["compile"]
    mode = "skip" if names[0].startswith("remedy: ") else "report"
    expected = steadily() if steady else everything()
    left = set(names)

    def failing(name: str) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            left.discard(name)
            raise RuntimeError("planted")

        return fail

    doctor = _watch(tmp_path, on_nonfinite=mode)
    originals = {name: SITES[name].function for name in names}
    for name in names:
        SITES[name].function = failing(name)
    try:
        assert (steadily() if steady else everything(compiles=compiles)) == expected, names
    finally:
        doctor.close()
        for name, function in originals.items():
            SITES[name].function = function
    return sorted(left)


def test_every_site_may_fail_and_training_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Governor, "_detail_interval", lambda *_: 16)
    monkeypatch.setattr("torchdoctor.attach.rolling.is_late", lambda _: True)
    with _watch(tmp_path):
        everything()
    names = [n for n in SITES if not n.startswith(ELSEWHERE)]
    names = [n for n in names if "loss function" not in n or n.endswith(" cross_entropy")]
    alone = [["backward counted"], ["watched gradient"], ["compile"]]
    rest = [n for n in names if [n] not in alone]
    parts = [n for n in rest if n.startswith("remedy: ")], [n for n in rest if not n.startswith("remedy: ")]
    groups = [part[i :: -(-len(part) // TOGETHER)] for part in parts for i in range(-(-len(part) // TOGETHER))]
    hidden = [name for group in [*alone, *groups] for name in train_with_failures(group, tmp_path)]
    never = [name for name in hidden if train_with_failures([name], tmp_path)]
    assert never == [], "sites that the loops above never reach are not tested"


def test_a_site_is_switched_off_after_three_failures() -> None:
    calls = []

    @guarded("test: always fails")
    def site() -> None:
        calls.append(1)
        raise ValueError("planted")

    for _ in range(10):
        assert site() is None
    assert len(calls) == guard.FAILURES_ALLOWED
    assert "planted" in guard.disabled()["test: always fails"]
    del SITES["test: always fails"]


def test_sites_are_quiet_while_another_runs() -> None:
    inner_calls = []

    @guarded("test: inner")
    def inner() -> None:
        inner_calls.append(1)

    @guarded("test: outer")
    def outer() -> None:
        inner()

    outer()
    assert inner_calls == []
    inner()
    assert inner_calls == [1]
    del SITES["test: inner"], SITES["test: outer"]


def test_only_the_stop_the_user_asked_for_passes_through() -> None:
    @guarded("test: stop")
    def stop() -> None:
        raise StopTraining("asked for")

    @contained("test: stop inside")
    def inside() -> None:
        raise StopTraining("asked for")

    with pytest.raises(StopTraining):
        stop()
    with pytest.raises(StopTraining):
        inside()
    assert guard.STATE.inside is False
    del SITES["test: stop"], SITES["test: stop inside"]


def test_a_hook_outside_the_guard_is_refused() -> None:
    patches = Patches()
    with pytest.raises(AssertionError, match="not guarded"):
        patches.wrap(torch.nn.functional, "relu", after=lambda *_: None)
    assert not hasattr(torch.nn.functional.relu, "__torchdoctor_original__")


def test_all_hooks_in_torch_are_ours_and_guarded(tmp_path: Path) -> None:
    """Whatever a session leaves in torch's own hook tables leads into a site."""
    from torch.nn.modules import module as tables
    from torch.optim import optimizer as optimizers

    with _watch(tmp_path):
        optimizer_hooks = [
            *optimizers._global_optimizer_pre_hooks.values(),
            *optimizers._global_optimizer_post_hooks.values(),
        ]
        assert not [*tables._global_forward_pre_hooks.values(), *tables._global_forward_hooks.values()]
        assert optimizer_hooks and all(guard.is_guarded(hook) for hook in optimizer_hooks)


def test_a_switched_wrapper_leaves_alone_what_others_put_in_its_place() -> None:
    read: list[float] = []

    @guarded("test: read")
    def after(_token: Any, _args: Any, _kwargs: Any, result: float) -> None:
        read.append(result)

    patches = Patches()
    switch = patches.switch(torch.Tensor, "item", after=after)
    torch.ones(()).item()
    switch.on()
    torch.ones(()).item()
    assert read == [1.0]
    switch.off()
    assert "item" not in vars(torch.Tensor)
    other = lambda self: 5.0  # noqa: E731
    torch.Tensor.item = other
    switch.on()
    assert torch.ones(()).item() == 5.0
    patches.remove()
    assert vars(torch.Tensor)["item"] is other
    del torch.Tensor.item, SITES["test: read"]


def test_a_wrapper_that_is_switched_too_often_stays_in() -> None:
    patches = Patches()

    @guarded("test: read often")
    def after(*_: Any) -> None:
        pass

    switch = patches.switch(torch.Tensor, "item", after=after)
    for _ in range(SWITCHES + 3):
        switch.on()
        switch.off()
    assert "item" in vars(torch.Tensor)
    patches.remove()
    assert "item" not in vars(torch.Tensor)
    del SITES["test: read often"]


def test_a_switch_works_over_a_wrapper_of_ours_and_may_stay_out() -> None:
    read: list[float] = []

    @guarded("test: read over")
    def after(_token: Any, _args: Any, _kwargs: Any, result: float) -> None:
        read.append(result)

    @guarded("test: read under")
    def under(*_: Any) -> None:
        pass

    patches = Patches()
    patches.wrap(torch.Tensor, "item", after=under, gate=Gate(False))
    switch = patches.switch(torch.Tensor, "item", after=after, stays=False)
    doors = Doors()
    doors.switches.append(switch)
    doors.open = True
    torch.ones(()).item()
    doors.open = False
    torch.ones(()).item()
    assert read == [1.0]
    for _ in range(SWITCHES + 3):
        doors.open = True
        doors.open = False
    doors.open = True
    torch.ones(()).item()
    assert read == [1.0]
    patches.remove()
    assert "item" not in vars(torch.Tensor)
    del SITES["test: read over"], SITES["test: read under"]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_without_a_text_stays_inside() -> None:
    @guarded("unspeakable in a test")
    def site() -> None:
        raise UnspeakableError

    guard.reset()
    assert [site() for _ in range(4)] == [None] * 4
    assert guard.disabled()["unspeakable in a test"] == "UnspeakableError"
    guard.reset()
