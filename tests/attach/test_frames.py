"""Tracebacks, stacks and recursion are those of the script without us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from processes import run_python, torchdoctor_command
from torchdoctor.attach.instrumentation import instrument

SCRIPT = str(Path(__file__).with_name("frames_script.py"))


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the script sees of its own frames, bare and recorded."""
    out = str(tmp_path_factory.mktemp("frames"))
    done = run_python(SCRIPT), torchdoctor_command("run", "--quiet", "--out", out, SCRIPT)
    assert [run.returncode for run in done] == [0, 0], done[1].stderr
    bare, recorded = (json.loads(run.stdout) for run in done)
    return bare, recorded


def test_tracebacks_depth_and_sources_are_the_same(printed: tuple[dict[str, Any], dict[str, Any]]) -> None:
    bare, recorded = printed
    assert bare.keys() == recorded.keys()
    assert sum("Traceback" in str(value) for value in bare.values()) > 60
    for name, value in bare.items():
        if "stack" in name:
            assert recorded[name] == [*value, "_arrive ['        program()\\n']"]
        elif name == "limit":  # what the one frame takes
            assert recorded[name] == value + 1
        else:
            assert recorded[name] == value, name


def test_code_that_is_not_that_of_the_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    path.write_text("def f(x):\n    return x\n")
    scope: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x + 1\n", str(path), "exec"), scope)
    assert instrument(scope["f"]) is None
    assert instrument(print) is None
    assert instrument(lambda: 0) is None


def test_several_listeners_follow_one_function() -> None:
    told: list[str] = []

    class Call:
        def __init__(self, name: str) -> None:
            self.name = name

        def ended(self, result: Any) -> None:
            told.append(f"{self.name} ended {type(result).__name__}")

        def failed(self) -> bool:
            told.append(f"{self.name} failed")
            return False

    def begin(name: str) -> Any:
        return lambda args, kwargs: told.append(f"{name} begins") or Call(name)

    code = nn.Module.requires_grad_.__code__
    instrumentation = instrument(nn.Module.requires_grad_)
    assert instrumentation is not None
    first, second = begin("first"), begin("second")
    instrumentation.add(first)
    instrumentation.add(second)
    nn.Linear(1, 1).requires_grad_()
    assert told == ["second begins", "first begins", "first ended Linear", "second ended Linear"]
    assert instrumentation.drop(first)
    assert not instrumentation.drop(first)
    told.clear()
    with pytest.raises(AttributeError):
        nn.Module.requires_grad_(3)  # type: ignore[arg-type]
    assert told == ["second begins", "second failed"]
    assert instrumentation.drop(second)
    assert nn.Module.requires_grad_.__code__ is code
