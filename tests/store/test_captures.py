"""Captures on disk: the same bits back, whole or not at all, no more than were asked for, and a stranger's is safe."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchdoctor.attach.contents import DTYPES
from torchdoctor.attach.registry import Registry
from torchdoctor.attach.restoring import read_tensor, rebuild, restore, restore_random
from torchdoctor.errors import CaptureError
from torchdoctor.store.captured import open_capture
from torchdoctor.store.captures import (
    ABANDONED_SECONDS,
    CAPTURE_FORMAT,
    CAPTURES,
    DOCUMENT,
    MAX_DOCUMENT,
    TENSORS,
    CaptureName,
    list_captures,
    write_capture,
)
from torchdoctor.store.files import replace_file
from torchdoctor.store.listing import remove_run

NAME = CaptureName(12, "nonfinite")


def document(**fields: Any) -> dict[str, Any]:
    whole = {"format": 1, "step": 12, "taken_at_step": 12, "rank": 0, "reason": "nonfinite", "when": 1.5}
    tables = {"parameters": {}, "buffers": {}, "random": {}, "batches": [], "optimizers": [], "scalers": []}
    return whole | tables | {"steps": []} | fields


def write(run: Path, tensors: dict[str, torch.Tensor] | None = None, keep: int = 5, **fields: Any) -> Path:
    run.mkdir(exist_ok=True)
    step, reason = fields.get("step", 12), fields.get("reason", "nonfinite")
    return write_capture(run, CaptureName(step, reason), document(**fields), tensors or {}, keep)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tensors = {"batch/0": torch.arange(12.0).reshape(3, 4), "parameter/w": torch.ones(5, dtype=torch.bool)}
    node = {"kind": "tensor", "name": "batch/0"}
    return write(tmp_path_factory.mktemp("whole"), tensors, batches=[node], parameters={"w": "parameter/w"})


@pytest.mark.parametrize("code", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (1,)], ids=str)
def test_the_same_bits_come_back(code: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    size = torch.empty((), dtype=DTYPES[code]).element_size() * torch.Size(shape).numel()
    raw = torch.randint(0, 2 if code == "BOOL" else 256, (size,), dtype=torch.uint8)
    tensor = raw.view(DTYPES[code]).reshape(shape) if size else torch.empty(shape, dtype=DTYPES[code])
    with open_capture(write(tmp_path / "run", {"batch/0": tensor, "batch/1": torch.ones(3)})) as capture:
        back = read_tensor(capture, "batch/0")
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert bits(back) == bits(tensor)


def test_the_file_is_one_that_safetensors_reads(whole: Path) -> None:
    from safetensors.torch import load_file

    assert load_file(whole / TENSORS)["batch/0"].tolist() == torch.arange(12.0).reshape(3, 4).tolist()


def test_only_the_user_gets_in(whole: Path) -> None:
    assert whole.stat().st_mode & 0o077 == 0
    assert whole.parent.stat().st_mode & 0o077 == 0


# -- whole or not at all, and how many ---------------------------------------------------


def test_nothing_is_left_of_one_that_fails(tmp_path: Path) -> None:
    with pytest.raises(Exception):  # noqa: B017 - whatever the writer says of something that is no tensor
        write(tmp_path / "run", {"batch/0": "no tensor"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "run", losses=[float("nan")])
    with pytest.raises(CaptureError, match="may be"):
        write(tmp_path / "run", text="x" * MAX_DOCUMENT)
    assert list_captures(tmp_path / "run") == []
    assert list((tmp_path / "run").glob("captures/*")) == []


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "captures").symlink_to(elsewhere)
    with pytest.raises(CaptureError, match="is a link"):
        write(tmp_path / "run")
    (tmp_path / "run" / "run.json.tmp").symlink_to(elsewhere / "file")
    with pytest.raises(OSError, match="symbolic"):
        replace_file(tmp_path / "run" / "run.json", b"{}")
    assert list(elsewhere.iterdir()) == []


KILLED = """
import sys, threading, time, torch
sys.path.insert(0, {tests!r})
from pathlib import Path
from store.test_captures import write
import safetensors.torch
real = safetensors.torch.save_file
def slow(tensors, path):
    real(tensors, path)
    print("half", flush=True)
    time.sleep(60)
