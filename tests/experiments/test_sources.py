"""What a program is made of: an edit in a file that it uses makes its earlier runs another program's."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchdoctor.attach.target import Target, read_target
from torchdoctor.experiments.board import Silent
from torchdoctor.experiments.seed_passing import OVERRIDE, Passing
from torchdoctor.experiments.seeds import FINISHED, Launch, Surroundings, run_all
from torchdoctor.experiments.sources import digest_sources
from torchdoctor.experiments.variants import Variant

FILES = {
    "train.py": "import lib\nfrom models.deep.net import Net\nimport torch, missing",
    "lib.py": "from helpers import *",
    "helpers.py": "A = 1",
    "other.py": "B = 1",
    "models/__init__.py": "",
    "models/deep/__init__.py": "",
    "models/deep/net.py": "from . import layers\nfrom .. import base",
    "models/deep/layers.py": "",
    "models/base.py": "",
    "pkg/__init__.py": "",
    "pkg/train.py": "from .data import load",
    "pkg/data.py": "",
    "pkg/unused.py": "",
    "conf/a.yaml": "lr: 1",
    "named.py": "import importlib\nimportlib.import_module('pkg.' + 'data')",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        (
            "train.py",
            "train.py lib.py helpers.py models/__init__.py models/deep/__init__.py models/deep/net.py "
            "models/deep/layers.py models/base.py",
        ),
        ("-m pkg.train", "pkg/__init__.py pkg/train.py pkg/data.py"),
        ("helpers.py --config conf/a.yaml --out=runs", "helpers.py conf/a.yaml"),
        ("helpers.py --config=conf/a.yaml", "helpers.py conf/a.yaml"),
    ],
)
def test_what_counts_and_what_does_not(command: str, counts: str, project: Path) -> None:
    target = read_target(command.split())
    before, moved = digest_sources(target), []
    for name, text in FILES.items():
        (project / name).write_text(f"{text}\n# edited")
        if digest_sources(target) != before:
            moved.append(name)
        (project / name).write_text(text)
    assert sorted(moved) == sorted(counts.split())
    assert digest_sources(target) == before


def test_modules_that_are_imported_by_name_count_all(project: Path) -> None:
    before = digest_sources(read_target(["named.py"]))
    (project / "pkg" / "data.py").write_text("# edited")
    assert digest_sources(read_target(["named.py"])) != before


def test_code_and_a_script_that_lies_elsewhere(project: Path) -> None:
    (project / "scripts").mkdir()
    (project / "scripts" / "go.py").write_text("import helpers")
    targets = read_target(["scripts/go.py"]), Target("code", "import helpers")
    before = [digest_sources(t) for t in targets]
    (project / "helpers.py").write_text("A = 2")
    assert all(digest_sources(t) != old for t, old in zip(targets, before, strict=True))


TRAIN = """
import torch
from .rate import LR
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 1)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_run_of_a_module_is_reused_until_a_file_of_it_is_edited(project: Path) -> None:
    (project / "pkg" / "train.py").write_text(TRAIN)
    (project / "pkg" / "rate.py").write_text("LR = 0.1")
    at = Surroundings(project / "runs", reuse=True)

    def run() -> bool:
        target = read_target(["-m", "pkg.train"])
        ((outcome,), _) = run_all([Launch(Variant("t", target, Passing(OVERRIDE)), 0, "t-seed-0")], at, Silent())
        assert outcome.status == FINISHED, outcome.tail
        return outcome.reused

    assert [run(), run()] == [False, True]
    (project / "pkg" / "rate.py").write_text("LR = 0.2")
    assert [run(), run()] == [False, True]
