"""Captures of a watched run: taken when they should be, of the state the step began with, at no risk to the run."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from attach.loops import fingerprint
from processes import torchdoctor_command
from torchdoctor.attach import session as sessions
from torchdoctor.attach.capturing import SPIKE_STEPS, THREAD
from torchdoctor.attach.contents import Copies, Encoder, Part
from torchdoctor.attach.registry import Registry
from torchdoctor.attach.restoring import read_tensor, rebuild, restore
from torchdoctor.errors import UsageError
from torchdoctor.store.captured import Capture, open_capture
from torchdoctor.store.captures import list_captures
from torchdoctor.store.environment import without_home

BAD = 7
"""The step whose batch holds a NaN."""


def data(bad: int | None = BAD, steps: int = 12) -> DataLoader[Any]:
    x = torch.randn(steps * 8, 6)
    y = (x[:, 0] > 0).long()
    if bad is not None:
        x[bad * 8 + 3, 2] = torch.nan
    return DataLoader(TensorDataset(x, y), batch_size=8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("scale", torch.full((), 0.5))
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(torch.relu(self.norm(self.body(x))), 0.3)) * self.scale


def make() -> tuple[Net, torch.optim.Optimizer]:
    model = Net()
    return model, torch.optim.AdamW(model.parameters(), 1e-2)


def train(loader: DataLoader[Any], skip: bool = True) -> tuple[list[float], Net]:
    model, optimizer = make()
    losses = []
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if loss.isfinite() or not skip:
            optimizer.step()
        losses.append(loss.item())
    return losses, model


def captured(folder: Path) -> list[Capture]:
    return [open_capture(entry.path) for entry in list_captures(folder)]


@pytest.fixture
def failed(tmp_path: Path) -> Capture:
    torch.manual_seed(0)
    with torchdoctor.watch(out=tmp_path, name="run", quiet=True):
        train(data(), skip=False)
    (capture,) = captured(tmp_path / "run")
    return capture


def test_the_first_nonfinite_step_is_captured_and_no_other(failed: Capture) -> None:
    assert failed.path.name == f"step-{BAD:06d}-nonfinite"
    document = failed.document
    assert (document["step"], document["taken_at_step"], document["losses"]) == (BAD, BAD, ["nan"])
    torch.manual_seed(0)
    x, y = list(data())[BAD]
    for given, node in zip((x, y), rebuild(failed, document["batches"][-1]), strict=True):
        assert torch.equal(given, node) or torch.equal(given.nan_to_num(7), node.nan_to_num(7))
    assert "training data" in document["notice"]
    assert document["sources"][without_home(Path(__file__))] == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert document["versions"]["torch"] == torch.__version__
    assert set(document["parameters"]) >= {"body.weight", "head.bias"}


def test_a_fresh_model_gets_exactly_the_state_of_the_step(failed: Capture) -> None:
    """The reference trains up to the failing step unwatched; the fresh one knows only the capture."""
    torch.manual_seed(0)
    model, optimizer = train_to(BAD)
    began = torch.get_rng_state()
    torch.manual_seed(99)
    fresh, fresh_optimizer = train_to(2)
    registry = Registry()
    registry.optimizer_key(fresh_optimizer)
    registry.add_model(fresh, failed.document["models"][0]["name"])
    assert restore(failed, registry) == []
    assert torch.equal(torch.get_rng_state(), began)
    for (name, ours), theirs in zip(fresh.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    x, y = rebuild(failed, failed.document["batches"][-1])
    results = []
    for net, its in ((model, optimizer), (fresh, fresh_optimizer)):
        torch.set_rng_state(began)
        its.zero_grad()
        F.cross_entropy(net(x.nan_to_num()), y).backward()
        its.step()
        results.append(fingerprint([], net))
    assert results[0] == results[1]


def train_to(step: int) -> tuple[Net, torch.optim.Optimizer]:
    loader, (model, optimizer) = data(), make()
    for i, (x, y) in enumerate(loader):
        if i == step:
            break
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, optimizer


def test_python_and_numpy_draw_the_same_again(tmp_path: Path) -> None:
    random.seed(3)
    np.random.seed(4)
    with torchdoctor.watch(out=tmp_path, name="run", quiet=True) as doctor:
        train(data(None, steps=3))
        path = doctor.capture(wait=True)
        drawn = random.gauss(0, 1), random.random(), np.random.rand(), np.random.randn()
    assert path is not None
    with open_capture(path) as capture:
        assert isinstance(restore(capture, Registry()), list)
    assert (random.gauss(0, 1), random.random(), np.random.rand(), np.random.randn()) == drawn


# -- what is in a batch ---------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass
class Sample:
    image: Tensor
    label: int
    meta: Any = None


def round_trip(value: Any, tmp_path: Path, like: Any = None) -> tuple[Any, dict[str, str], int]:
    from store.test_captures import write

    part, encoder = Part("batch"), Encoder()
    node = encoder.encode(value, part, "0")
    folder = write(tmp_path / "run", Copies(part.tensors).tensors, batches=[node])
    with open_capture(folder) as capture:
        return rebuild(capture, capture.document["batches"][0], like), encoder.left_out, len(capture.tensors)


def test_nested_batches_come_back(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    batch = {
        "x": [x, (x.int(), None)],
        "pair": Pair(x > 2, 1.5),
        "sample": Sample(x[:, 1], 3, {"text": ["a", "ü"], 7: float("-inf"), "flag": True}),
        "array": np.arange(4, dtype=np.int16),
        "odd name / ü": x.t(),
    }
    back, left_out, _ = round_trip(batch, tmp_path, like=batch)
    assert left_out == {}
    assert torch.equal(back["x"][0], x)
    assert back["x"][1][1] is None
    assert isinstance(back["pair"], Pair)
    assert torch.equal(back["pair"].left, x > 2)
    assert isinstance(back["sample"], Sample)
    assert torch.equal(back["sample"].image, x[:, 1])
    assert back["sample"].meta == batch["sample"].meta
    assert back["array"].dtype == np.int16
    assert torch.equal(back["odd name / ü"], x.t())
    assert batch["sample"].image is not back["sample"].image


def test_what_a_tokenizer_and_a_model_give(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ids = torch.ones(2, 3, dtype=torch.long)
    encoding = transformers.BatchEncoding({"input_ids": ids, "attention_mask": ids * 2})
    back, left_out, _ = round_trip(encoding, tmp_path, like=encoding)
    assert type(back) is transformers.BatchEncoding
    assert back["attention_mask"].tolist() == (ids * 2).tolist()
    output = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=ids.float())
    plain, _, _ = round_trip(output, tmp_path / "..")
    assert plain["last_hidden_state"].tolist() == ids.float().tolist()
    assert left_out == {}


def test_what_cannot_be_held_is_said(tmp_path: Path) -> None:
    batch = [
        torch.ones(3).to_sparse(),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        torch.empty(3, device="meta"),
        object(),
        b"bytes",
        np.array(["text"]),
        10**200,
        torch.ones(2, dtype=torch.complex128),
        torch.ones(2),
    ]
    back, left_out, stored = round_trip(batch, tmp_path)
    assert back[:-1] == [None] * 8
    assert len(left_out) == 8
    assert stored == 1
    loop: list[Any] = []
    loop.append(loop)
    assert round_trip(loop, tmp_path)[1]


def test_shared_memory_is_written_once_and_views_only_as_seen(tmp_path: Path) -> None:
    whole = torch.zeros(1_000_000)
    part, encoder = Part("batch"), Encoder()
    encoder.encode([whole[10:20], whole[10:20], whole[10:20:2], whole[:3].expand(2, 3)], part, "0")
    assert part.nbytes == 4 * (10 + 5 + 6)
    back, _, stored = round_trip([whole[10:20], whole[10:20]], tmp_path)
    assert stored == 1
    assert torch.equal(back[0], back[1])


# -- models and optimizers ------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight


def test_tied_weights_are_written_once_and_stay_tied(tmp_path: Path) -> None:
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with torchdoctor.watch(model, optimizer, out=tmp_path, name="run", quiet=True) as doctor:
        for _ in range(3):
            tokens = torch.randint(0, 10, (5,))
            optimizer.zero_grad()
            F.cross_entropy(model.head(model.embedding(tokens)), tokens).backward()
            optimizer.step()
        doctor.capture("My reason!", wait=True)
        kept = model.embedding.weight.detach().clone()
        session = sessions.current()
        assert session is not None
        (capture,) = captured(tmp_path / "run")
        assert capture.reason == "my_reason"
        assert sum(name.startswith("parameter/") for name in capture.tensors) == 1
        with torch.no_grad():
            model.embedding.weight.zero_()
        assert restore(capture, session.registry) == []
        assert torch.equal(model.head.weight, kept)
        assert model.head.weight is model.embedding.weight


def test_two_optimizers_and_a_scaler_come_back(tmp_path: Path) -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizers = (torch.optim.SGD(first.parameters(), 0.1, momentum=0.9), torch.optim.LBFGS(second.parameters(), 0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

    def closure() -> Tensor:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = second(first(torch.ones(2, 3))).square().sum()
        loss.backward()
        return loss

    with torchdoctor.watch(first, second, *optimizers, out=tmp_path, name="run", quiet=True) as doctor:
        for _ in range(3):
            optimizers[1].step(closure)
            loss = second(first(torch.ones(2, 3))).square().sum()
            optimizers[0].zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizers[0])
            scaler.update()
        doctor.capture(wait=True)
        session = sessions.current()
        assert session is not None
        (capture,) = captured(tmp_path / "run")
        kept = [_flatten(o.state_dict()) for o in optimizers]
        optimizers[0].param_groups[0]["lr"] = 7.0
        for optimizer in optimizers:
            for state in optimizer.state.values():
                state.clear()
        scaler.update(2.0)
        assert restore(capture, session.registry, [scaler]) == []
        assert [_flatten(o.state_dict()) for o in optimizers] == kept
        assert scaler.get_scale() == 256.0


def _flatten(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {k: _flatten(v) for k, v in value.items()}
    return [_flatten(v) for v in value] if isinstance(value, list | tuple) else value


# -- limits ------------------------------------------------------------------------------------

PARTS = ("batch", "buffer", "parameter", "optimizer")


def limited(folder: Path, limit: int) -> Capture:
    with torchdoctor.watch(out=folder.parent, name=folder.name, quiet=True, capture_limit=limit):
        train(data())
    (capture,) = captured(folder)
    return capture


def test_what_does_not_fit_is_left_out_in_order_and_said(tmp_path: Path) -> None:
    sizes = limited(tmp_path / "all", 10**6).document["holds"]
    whole = sum(sizes.values())
    without_state = whole - sizes["optimizer"]
    steps = {
        whole: PARTS,
        whole - 1: PARTS[:3],
        without_state: PARTS[:3],
        without_state - 1: PARTS[:1],
        sizes["batch"] - 1: (),
    }
    for limit, held in steps.items():
        capture = limited(tmp_path / str(limit), limit)
        assert {name.partition("/")[0] for name in capture.tensors} & set(PARTS) == set(held)
        assert set(PARTS) - set(held) == set(capture.document["left_out"]) & set(PARTS)
        assert capture.document["optimizers"][0]["groups"]["items"][0]["keys"]


def test_spikes_are_captured_seldom_and_only_when_asked_for(tmp_path: Path) -> None:
    for name, capture in (("with", "spike"), ("without", None)):
        with torchdoctor.watch(out=tmp_path, name=name, quiet=True, capture=capture):
            session = sessions.current()
            assert session is not None
            train(data(None, steps=3))
            for step in (3, 4, SPIKE_STEPS + 2, SPIKE_STEPS + 3):
                session._loss_high(step, 1e9, session.training_loss.watch)
                session.capturing.wait()
    assert [e.name.step for e in list_captures(tmp_path / "with")] == [3, SPIKE_STEPS + 3]
    assert list_captures(tmp_path / "without") == []


def test_none_means_none(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, name="run", quiet=True, capture="none") as doctor:
        train(data())
        assert doctor.capture() is None
    assert not (tmp_path / "run" / "captures").exists()


@pytest.mark.parametrize(
    "wrong", [{"capture": "sometimes"}, {"capture": "none,spike"}, {"capture_limit": "much"}, {"keep_captures": 0}]
)
def test_a_wrong_wish_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        torchdoctor.watch(out=tmp_path, **wrong)
    assert sessions.current() is None


# -- an exception -----------------------------------------------------------------------------


def test_an_exception_is_captured_and_goes_on(tmp_path: Path) -> None:
    def fail() -> None:
        train(data(None, steps=5))
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"), torchdoctor.watch(out=tmp_path, name="run", quiet=True):
        fail()
    assert [e.name.reason for e in list_captures(tmp_path / "run")] == ["exception"]
    with pytest.raises(KeyboardInterrupt), torchdoctor.watch(out=tmp_path, name="stopped", quiet=True):
        train(data(None, steps=5))
        raise KeyboardInterrupt
    assert list_captures(tmp_path / "stopped") == []


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    x = torch.randn(4, 3)
    loss = model(x).log().mean() if step == 12 else model(x).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
print("weights", model.weight.isnan().any().item())
open("missing")
"""