safetensors.torch.save_file = slow
write(Path({run!r}), {{"batch/0": torch.ones(100)}})
"""


def test_a_kill_in_the_middle_leaves_nothing_that_is_listed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    code = KILLED.format(tests=str(Path(__file__).parents[1]), run=str(run))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    assert list_captures(run) == []
    (left,) = (run / CAPTURES).iterdir()
    write(run)
    assert left.exists()
    os.utime(left, (0, time.time() - ABANDONED_SECONDS - 1))
    write(run)
    assert not left.exists()


def test_two_of_the_same_step_stand_beside_each_other(tmp_path: Path) -> None:
    assert [write(tmp_path / "run").name for _ in range(2)] == ["step-000012-nonfinite", "step-000012-nonfinite-2"]
    assert [e.name.number for e in list_captures(tmp_path / "run")] == [1, 2]


@pytest.mark.parametrize(
    ("keep", "left"), [(5, [0, 1, 2, 8, 9]), (3, [0, 1, 9]), (2, [0, 9]), (1, [0]), (99, range(10))]
)
def test_the_first_and_the_last_stay(keep: int, left: list[int], tmp_path: Path) -> None:
    for step in range(10):
        write(tmp_path / "run", step=step, keep=keep)
    assert [e.name.step for e in list_captures(tmp_path / "run")] == list(left)
    assert len(list((tmp_path / "run" / CAPTURES).iterdir())) == len(left)


def test_ranks_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for rank in (0, 1):
        for step in range(3):
            write_capture(tmp_path / "run", CaptureName(step, "spike", rank), document(), {}, 2)
    assert [(e.name.step, e.name.rank) for e in list_captures(tmp_path / "run")] == [(0, 0), (0, 1), (2, 0), (2, 1)]


def test_captures_go_with_their_run(tmp_path: Path) -> None:
    write(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text(json.dumps({"format": 1, "torchdoctor": "0", "status": "finished"}))
    remove_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@given(st.integers(0, 10**12), st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True), st.integers(0, 10**5))
def test_names_are_taken_apart_as_they_were_made(step: int, reason: str, rank: int) -> None:
    for name in (CaptureName(step, reason, rank), CaptureName(step, reason, rank, 7)):
        assert CaptureName.parse(str(name)) == name
    assert CaptureName.parse(f"../{step}") is None


# -- a stranger's ----------------------------------------------------------------------------


def copy(source: Path, folder: Path, **changed: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for file, key in ((DOCUMENT, "text"), (TENSORS, "data")):
        (folder / file).write_bytes(changed.get(key, (source / file).read_bytes()))
    return folder


def examine(folder: Path) -> None:
    """Everything that reading a capture may do; CaptureError is the only way it may fail."""
    try:
        with open_capture(folder, limit_bytes=1_000_000) as capture:
            for name in capture.tensors:
                read_tensor(capture, name)
            for node in capture.document["batches"]:
                rebuild(capture, node)
    except CaptureError:
        pass


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_off_and_flipped_files_are_refused_or_read(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    key, file = data.draw(st.sampled_from([("text", DOCUMENT), ("data", TENSORS)]))
    good = bytearray((whole / file).read_bytes())
    if data.draw(st.booleans()):
        bad = bytes(good[: data.draw(st.integers(0, len(good) - 1))])
        folder = copy(whole, tmp_path / "bad", **{key: bad})
        with pytest.raises(CaptureError):
            open_capture(folder)
        return
    for _ in range(data.draw(st.integers(1, 4))):
        bit = data.draw(st.integers(0, 8 * len(good) - 1))
        good[bit // 8] ^= 1 << bit % 8
    examine(copy(whole, tmp_path / "bad", **{key: bytes(good)}))


lies = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BOOL", "F4", "object"]) | lies,
        "shape": st.lists(st.integers(-1, 2**62), max_size=3) | lies,
        "data_offsets": st.lists(st.integers(-1, 2**62), max_size=3) | lies,
    }
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=st.dictionaries(st.sampled_from(["batch/0", "parameter/w"]), entries | lies) | lies,
    length=st.none() | st.integers(0, 2**64 - 1),
)
def test_lies_in_the_header_are_refused(whole: Path, tmp_path: Path, header: Any, length: int | None) -> None:
    text = json.dumps(header).encode()
    size = len(text) if length is None else length
    examine(copy(whole, tmp_path / "bad", data=size.to_bytes(8, "little") + text + bytes(53)))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(sorted(document())), lie=lies, kind=st.sampled_from(["tensor", "dict", "fields", "value"]))
def test_lies_in_the_json_are_refused(whole: Path, tmp_path: Path, field: str, lie: Any, kind: str) -> None:
    good = json.loads((whole / DOCUMENT).read_text())
    node = {"kind": kind, "name": lie, "items": lie, "keys": lie, "value": lie, "type": lie}
    step = {"step": 12, "random": {}, "batches": [node], "batch_random": [{"cuda": lie}], "groups": {"0": node}}
    for fields in (
        {field: lie},
        {"batches": [node]},
        {"optimizers": [{"type": "A", "groups": node, "state": lie}]},
        {"steps": [step]},
        {"steps": [step | {"random": lie, "step": lie}]},
    ):
        examine(copy(whole, tmp_path / "bad", text=json.dumps({**good, **fields}).encode()))


def test_a_header_that_claims_terabytes_allocates_nothing(whole: Path, tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}
    text = json.dumps({"batch/0": entry}).encode()
    folder = copy(whole, tmp_path / "bad", data=len(text).to_bytes(8, "little") + text)
    with pytest.raises(CaptureError, match="should have"):
        open_capture(folder)


def test_a_file_beyond_the_limit_is_not_opened(whole: Path) -> None:
    with pytest.raises(CaptureError, match="raise that limit"):
        open_capture(whole, limit_bytes=10)


def test_json_that_is_deep_or_long_is_refused(whole: Path, tmp_path: Path) -> None:
    for text in (
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b" " * (MAX_DOCUMENT + 1),
        b'{"step": 1, "step": 2}',
        b"NaN",
        b"\xff",
    ):
        with pytest.raises(CaptureError):
            open_capture(copy(whole, tmp_path / "bad", text=text))
    node: dict[str, Any] = {"kind": "value", "value": 1}
    for _ in range(80):
        node = {"kind": "list", "items": [node]}
    with pytest.raises(CaptureError, match="structure"):
        open_capture(write(tmp_path / "run", batches=[node]))


@pytest.mark.parametrize("name", ["../../evil", "batch/../../evil\n", "evil", "batch/", "batch/" + "x" * 300])
def test_odd_names_of_tensors_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="name no capture has"):
        open_capture(write(tmp_path / "run", {name: torch.ones(2)}))


def test_links_and_pipes_are_not_opened(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(whole)
    with pytest.raises(CaptureError, match="link"):
        open_capture(tmp_path / "link")
    for file in (DOCUMENT, TENSORS):
        folder = copy(whole, tmp_path / file)
        (folder / file).unlink()
        (folder / file).symlink_to(whole / file)
        with pytest.raises(CaptureError):
            open_capture(folder)
        (folder / file).unlink()
        os.mkfifo(folder / file)
        with pytest.raises(CaptureError, match="plain"):
            open_capture(folder)
    run = tmp_path / "run"
    write(run)
    (run / CAPTURES / "step-000099-asked").symlink_to(whole)
    assert [e.name.step for e in list_captures(run)] == [12]


def test_no_type_that_it_names_is_made(tmp_path: Path) -> None:
    items = [{"kind": "value", "value": "echo"}]
    node = {"kind": "fields", "type": "subprocess.Popen", "keys": ["args"], "items": items}
    with open_capture(write(tmp_path / "run", batches=[node])) as capture:
        assert vars(rebuild(capture, capture.document["batches"][0])) == {"args": "echo"}


def test_bools_that_are_neither_and_random_states_that_are_none_are_refused(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "run", {"random/torch": torch.ones(4, dtype=torch.bool)}, random={"torch": "random/torch"}
    )
    with open_capture(folder) as capture, pytest.raises(CaptureError, match="random state"):
        restore_random(capture)
    data = bytearray((folder / TENSORS).read_bytes())
    data[-1] = 7
    (folder / TENSORS).write_bytes(bytes(data))
    with open_capture(folder) as capture, pytest.raises(CaptureError, match="neither"):
        capture.read("random/torch")


@settings(max_examples=100, deadline=None)
@given(
    position=st.integers(-(2**70), 2**70) | lies,
    words=st.sampled_from([624, 625, 3]),
    fill=st.integers(-(2**63), 2**63 - 1),
)
def test_a_strangers_random_states_are_bounded(tmp_path_factory: Any, position: Any, words: int, fill: int) -> None:
    """A position outside its words would let numpy read memory that is not its own."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    tensors = {"random/a": torch.full((words,), fill)}
    legacy = {"words": "random/a", "position": position, "has_gauss": 0, "gauss": 0.0}
    folder = write(tmp_path_factory.mktemp("bad"), tensors)
    good = json.loads((folder / DOCUMENT).read_text())
    for states in ({"numpy": legacy}, {"python": {"words": "random/a", "version": 3, "gauss": position}}):
        (folder / DOCUMENT).write_text(json.dumps({**good, "random": states}))
        with contextlib.suppress(CaptureError), open_capture(folder) as capture:
            restore_random(capture)
        assert 0 <= np.random.get_state()[2] <= 624
        np.random.rand()
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


