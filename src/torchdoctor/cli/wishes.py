"""Checks of what `torchdoctor run` was asked for, made before the script starts and without importing numpy."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from torchdoctor.errors import UnknownNameError, UsageError
from torchdoctor.findings import Severity

RULES = Path(__file__).parents[1] / "rules"


def read_severity(text: str | None) -> Severity | None:
    if text is None:
        return None
    try:
        return Severity(text.lower())
    except ValueError:
        raise UsageError(f"--fail-on takes error, warning or info, not {text!r}") from None


def read_run_name(name: str) -> str:
    if name in ("", ".", "..") or any(c in "/\\\0" for c in name):
        raise UsageError(f"--name must be the name of a folder, not {name!r}; --out says where that folder is made")
    return name


def check_folder(folder: Path) -> Path:
    """It is there, or can be made, and files can be made in it; nothing is made yet."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"cannot write runs to {folder}: {existing} is a file; give another folder with --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write runs to {folder}: {existing} is read-only; give another folder with --out")
    return folder


def check_json(text: str) -> Path:
    if text == "-":
        raise UsageError("--json needs a file, since the standard output belongs to the script")
    path = Path(text).absolute()
    if path.is_dir():
        raise UsageError(f"cannot write the verdict to {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write the verdict to {path}: there is no folder {path.parent}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write the verdict to {path}: it is read-only; give another file with --json")
    return path


def read_names(given: Sequence[str]) -> tuple[str, ...]:
    """Names of diagnoses, from names or codes; several may be joined by commas."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not names:
        return ()
    codes = list_diagnoses()
    return tuple(dict.fromkeys(_find(name, codes) for name in names))


def _find(name: str, codes: dict[str, str]) -> str:
    wanted = name.lower().replace("_", "-")
    if wanted in codes:
        return wanted
    by_code = next((known for known, code in codes.items() if code.lower() == wanted), None)
    if by_code is not None:
        return by_code
    close = difflib.get_close_matches(wanted, codes, n=3, cutoff=0.5)
    way_out = f"did you mean {' or '.join(close)}?" if close else "torchdoctor explain lists them all"
    raise UnknownNameError(f"--stop-on: there is no diagnosis {name!r}; {way_out}")


def list_diagnoses() -> dict[str, str]:
    """Name to code of every rule, read from the source: importing the rules would import numpy before the script."""
    found: dict[str, str] = {}
    for file in sorted(RULES.glob("*/*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Rule":
                said = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
                if isinstance(said.get("name"), str):
                    found[said["name"]] = str(said.get("code", ""))
    return found
