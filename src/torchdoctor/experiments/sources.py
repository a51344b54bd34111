"""The user's own source of a program: its main file and the files of his that it imports, found without running it."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path

from torchdoctor.attach.target import CODE, COMMAND, FILE, FOLDER, MODULE, Target
from torchdoctor.opening import current_folder

BYTES_READ = 1_000_000
"""No source or configuration that somebody wrote is longer."""
FILES_DIGESTED = 500
BY_NAME = ("import_module", "__import__", "pkgutil", "hydra")
"""Where one of these stands, modules are imported that the source does not name."""
CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".py")
INIT = "__init__.py"


def read_sources(target: Target, most: int) -> Iterator[tuple[Path, ast.Module]]:
    """Up to so many files, the nearest to the main one first."""
    for path, text in _read_texts(target, most):
        yield from ((path, tree) for tree in _parse(text))


def digest_sources(target: Target) -> str:
    """Changes with every file of the user's that the program is made of: what it imports, and what its arguments name,
    such as a configuration. Scripts beside it are none of that, and may be edited while the runs of this one count."""
    texts = dict(_read_texts(target, FILES_DIGESTED))
    main = main_file(target)
    more = [Path(word.rpartition("=")[2]) for word in target.arguments if word.endswith(CONFIGURATIONS)]
    if main is not None and any(word in text for text in texts.values() for word in BY_NAME):
        more += itertools.islice(_files_beside(main), FILES_DIGESTED)
    texts |= {path: text for path in more if (text := _read(path)) is not None}
    found = sorted((path.name, hashlib.sha256(text.encode()).hexdigest()) for path, text in texts.items())
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _read_texts(target: Target, most: int) -> Iterator[tuple[Path, str]]:
    main = main_file(target)
    here = current_folder()
    folders = list(dict.fromkeys([*([main.parent] if main is not None else []), *_roots(target), here, here / "src"]))
    if target.kind == CODE:
        yield Path("<string>"), target.what
        waiting = list(_imported(target.what, here / "<string>", folders))
    elif main is not None:
        packages = _modules_of(target.what, folders) if target.kind == MODULE else ()
        waiting = list(dict.fromkeys([main, *packages]))
    else:
        return
    seen = set(waiting)
    for _ in range(most):
        if not waiting:
            return
        path = waiting.pop(0)
        text = _read(path) or ""
        yield path, text
        near = [file for file in dict.fromkeys(_imported(text, path, folders)) if file not in seen]
        seen.update(near)
        waiting += near


def main_file(target: Target) -> Path | None:
    """The file that a program begins with; None where it is none that can be found."""
    if target.kind == FILE:
        return Path(target.what).resolve()
    if target.kind == FOLDER:
        return (Path(target.what) / "__main__.py").resolve()
    if target.kind == COMMAND:
        named = [w for w in target.arguments if w.endswith(".py") and Path(w).is_file()]
        return Path(named[0]).resolve() if named else None
    if target.kind == MODULE:
        relative = Path(*target.what.split("."))
        ends = (relative.with_suffix(".py"), relative / "__main__.py")
        candidates = [root / end for root in _roots(target) for end in ends]
        return next((c.resolve() for c in candidates if c.is_file()), None)
    return None


def _roots(target: Target) -> list[Path]:
    """Where a module's package may lie: in this folder, or in that of a project that is installed for development."""
    if target.kind != MODULE:
        return []
    found = [current_folder()]
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(target.what.partition(".")[0])
        places = (spec.submodule_search_locations or [spec.origin]) if spec is not None else []
        found += [Path(place).parent for place in places if place]
    return found


def _files_beside(main: Path) -> Iterator[Path]:
    """All python files beside it and in packages there, and Hydra's configurations. Other folders are not looked into:
    they may hold millions of samples."""
    with contextlib.suppress(OSError):
        yield from sorted(main.parent.glob("*.py"))
        for init in sorted(main.parent.glob(f"*/{INIT}")):
            yield from sorted(init.parent.rglob("*.py"))
        yield from sorted(main.parent.glob("conf*/**/*.y*ml"))


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= BYTES_READ:
            return path.read_text(errors="replace")
    return None


def _parse(text: str) -> list[ast.Module]:
    try:
        return [ast.parse(text)]
    except (SyntaxError, ValueError, RecursionError):
        return []


def _imported(text: str, path: Path, folders: list[Path]) -> Iterator[Path]:
    """Files of the user's; installed packages are none of his."""
    for node in itertools.chain.from_iterable(map(ast.walk, _parse(text))):
        if isinstance(node, ast.Import):
            names, at = [a.name for a in node.names], folders
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else None
            inner = [f"{node.module}.{a.name}" if node.module else a.name for a in node.names]
            names, at = [*([node.module] if node.module else []), *inner], [base] if base is not None else folders
        else:
            continue
        for name in names:
            yield from _modules_of(name, at)


def _modules_of(name: str, folders: list[Path]) -> Iterator[Path]:
    """What `import a.b.c` runs: a, a.b and a.b.c."""
    for relative in itertools.accumulate(name.split("."), lambda path, part: f"{path}/{part}"):
        for folder in folders:
            for candidate in (folder / f"{relative}.py", folder / relative / INIT):
                if candidate.is_file():
                    yield candidate.resolve()