@pytest.mark.parametrize(
    "state",
    [
        {"0": {"kind": "value", "value": 1}},
        {"0": {"kind": "dict", "keys": [], "items": []}},
        {"9": {"kind": "list", "items": []}},
    ],
)
def test_a_strangers_optimizer_is_restored_or_refused(state: dict[str, Any], tmp_path: Path) -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    registry = Registry()
    registry.optimizer_key(optimizer)
    odd = {"kind": "tensor", "name": "optimizer/a", "device": "cuda:9999", "requires_grad": True}
    for group in ({"kind": "dict", "keys": ["lr"], "items": [odd]}, {"kind": "list", "items": [odd]}, odd):
        record = {"key": "0", "type": "SGD", "groups": {"kind": "list", "items": [group]}, "state": state}
        folder = write(tmp_path / "run", {"optimizer/a": torch.ones(2, dtype=torch.int8)}, optimizers=[record])
        with open_capture(folder) as capture, contextlib.suppress(CaptureError):
            assert all(isinstance(problem, str) for problem in restore(capture, registry))


def test_a_strangers_optimizer_state_has_the_scripts_shapes_or_is_refused(tmp_path: Path) -> None:
    """A fused update trusts the sizes it is given, and writes outside of them."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    registry = Registry()
    registry.add_model(model)
    registry.optimizer_key(optimizer)
    groups = {"kind": "dict", "keys": ["fused", "lr"], "items": [value(True), value(0.5)]}
    small = {"kind": "dict", "keys": ["exp_avg"], "items": [{"kind": "tensor", "name": "optimizer/a"}]}
    record = {"key": "0", "type": "Adam", "groups": {"kind": "list", "items": [groups]}, "state": {"0": small}}
    folder = write(tmp_path / "run", {"optimizer/a": torch.ones(1)}, optimizers=[record])
    with open_capture(folder) as capture, pytest.raises(CaptureError, match="another shape"):
        restore(capture, registry)
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["fused"]) == (0.5, None)


def value(plain: Any) -> dict[str, Any]:
    return {"kind": "value", "value": plain}


def test_a_newer_one_says_so(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="newer torchdoctor"):
        open_capture(write(tmp_path / "run", format=CAPTURE_FORMAT + 1))
