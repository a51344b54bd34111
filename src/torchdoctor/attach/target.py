"""What the user wants to run: a file, a module, a piece of code, or a command that starts python by itself."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipimport import ZipImportError, zipimporter

from torchdoctor.errors import ScriptError

FILE, FOLDER, MODULE, CODE, COMMAND = "file", "folder", "module", "code", "command"

PYTHON_ENDINGS = (".py", ".pyw", ".pyc")


@dataclass(frozen=True)
class Target:
    """`what` is a path, a module's name, source code or a program, `arguments` all that follows it."""

    kind: str
    what: str
    arguments: tuple[str, ...] = ()
    sha256: str = ""
    """the digest that a file must have to be started; empty where any content will do"""

    @property
    def words(self) -> list[str]:
        """As python (or, for a command, the shell) would have been called with it."""
        flag = {MODULE: ["-m"], CODE: ["-c"]}.get(self.kind, [])
        return [*flag, self.what, *self.arguments]

    @property
    def source_folders(self) -> list[Path]:
        """The folder in which the script itself lies, where it is a file or a folder."""
        path = Path(self.what).absolute()
        return [path.parent] if self.kind == FILE else [path] if self.kind == FOLDER else []

    @property
    def stem(self) -> str:
        """A short word for it, to name the run by."""
        if self.kind == CODE:
            return "code"
        if self.kind == COMMAND:
            return _stem_of_command(self.words)
        name = self.what.rpartition(".")[2] if self.kind == MODULE else Path(self.what).resolve().stem
        if name == "__main__":
            name = self.what.split(".")[-2] if self.kind == MODULE else Path(self.what).resolve().parent.name
        return _as_name(name)


def read_target(words: Sequence[str], *, after_dashes: bool = False) -> Target:
    """Make sense of the words after our options. `after_dashes`: they followed a `--`, so may be any command."""
    if not words:
        raise ScriptError(
            "no script was given; write torchdoctor run train.py, torchdoctor run -m package.train, "
            "or torchdoctor run -- torchrun ..."
        )
    first, *rest = words
    for flag, kind, example in (("-m", MODULE, "package.train"), ("-c", CODE, '"import train"')):
        if first.startswith(flag):
            joined = [first[2:], *rest] if len(first) > 2 else rest
            if not joined:
                raise ScriptError(f"nothing follows {flag}; write for example torchdoctor run {flag} {example}")
            return Target(kind, joined[0], tuple(joined[1:]))
    if after_dashes and not first.endswith(PYTHON_ENDINGS):
        return _read_command(first, rest)
    return _read_file(first, rest)


def _read_command(program: str, arguments: Sequence[str]) -> Target:
    if any(Path(word).name == "torchdoctor" for word in (program, *arguments)):
        raise ScriptError(
            "torchdoctor stands twice in this command; write either torchdoctor run -- torchrun ... train.py or "
            "torchrun ... -m torchdoctor run train.py"
        )
    found = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        raise ScriptError(f"cannot start {program!r}: there is no such program on the PATH")
    return Target(COMMAND, program if shutil.which(program) else found, tuple(arguments))


def _read_file(path: str, arguments: Sequence[str]) -> Target:
    file = Path(path)
    if path == "-":
        raise ScriptError("a script from the standard input cannot be followed; save it in a file and run that")
    try:
        if file.is_dir():
            if not (file / "__main__.py").is_file():
                raise ScriptError(f"{path} is a folder without a __main__.py; name the script in it{_scripts_in(file)}")
            return Target(FOLDER, path, tuple(arguments))
        if not file.exists():
            raise ScriptError(f"there is no file {path!r}{_way_out(path, arguments)}")
    except OSError as error:
        raise ScriptError(f"cannot read {path!r}: {error.strerror or error}") from error
    if not os.access(file, os.R_OK):
        raise ScriptError(f"{path} may not be read by this user; change its permissions (chmod u+r {path})")
    return Target(FOLDER if _is_archive(path) else FILE, path, tuple(arguments))


def _is_archive(path: str) -> bool:
    if path.endswith(PYTHON_ENDINGS):
        return False
    try:
        zipimporter(path)
    except ZipImportError:
        return False
    return True


def _way_out(path: str, arguments: Sequence[str]) -> str:
    """What a person who typed this most likely meant."""
    import difflib

    program = Path(path).name
    if program.rstrip("0123456789.") == "python" and arguments:
        return f"; leave {program} out: torchdoctor run {arguments[0]} ..."
    folder = Path(path).parent
    if not folder.is_dir():
        return f": there is no folder {str(folder)!r} either; check the path ({_whereabouts()})"
    names = {p.stem: p.name for p in folder.iterdir() if p.suffix in PYTHON_ENDINGS and p.is_file()}
    close = [names[stem] for stem in difflib.get_close_matches(Path(path).stem, names, n=3, cutoff=0.7)]
    if close:
        return f"; did you mean {' or '.join(str(folder / name) for name in close)}?"
    if os.sep not in path and (shutil.which(path) or path in ("torchrun", "accelerate")):
        return f", but there is a program of that name: to follow what it starts, torchdoctor run -- {path} ..."
    parts = path.split(".")
    if len(parts) > 1 and all(p.isidentifier() for p in parts) and parts[-1] != "py":
        return f"; for a module write torchdoctor run -m {path}"
    return f"; check the path ({_whereabouts()})"


def _whereabouts() -> str:
    try:
        return f"the current folder is {Path.cwd()}"
    except OSError:
        return "the current folder has been deleted"


def _scripts_in(folder: Path) -> str:
    names = sorted(p.name for p in folder.glob("*.py"))[:3]
    return f", for example {folder / names[0]}" if names else ""


def _stem_of_command(words: Sequence[str]) -> str:
    for before, word in zip(["", *words], words, strict=False):
        if word.endswith(PYTHON_ENDINGS):
            return _as_name(Path(word).stem)
        if before == "-m" and not word.startswith(("torch.distributed", "accelerate")):
            return _as_name(word.rpartition(".")[2])
    return _as_name(Path(words[0]).stem)


def _as_name(text: str) -> str:
    """As part of a folder's name: no separators, blanks or leading dots."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip("-.") or "script"
