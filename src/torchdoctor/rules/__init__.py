"""The diagnoses: one file each, found by themselves. `catalogue()` gives them all, in the order of search."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from torchdoctor.rules.rule import FAMILIES, LoadedRule, Rule

__all__ = ["LoadedRule", "Rule", "catalogue", "find"]


@cache
def catalogue() -> tuple[LoadedRule, ...]:
    """Every rule: by family in the order of FAMILIES, then by code."""
    found: list[LoadedRule] = []
    for family in FAMILIES:
        package = importlib.import_module(f"torchdoctor.rules.{family}")
        for entry in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{entry.name}")
            if hasattr(module, "RULE"):
                found.append(LoadedRule.from_module(module))
    return tuple(sorted(found, key=lambda r: (FAMILIES.index(r.rule.family), r.rule.code)))


def find(name: str) -> LoadedRule | None:
    """The rule with that name or code."""
    return next((r for r in catalogue() if name.lower() in (r.rule.name, r.rule.code.lower())), None)
