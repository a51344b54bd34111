from __future__ import annotations

import ast
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import torchdoctor
from processes import run_python, torchdoctor_command
from torchdoctor import cli
from torchdoctor.cli import COMMANDS, group, unknown

FOLDER = Path(cli.__file__).parent


def test_every_command_in_the_table_exists_and_every_one_that_exists_is_in_it() -> None:
    for name in COMMANDS:
        assert isinstance(group.get_command(click.Context(group), name), click.Command)
    for path in FOLDER.glob("*.py"):
        defined = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}
        assert ("command" in defined) == (path.stem in COMMANDS), path


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    for name, words in COMMANDS.items():
        assert name in result.output
        assert words in result.output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(group, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_version() -> None:
    result = CliRunner().invoke(group, ["--version"])
    assert result.output == f"torchdoctor {torchdoctor.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rnu"], "did you mean run"),
        (["diagnos"], "did you mean diagnose"),
        (["train.py"], "torchdoctor run train.py"),
        (["xyzzy"], "torchdoctor --help lists them all"),
    ],
)
def test_unknown_commands_are_answered_with_close_ones(arguments: list[str], words: str) -> None:
    done = torchdoctor_command(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.startswith("torchdoctor: ")
    assert len(done.stderr.splitlines()) == 1


def test_our_errors_are_one_sentence_and_status_2(tmp_path: Path) -> None:
    done = torchdoctor_command("diagnose", str(tmp_path / "missing"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("torchdoctor: there is nothing at ")


def test_close_names_come_from_likeness_and_from_parts() -> None:
    known = ["vanishing-gradients", "exploding-gradients", "dead-relu"]
    assert "did you mean vanishing-gradients" in unknown("diagnosis", "vanishing-gradient", known, "list them")
    assert "dead-relu" in unknown("diagnosis", "relu", known, "list them")
    assert unknown("diagnosis", "zzz", known, "list them") == "there is no diagnosis 'zzz'; list them"


def test_help_comes_at_once_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from torchdoctor.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print([m for m in ('torch', 'numpy', 'rich', 'pyarrow') if m in sys.modules])"
    )
    assert run_python("-c", code).stdout.splitlines()[-1] == "[]"
    fastest = min(_seconds_of_help() for _ in range(5))
    assert fastest < 0.3


def _seconds_of_help() -> float:
    start = time.perf_counter()
    torchdoctor_command("--help")
    return time.perf_counter() - start