def test_the_letter_names_it_and_the_run_takes_it_along(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = torchdoctor_command("run", "--name", "a", "--keep-captures", "1", "train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "torchdoctor-runs/a/captures/step-000012-nonfinite (holds your data)" in done.stderr
    assert [e.name.reason for e in list_captures(tmp_path / "torchdoctor-runs" / "a")] == ["nonfinite"]
    silent = torchdoctor_command("run", "--name", "b", "--capture", "none", "train.py", cwd=tmp_path)
    assert "capture" not in silent.stderr
    (tmp_path / "pyproject.toml").write_text('[tool.torchdoctor]\ncapture = "exception"\ncapture-limit = "1MB"\n')
    torchdoctor_command("run", "--name", "c", "train.py", cwd=tmp_path)
    assert [e.name.reason for e in list_captures(tmp_path / "torchdoctor-runs" / "c")] == ["exception"]
    removed = torchdoctor_command("runs", "remove", "-y", "torchdoctor-runs/a", cwd=tmp_path)
    assert removed.returncode == 0, removed.stderr
    assert not (tmp_path / "torchdoctor-runs" / "a").exists()


# -- no harm ----------------------------------------------------------------------------------


def test_the_same_bits_with_and_without(tmp_path: Path) -> None:
    results = []
    for capture in (None, "none", "nonfinite,spike,exception"):
        torch.manual_seed(5)
        if capture is None:
            losses, model = train(data())
        else:
            with torchdoctor.watch(out=tmp_path, name=f"run-{capture[:4]}", quiet=True, capture=capture):
                losses, model = train(data())
        results.append(fingerprint(losses, model))
    assert results[0] == results[1] == results[2]
    assert len(list_captures(tmp_path / "run-nonf")) == 1


@pytest.fixture
def trouble(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    kind = str(request.param)
    if kind == "no safetensors":
        monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    elif kind == "full disk":
        full = type(shutil.disk_usage("/"))(10, 10, 0)
        monkeypatch.setattr("torchdoctor.store.captures.shutil.disk_usage", lambda _path: full)
    elif kind == "read-only folder":
        monkeypatch.setattr(Path, "mkdir", _refusing(Path.mkdir))
    else:
        monkeypatch.setattr("torchdoctor.attach.capturing.Inventory", None)
    return kind


def _refusing(mkdir: Any) -> Any:
    def refuse(self: Path, *args: Any, **kwargs: Any) -> Any:
        if "captures" in self.name:
            raise PermissionError(13, "Permission denied", str(self))
        return mkdir(self, *args, **kwargs)

    return refuse


TROUBLES = ["no safetensors", "full disk", "read-only folder", "our own fault"]


@pytest.mark.parametrize("trouble", TROUBLES, indirect=True)
def test_trouble_is_said_once_and_training_goes_on(
    trouble: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(5)
    bare = fingerprint(*train(data()))
    caplog.set_level(logging.WARNING, "torchdoctor")
    torch.manual_seed(5)
    with torchdoctor.watch(out=tmp_path, name="run", quiet=True) as doctor:
        result = fingerprint(*train(data()))
        doctor.capture(wait=True)
        doctor.capture(wait=True)
    assert result == bare
    assert len([r for r in caplog.records if "capture" in r.getMessage()]) == 1, trouble
    assert list_captures(tmp_path / "run") == []
    assert doctor.close() is not None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Writing waits until it is let go."""
    from torchdoctor.attach import capturing

    go, real = threading.Event(), capturing.write_capture

    def wait(*args: Any) -> Path:
        go.wait(30)
        return real(*args)

    monkeypatch.setattr(capturing, "write_capture", wait)
    yield go
    go.set()


def test_a_capture_is_of_the_moment_it_was_asked_for_however_long_writing_takes(
    slow: threading.Event, tmp_path: Path
) -> None:
    model, optimizer = make()
    with torchdoctor.watch(model, optimizer, out=tmp_path, name="run", quiet=True) as doctor:
        for i in range(6):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.randn(8, 6)), torch.zeros(8, dtype=torch.long)).backward()
            optimizer.step()
            if i == 2:
                kept = model.head.weight.detach().clone()
                assert doctor.capture() is not None
                assert [t.daemon for t in threading.enumerate() if t.name == THREAD] == [True]
        assert not torch.equal(model.head.weight, kept)
        assert doctor.capture() is not None
        assert doctor.capture() is None
        slow.set()
    first, _ = captured(tmp_path / "run")
    assert torch.equal(read_tensor(first, first.document["parameters"]["head.weight"]), kept)
    told = json.loads((tmp_path / "run" / "run.json").read_text())["captures"]
    assert [("name" in entry, "failed" in entry) for entry in told] == [(True, False), (True, False), (False, True)]


def test_one_that_takes_too_long_is_told_of(
    slow: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchdoctor.attach.capturing.Capturing.wait.__defaults__", (0.05,))
    with torchdoctor.watch(out=tmp_path, name="run", quiet=True):
        train(data())
    (told,) = json.loads((tmp_path / "run" / "run.json").read_text())["captures"]
    assert "still being written" in told["failed"]
