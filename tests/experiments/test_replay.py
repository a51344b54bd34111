"""A captured step run again in a fresh process."""

from __future__ import annotations

import json
import os
import timeit
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from processes import preloaded_torchdoctor, run_python
from recording import record
from torchdoctor.attach.script import _load_file
from torchdoctor.errors import CaptureError, ScriptError, UsageError
from torchdoctor.experiments import replay as replays
from torchdoctor.experiments.changes import Changes, read_changes
from torchdoctor.experiments.recorded_script import RecordedScript, find_script
from torchdoctor.store.environment import describe
from torchdoctor.store.origin import is_own, sign
from torchdoctor.store.replays import read_replays

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.rand(480, 6) + 0.5
x[405] = 0.0
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if __name__ == "__main__":
    log = open("log.csv", "w")
    torch.save(model.state_dict(), "first.pt")
    for xb, yb in DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, num_workers=1):
        loss = nn.functional.mse_loss(model(xb).exp() / xb.mean(1, keepdim=True), yb)  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write("step\\n")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replay")
    (folder / "train.py").write_text(SCRIPT)
    done = run_python("-m", "torchdoctor", "run", "--quiet", "--name", "run", "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def told(folder: Path, *arguments: str) -> tuple[dict, str]:
    done = preloaded_torchdoctor("replay", "run", "--json", "told.json", *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "told.json").read_text()), done.stdout


def test_the_same_to_the_bit_with_workers_and_dropout(folder: Path) -> None:
    saved = (folder / "first.pt").stat().st_mtime_ns
    found, text = told(folder)
    assert (folder / "log.csv").read_text() == "step\n" * 30
    assert (folder / "first.pt").stat().st_mtime_ns == saved
    assert (found["step"], found["birth"]["operator"], found["differs"]) == (25, "div", [])
    assert found["birth"]["samples"] == [5]
    assert "The same to the bit" in text
    assert "-> mse_loss at train.py:14" in text


def test_a_change_is_tried_from_the_start(folder: Path) -> None:
    found, text = told(folder, "--with", "lr=0.1x,clip=1.0")
    assert found["failed_at"] == 25
    assert not found["gone"]
    assert "fails all the same, at step 25" in text
    kept = read_replays(folder / "torchdoctor-runs" / "run")[0]
    assert (kept.step, kept.failed_at, kept.capture) == (25, 25, "step-000025-nonfinite")
    assert kept.change == "learning rate times 0.1, gradients clipped to a norm of 1"
    assert kept.birth is not None and kept.birth.samples == found["birth"]["samples"]


HALF = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.rand(480, 6)
x[405] *= 1e5
model = nn.Linear(6, 4).to(torch.float16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for (xb,) in DataLoader(TensorDataset(x), batch_size=16):
    loss = model(xb.to(dtype=torch.float16).clamp(max=6e4)).square().float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_in_single_precision_a_half_overflow_is_gone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HALF)
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert told(tmp_path)[0]["birth"]["dtype"] == "float16"
    found, text = told(tmp_path, "--with", "fp32")
    assert found["gone"], found["reason"]
    assert "The failure is gone" in text


TOGETHER = """
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
distributed.init_process_group("gloo")
torch.manual_seed(0)
x = torch.rand(480, 6) + 0.5
x[405] = 0.0
model = nn.parallel.DistributedDataParallel(nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
data = TensorDataset(x)
for (xb,) in DataLoader(data, 8, sampler=DistributedSampler(data, shuffle=False)):
    optimizer.zero_grad()
    loss = (model(xb) / xb.mean(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
distributed.destroy_process_group()
"""


