"""Which options a script takes, read off its source without running it, and how one is given another value.

The script and the modules beside it that it imports are read. argparse, click, absl and jsonargparse declare options by
their names; typer, Fire, tyro, simple-parsing and Hugging Face's parser take them from parameters and fields; Hydra
takes NAME=VALUE.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchdoctor.attach.target import Target
from torchdoctor.experiments.sources import read_sources

DECLARING = frozenset(
    [
        *("add_argument", "option", "Option", "DEFINE_integer", "DEFINE_float", "DEFINE_string", "DEFINE_bool"),
        *("DEFINE_boolean", "DEFINE_enum"),
    ]
)
"""Calls whose strings are the names of options; absl's without dashes."""
PARSING = frozenset(
    ["Fire", "run", "cli", "CLI", "auto_cli", "HfArgumentParser", "parse", "add_arguments", "entrypoint"]
)
"""Calls that make options of the parameters of a function, or the fields of a dataclass, that they are given ..."""
PARSERS = ("fire", "typer", "tyro", "simple_parsing", "transformers", "trl", "jsonargparse")
"""... in programs that import one of these."""
FILES_READ = 24


@dataclass(frozen=True)
class Declared:
    """One option, and where it is declared."""

    flag: str
    """as it is written on the command line: --lr, or lr for Hydra's lr=0.1"""
    style: str
    """argparse, click, ..."""
    file: str
    line: int

    @property
    def name(self) -> str:
        return plain_name(self.flag)

    def words(self, value: str) -> list[str]:
        """One word, so that a value may begin with a dash; two for a flag of one letter, which takes no equals sign."""
        short = self.flag.startswith("-") and not self.flag.startswith("--")
        return [self.flag, value] if short else [f"{self.flag}={value}"]

    def __str__(self) -> str:
        return f"{self.flag} ({self.style}, {Path(self.file).name}:{self.line})"


@dataclass(frozen=True)
class Options:
    """All that were found; `read` are the environment variables that the source reads, and where."""

    declared: tuple[Declared, ...] = ()
    read: dict[str, str] = field(default_factory=dict)

    def find(self, *names: str) -> Declared | None:
        """The first of these names that there is, however dashes, underscores and capitals are set."""
        for name in map(plain_name, names):
            found = next((d for d in self.declared if d.name == name), None)
            if found is not None:
                return found
        return None


def plain_name(text: str) -> str:
    return text.lstrip("-").replace("-", "_").lower()


def read_options(target: Target) -> Options:
    """Of what the user wants to run; nothing where its source is not at hand."""
    declared: list[Declared] = []
    read: dict[str, str] = {}
    sources = list(read_sources(target, FILES_READ))
    modules = {m.partition(".")[0] for _, tree in sources for m in _modules(tree)}
    parser = next((m for m in PARSERS if m in modules), None)
    parsed = {name for _, tree in sources for name in _parsed(tree)} if parser else set()
    for path, tree in sources:
        for node in ast.walk(tree):
            declared += _from_call(node, str(path))
            declared += _from_parameters(node, str(path), parser or "", parsed)
            declared += _from_hydra(node, str(path)) if "hydra" in modules else ()
        read.update({name: f"{path.name}:{line}" for name, line in _environment(tree)})
    first: dict[str, Declared] = {}
    for one in declared:
        first.setdefault(one.name, one)
    return Options(tuple(first.values()), read)


def set_argument(words: Sequence[str], name: str, value: str) -> list[str] | None:
    """The words with another value for an option that is among them: `--lr 0.1`, `--lr=0.1` or `lr=0.1`; None if it is
    not. Of several the last counts, and that one is changed."""
    given = list(words)
    wanted = plain_name(name)
    for i in range(len(given) - 1, -1, -1):
        flag, equals, _ = given[i].partition("=")
        if plain_name(flag) != wanted:
            continue
        if equals:
            given[i] = f"{flag}={value}"
            return given
        if flag.startswith("-") and i + 1 < len(given):
            given[i + 1] = value
            return given
    return None


def _parsed(tree: ast.Module) -> Iterator[str]:
    """Names of functions and classes that are handed to a parser, or decorated as commands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in PARSING:
            inside = [n for a in node.args for n in ast.walk(a)]
            yield from (n.id for n in inside if isinstance(n, ast.Name))
        elif isinstance(node, ast.FunctionDef) and any(".command" in ast.unparse(d) for d in node.decorator_list):
            yield node.name


def _from_parameters(node: ast.AST, file: str, parser: str, parsed: set[str]) -> Iterator[Declared]:
    if isinstance(node, ast.FunctionDef) and node.name in parsed:
        for argument in (*node.args.args, *node.args.kwonlyargs):
            yield Declared(f"--{argument.arg}", parser, file, argument.lineno)
    elif isinstance(node, ast.ClassDef) and node.name in parsed:
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                yield Declared(f"--{line.target.id}", parser, file, line.lineno)


def _from_call(node: ast.AST, file: str) -> Iterator[Declared]:
    if not isinstance(node, ast.Call):
        return
    name = _called(node)
    if name == "LightningCLI":
        yield Declared("--seed_everything", "LightningCLI", file, node.lineno)
    if name == "HfArgumentParser" and any("TrainingArguments" in ast.unparse(a) for a in node.args):
        yield from (Declared(f"--{n}", "TrainingArguments", file, node.lineno) for n in ("seed", "learning_rate"))
    if name not in DECLARING:
        return
    words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name.startswith("DEFINE"):
        yield from (Declared(f"--{w}", "absl", file, node.lineno) for w in words[:1])
        return
    style = "argparse" if name == "add_argument" else "typer" if name == "Option" else "click"
    long = [part for w in words for part in w.split("/") if part.startswith("--")]
    short = [w for w in words if re.fullmatch(r"-[A-Za-z]\w*", w)]
    for flag in long or short[:1]:
        yield Declared(flag, style, file, node.lineno)


def _from_hydra(node: ast.AST, file: str) -> Iterator[Declared]:
    """cfg.optimizer.lr is set by optimizer.lr=..."""
    if not isinstance(node, ast.Attribute):
        return
    text = ast.unparse(node)
    base, _, rest = text.partition(".")
    if base in ("cfg", "config", "conf", "args") and re.fullmatch(r"[\w.]+", rest):
        yield Declared(rest, "Hydra", file, node.lineno)


def _environment(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """os.environ["X"], os.environ.get("X"), os.getenv("X"): the names, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            key: ast.expr | None = node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("environ.get", "getenv")):
            key = next(iter(node.args), None)
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, node.lineno


def _called(node: ast.Call) -> str:
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
