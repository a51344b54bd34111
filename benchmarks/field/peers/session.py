"""Runs one program under a peer: the script starts as with `python SCRIPT`, and the peer's findings become a file.

The findings are written as JSON at the end, also where the script fails. Exceptions of the peer in the loop are not
caught, since its users would meet them, too.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from pathlib import Path

from field.peers.wrapper import Wrapper

GIGABYTES = 10
"""Most memory that the process may take: a peer that keeps every activation must not bring the machine down."""


def main() -> None:
    _, name, packages, verdict, script = sys.argv[:5]
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30, GIGABYTES << 30))
    sys.argv = sys.argv[4:]
    sys.path.append(packages)
    wrapper: Wrapper = importlib.import_module(f"field.peers.{name}").wrapper
    statements = list(wrapper.read(Path(script)))
    loop = None
    if wrapper.watches_models:
        loop = importlib.import_module("field.peers.loop").Loop(wrapper)
        loop.install()
    sys.path[0] = str(Path.cwd())
    try:
        _run(Path(script).absolute())
    finally:
        if loop is not None:
            statements += loop.statements()
        is_attached = loop is None or bool(loop.watched)
        report = {"findings": wrapper.findings(statements), "is_attached": is_attached}
        Path(verdict).write_text(json.dumps(report), encoding="utf-8")


def _run(script: Path) -> None:
    """Run a script in the real `__main__`, so that its classes can be pickled."""
    namespace = sys.modules["__main__"].__dict__
    code = compile(script.read_bytes(), str(script), "exec")
    for name in [name for name in namespace if not name.startswith("__")]:
        del namespace[name]
    namespace.update(__file__=str(script), __doc__=None, __spec__=None, __package__=None)
    exec(code, namespace)