def test_of_processes_that_train_together_the_one_that_broke_runs_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TOGETHER)
    words = ["torch.distributed.run", "--nproc-per-node=2", "-m", "torchdoctor", "run", "--name", "run", "train.py"]
    done = run_python("-m", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torchdoctor replay torchdoctor-runs/run" in done.stderr
    found, text = told(tmp_path)
    assert (found["birth"]["operator"], found["processes"], found["rank"]) == ("div", 2, 1)
    assert "2 processes trained together" in text


SECOND = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.rand(480, 6) + 0.5

def train(net, data, loss_of):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for (xb,) in DataLoader(TensorDataset(data), batch_size=16):
        loss = loss_of(net, xb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

train(nn.Linear(6, 6), x, lambda net, xb: nn.functional.mse_loss(net(xb), xb))
x[405] = 0.0
train(nn.Linear(6, 3, bias=False), x, lambda net, xb: net(xb).square().mean() + xb.norm(dim=1).log().mean())
"""


def test_a_training_that_comes_after_another(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SECOND)
    done = preloaded_torchdoctor("run", "--quiet", "--name", "run", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, _ = told(tmp_path)
    assert (found["birth"]["operator"], found["step"]) == ("log", 55)


def test_another_script_can_be_given(folder: Path) -> None:
    (folder / "mended.py").write_text(SCRIPT.replace("xb.mean(1, keepdim=True)", "(xb.mean(1, keepdim=True) + 1e-3)"))
    done = run_python("-m", "torchdoctor", "replay", "run", "--", "mended.py", cwd=folder)
    assert done.returncode == 1
    assert "did not fail again" in done.stdout


def test_a_function_can_be_named(folder: Path) -> None:
    (folder / "step.py").write_text(
        "import train, torch\n"
        "def step(captured):\n"
        "    assert not captured.load(train.model, train.optimizer)\n"
        "    xb, yb = captured.batch\n"
        "    return (train.model(xb).exp() / xb.mean(1, keepdim=True) - yb).square().mean()\n"
    )
    found, _ = told(folder, "--step-fn", "step.py:step")
    assert (found["birth"]["operator"], found["birth"]["line"], found["birth"]["samples"]) == ("div", 5, [5])


def test_changes_are_read() -> None:
    assert read_changes(["lr=0.1x"]) == Changes(rate=0.1, relative=True)
    assert read_changes(["lr=1e-3,fp32", "clip=2"]) == Changes(rate=1e-3, clip=2.0, single=True)
    assert not read_changes(["fp32"]).from_start
    with pytest.raises(UsageError, match="clip="):
        read_changes(["momentum=0"])


def test_without_a_capture_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="--capture"):
        replays.replay(record(tmp_path / "run"))


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"argv": []}, "does not say"),
        ({"argv": ["train.py", "--key", "***"]}, "secret"),
        ({"argv": ["/nowhere/train.py"]}, "does not exist any more"),
        ({"argv": [timeit.__file__, "-n1", "print(1)"], "cwd": "/"}, "not in this folder"),
    ],
)
def test_a_script_that_cannot_be_trusted_is_asked_for(tmp_path: Path, info: dict, said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        find_script(tmp_path, info)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What a run of this user's says, standing in the folder of its script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    return describe(["train.py", "--lr", "0.1"])


def test_an_own_run_of_an_unchanged_script_raises_no_doubt(tmp_path: Path, mine: dict) -> None:
    script = find_script(tmp_path, mine)
    assert script.target.words == [str(tmp_path / "train.py"), "--lr", "0.1"]
    assert (script.folder, script.doubts) == (tmp_path, ())


@pytest.mark.parametrize(
    ("edit", "doubts"),
    [
        ({"argv": ["train.py", "--delete-everything"]}, 1),
        ({"argv": ["deploy.py"]}, 2),
        ({"script_sha256": ""}, 2),
        ({"script_sha256": None}, 2),
        ({"script_sha256": [1]}, 2),
        ({"origin": ""}, 1),
        ({"origin": "\udc80"}, 1),
        ({"origin": "0" * 64}, 1),
        ({"cwd": "."}, 1),
    ],
)
def test_a_forged_run_starts_nothing_unasked(tmp_path: Path, mine: dict, edit: dict, doubts: int) -> None:
    (tmp_path / "deploy.py").write_text("print(2)\n")
    script = find_script(tmp_path, mine | edit)
    assert len(script.doubts) == doubts
    with pytest.raises(ScriptError, match="--yes"):
        replays._approve(script, (), tmp_path, None)
    asked: list[RecordedScript] = []
    replays._approve(script, (), tmp_path, lambda s: not asked.append(s))
    assert asked == [script]


def test_it_asks_where_an_imported_file_has_changed(tmp_path: Path, mine: dict) -> None:
    script = find_script(tmp_path, mine)
    replays._approve(script, [str(tmp_path / "train.py")], tmp_path, None)  # its own digest has been compared
    with pytest.raises(ScriptError, match=r"imported have changed .*model\.py"):
        replays._approve(script, [str(tmp_path / "model.py")], tmp_path, None)


def test_a_script_that_is_replaced_after_it_was_checked_does_not_start(tmp_path: Path, mine: dict) -> None:
    target = find_script(tmp_path, mine).target
    assert _load_file(target, ModuleType("__main__")) is not None
    (tmp_path / "train.py").write_text("print('another one')\n")
    with pytest.raises(ScriptError, match="changed between its check and its start"):
        _load_file(target, ModuleType("__main__"))


def test_odd_names_of_sources_in_a_capture_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "big.py").touch()
    os.truncate(tmp_path / "big.py", 1 << 40)
    (tmp_path / "helper.py").write_text("x = 1\n")
    names = ["~nobodyatall/x.py", "a\0b.py", str(tmp_path / ("a" * 300 + ".py")), str(tmp_path / "big.py"), "\udc80.py"]
    names += [str(tmp_path / "helper.py"), str(tmp_path / "x" / ".." / ".." / "y.py")]
    capture = SimpleNamespace(document={"sources": {**dict.fromkeys(names, "0" * 64), str(tmp_path / "a.py"): 5}})
    assert replays._changed_sources(capture, tmp_path / "train.py") == (str(tmp_path / "helper.py"),)


def test_a_changed_script_starts_only_with_a_yes(folder: Path) -> None:
    kept = (folder / "train.py").read_text()
    (folder / "train.py").write_text(kept + "\n# changed\n")
    try:
        done = preloaded_torchdoctor("replay", "run", cwd=folder)
        assert done.returncode == 2 and "train.py" in done.stderr and "has changed" in done.stderr
        assert "has changed" in told(folder, "--yes")[1]
    finally:
        (folder / "train.py").write_text(kept)


@pytest.mark.parametrize("place", ["", "captures", "captures/step-000001-nonfinite", "x/y"])
@pytest.mark.parametrize("kind", ["run.json", "run-r3.json", "scalars-r0-s000-p1-000000.arrow"])
def test_nothing_that_lies_in_a_run_folder_is_started(tmp_path: Path, mine: dict, place: str, kind: str) -> None:
    run = record(tmp_path / "runs" / "a")
    for path in run.iterdir():
        path.rename(run / kind) if path.name == "run.json" else path.unlink()
    inside = run / place
    inside.mkdir(parents=True, exist_ok=True)
    (inside / "train.py").write_text("print(3)\n")
    relative = str((inside / "train.py").relative_to(tmp_path))
    for argv in ([relative], [f"runs/../{relative}"], [str(inside / "train.py")]):
        with pytest.raises(ScriptError, match="run folder"):
            find_script(tmp_path, describe(argv))
    with pytest.raises(ScriptError, match="run folder"):
        replays._named_target([relative], None)
    with pytest.raises(ScriptError, match="run folder"):
        find_script(tmp_path, mine | {"argv": [str(tmp_path / "train.py")], "cwd": str(inside)})


@pytest.mark.parametrize("words", [["run"], ["-m", "run.train"], ["-m", "run.pkg"]])
def test_no_folder_or_module_in_a_run_folder_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    run = record(tmp_path / "run")
    (run / "pkg").mkdir()
    for name in ("__main__.py", "train.py", "pkg/__init__.py", "pkg/__main__.py"):
        (run / name).write_text("print(3)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScriptError, match="run folder"):
        replays._named_target(words, None)


@pytest.mark.parametrize("words", [["-m", "train"], ["-m", "timeit"], ["-c", "import train"]])
def test_no_module_is_looked_for_in_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(record(tmp_path / "run"))
    with pytest.raises(ScriptError, match="run folder"):
        replays._named_target(words, None)


def test_a_link_to_a_script_in_a_run_folder_is_not_followed(tmp_path: Path, mine: dict) -> None:
    run = record(tmp_path / "runs" / "a")
    (run / "train.py").write_text("print(3)\n")
    (tmp_path / "link.py").symlink_to(run / "train.py")
    with pytest.raises(ScriptError, match="run folder"):
        find_script(tmp_path, mine | {"argv": ["link.py"]})


def test_the_key_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    info = {"argv": ["train.py"], "cwd": "/", "script_sha256": "0"}
    signed = info | {"origin": sign(info)}
    key = next(path for path in tmp_path.rglob("*") if path.is_file())
    assert is_own(signed) and key.stat().st_mode & 0o077 == 0
    assert key.read_bytes().hex() not in json.dumps(signed)
    key.chmod(0o644)
    assert not is_own(signed)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_own(signed)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert "origin" not in describe(["train.py"])
