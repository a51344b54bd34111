"""Python and torchdoctor in processes of their own, one thread each.

`torchdoctor_command` starts a fresh python. `preloaded_torchdoctor` forks a process that has imported what training
scripts do, which saves each of many short runs some seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from torchdoctor import rules

Done = subprocess.CompletedProcess[str]


def run_python(*arguments: str, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Done:
    """What it printed and its status; variables are added to the environment."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def torchdoctor_command(*arguments: str, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Done:
    return run_python("-m", "torchdoctor", *arguments, cwd=cwd, timeout=timeout, **environment)


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        *("torch", "torch._dynamo", "sklearn.datasets", "sklearn.model_selection"),
        *("torchdoctor.cli.run", "torchdoctor.cli.replay", "torchdoctor.attach.install", "torchdoctor.engine"),
        *(module.name for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")),
    ]
)


def preloaded_torchdoctor(
    *arguments: str, cwd: Path, timeout: float = 120, before: Callable[[], None] | None = None, **environment: str
) -> Done:
    """The command line's own `main`, with what it printed and its status. `before` is called in its process."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        variables = {"OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment}
        child = _SERVER.Process(target=_main, args=(arguments, cwd, output, errors, variables, before))
        child.start()
        child.join(timeout)
        if child.is_alive():
            child.kill()
            child.join()
            raise subprocess.TimeoutExpired(list(arguments), timeout, errors.read_text())
        return Done(list(arguments), child.exitcode or 0, output.read_text(), errors.read_text())


def _main(
    arguments: tuple[str, ...],
    cwd: Path,
    output: Path,
    errors: Path,
    variables: dict[str, str],
    before: Callable[[], None] | None,
) -> None:
    for number, path in ((1, output), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    multiprocessing.set_start_method("fork", force=True)  # what a python that was started by itself has
    os.environ.update(variables)
    os.chdir(cwd)
    sys.argv = ["torchdoctor", *arguments]
    from torchdoctor.cli import main

    if before is not None:
        before()
    main()
