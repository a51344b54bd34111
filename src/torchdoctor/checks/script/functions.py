"""Functions of a script's that load a checkpoint, and that nobody has called on the way to its loop."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from torchdoctor.attach.places import is_user_file
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.script.loading import LOADER, Load, Way, loads, puts_progress
from torchdoctor.checks.script.options import PATH
from torchdoctor.checks.script.redirection import Redirection
from torchdoctor.checks.script.source import Names, Scope, Search, scope_of
from torchdoctor.findings import Place


def find_uncalled(scopes: list[Scope], bench: Bench) -> Iterator[Load]:
    """A function or a method that loads model and optimizer, where its arguments are known by their names."""
    loading, progress = Search(loads), Search(puts_progress)
    for function, holder in _functions(scopes):
        scope = scope_of(function.__code__, {**function.__globals__, "self": holder})
        if scope is None or not LOADER.search(function.__name__):
            continue
        if not all(any(search.finds_here(s, scope.names) for s in scope.body) for search in (loading, progress)):
            continue
        yield Load(
            Place(file=scope.file, line=function.__code__.co_firstlineno),
            (_matched(function, holder, scopes, bench),),
            "more than a model is loaded",
            certain=False,
        )


def _functions(scopes: list[Scope]) -> Iterator[tuple[FunctionType, Any]]:
    """Methods of the user's objects around the loop, and functions of the user's modules."""
    held = {id(v): v for scope in scopes for v in list(scope.names.values()) if not isinstance(v, ModuleType | type)}
    for value in held.values():
        file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
        if isinstance(file, str) and is_user_file(file):
            yield from ((f, value) for f in vars(type(value)).values() if isinstance(f, FunctionType))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_user_file(file):
            yield from ((f, None) for f in list(vars(module).values()) if isinstance(f, FunctionType))


def _matched(function: FunctionType, holder: Any, scopes: list[Scope], bench: Bench) -> Way:
    def load(redirection: Redirection) -> None:
        given: Names = {}
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters[1 if holder is not None else 0 :]:
            found = _match(parameter.name, scopes, bench, redirection.path)
            if found is not None:
                given[parameter.name] = found
            elif parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                raise LookupError(f"what {function.__name__} takes as {parameter.name} is not known")
        function(*([holder] if holder is not None else []), **given)

    return load


def _match(name: str, scopes: list[Scope], bench: Bench, path: str) -> Any:
    known = next((s.names[name] for s in scopes if s.names.get(name) is not None), None)
    if known is not None and not isinstance(known, str | os.PathLike):
        return known
    roles: list[tuple[str, list[Any]]] = [
        (r"sched", bench.schedulers),
        (r"optim|^opt$", list(bench.optimizers)),
        (r"scaler", bench.scalers),
        (r"^(model|net|network|module)$", [bench.model]),
        (r"device|location", [bench.subject.device]),
        (PATH.pattern, [path]),
    ]
    return next((held[0] for words, held in roles if re.search(words, name, re.I) and held), known)
