"""Who may import whom: the layers of DESIGN, held by import-linter and by looking at what a command loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from processes import run_python
from recording import record

ROOT = Path(__file__).parents[1]

LOADED = """
import sys
from torchdoctor.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    status = end.code or 0
print(status, 'torch' in sys.modules)
"""


def test_imports_go_down_only() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["explain"],
        ["explain", "environment-differs"],
        ["demo", "--list"],
        ["runs"],
        ["runs", "show", "RUN"],
        ["diagnose", "RUN"],
        ["diff", "RUN", "RUN"],
        ["top", "RUN", "--once"],
    ],
    ids=" ".join,
)
def test_commands_that_only_read_never_import_torch(arguments: list[str], tmp_path: Path) -> None:
    run = record(tmp_path / "torchdoctor-runs" / "a")
    given = [str(run) if a == "RUN" else a for a in arguments]
    done = run_python("-c", LOADED.format(arguments=given), cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["0 False"], done.stdout + done.stderr


def test_the_live_page_never_imports_torch(tmp_path: Path) -> None:
    record(tmp_path / "runs" / "a")
    code = """
import sys
from pathlib import Path
from starlette.testclient import TestClient
from torchdoctor.ui.app import build_app
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library
app = build_app(Library(Path("runs")), Access.over("127.0.0.1", 80, "t"))
with TestClient(app, base_url="http://127.0.0.1") as client:
    client.get("/", params={"token": "t"})
    asked = [client.get(path).status_code for path in ("/", "/run/a", "/api/run/a?charts=loss", "/compare?a=a&b=a")]
print(asked, "torch" in sys.modules)
"""
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["[200, 200, 200, 200] False"], done.stdout + done.stderr


def test_importing_torchdoctor_imports_nothing_heavy() -> None:
    code = "import sys, torchdoctor; print([m for m in ('torch', 'numpy', 'rich', 'click') if m in sys.modules])"
    assert run_python("-c", code).stdout.strip() == "[]"


WITH_TORCH = {"triton"}
"""Comes with the builds of torch that can use it, and is imported only there."""


def test_what_is_imported_is_what_is_installed() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    allowed = {re.split(r"[^\w-]", requirement)[0] for requirement in declared} | WITH_TORCH | {"torchdoctor"}
    package = ROOT / "src" / "torchdoctor"
    sources = [path for path in package.rglob("*.py") if "zoo" not in path.relative_to(package).parts]
    imported = {(top, path.name) for path in sources for top in _imported(path)}
    assert len(sources) > 100
    assert [(top, name) for top, name in imported if top not in allowed | sys.stdlib_module_names] == []


def _imported(path: Path) -> set[str]:
    """Top-level names of everything imported in a file, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found}


UNDRAWN = """
import random, torch, torchdoctor
random.seed(0)
torch.manual_seed(0)
state = random.getstate(), torch.random.get_rng_state().tolist()
for name in dir(torchdoctor):
    getattr(torchdoctor, name)
imported = state == (random.getstate(), torch.random.get_rng_state().tolist())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
state = random.getstate()
with torchdoctor.watch(model, optimizer, out="runs") as doctor:
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.ones(8, 4)).square().mean().backward()
        optimizer.step()
print(doctor.summary())
batches = [(torch.randn(8, 4), torch.randn(8, 1))]
print(torchdoctor.check(model, batches, torch.nn.MSELoss(), quick=True))
print(imported, state == random.getstate())
"""


def test_nothing_that_is_imported_or_printed_draws_random_numbers(tmp_path: Path) -> None:
    done = run_python("-c", UNDRAWN, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["True True"], done.stdout + done.stderr
