"""A rule with other thresholds: its module executed once more, with the named constants set.

The module that everybody shares stays as it is, so two settings can stand side by side in one process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from torchdoctor.rules.rule import LoadedRule


def adjust(loaded: LoadedRule, values: Mapping[str, float]) -> LoadedRule:
    """The same rule with these constants of its module; KeyError where it has none of that name."""
    if not values:
        return loaded
    spec = importlib.util.find_spec(loaded.detect.__module__)
    if spec is None or spec.loader is None:
        raise KeyError(loaded.rule.name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in values.items():
        old = vars(module)[name]
        setattr(module, name, int(value) if isinstance(old, int) and float(value).is_integer() else value)
    return LoadedRule.from_module(module)
