"""Runs in every python that a command under `torchdoctor run --` starts: waits for torch, then attaches.

It takes the place of no other sitecustomize: the one that would have run without us runs too, and where there is
none, python is told that there is none. It runs at the start of programs that may never train, so it imports little.
"""
# pathlib and contextlib would be loaded into every process
# ruff: noqa: PTH100, PTH119, PTH120, SIM105

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def wait_for_torch() -> None:
    """Arrange for the attachment; nothing more is imported until torch is."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
    try:
        import torchdoctor  # noqa: F401
    except ImportError:
        if os.path.basename(root) in ("site-packages", "dist-packages"):
            return
        sys.path.append(root)
    from torchdoctor.attach.importing import after_import

    def join(torch: object) -> None:
        from torchdoctor.attach import children

        children.join_command(torch)

    def follow(spawn: object) -> None:
        from torchdoctor.attach import children

        children.send_passengers(spawn)

    after_import("torch", guarded(join))
    after_import("multiprocessing.spawn", guarded(follow))


def guarded(function):  # type: ignore[no-untyped-def]
    """Whatever fails in here, the program it happens in goes on without us."""

    def call(module: object) -> None:
        try:
            function(module)
        except Exception:
            pass

    return call


def run_the_next() -> None:
    """Run the sitecustomize that ours hides, as the module of that name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if "TORCHDOCTOR_OPTIONS" in os.environ:
    try:
        wait_for_torch()
    except Exception:
        pass
run_the_next()
