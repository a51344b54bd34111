"""Variants of a script: the same one under other arguments or changes, or another script."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torchdoctor.attach.target import COMMAND, Target, read_target
from torchdoctor.errors import UsageError
from torchdoctor.experiments.arguments import Options, plain_name, read_options, set_argument
from torchdoctor.experiments.changes import Changes, read_changes
from torchdoctor.experiments.seed_passing import Passing

ALIASES = {
    "lr": ("lr", "learning_rate", "base_lr", "max_lr"),
    "learning_rate": ("learning_rate", "lr", "base_lr", "max_lr"),
}
PARTS = re.compile(r",(?=\s*(?:[A-Za-z_-][\w.-]*=|fp32\b))")
"""Commas between settings; one inside a value, such as betas=0.9,0.95, is part of it."""


@dataclass(frozen=True)
class Variant:
    """One program that is run under several seeds."""

    name: str
    target: Target
    passing: Passing
    changes: Changes = field(default_factory=Changes)
    settings: tuple[tuple[str, str], ...] = ()
    """what was set over the first variant, by name"""
    how: tuple[str, ...] = ()
    """in words, how each of them was set"""

    @property
    def command(self) -> str:
        """As the user would type it, without what is set inside the process."""
        return shlex.join(self.target.words)


def read_settings(texts: Iterable[str]) -> dict[str, str]:
    """`lr=3e-4`, `clip=1.0,fp32`, in any number, as names and values; fp32 has none."""
    found: dict[str, str] = {}
    for text in texts:
        for part in filter(None, (p.strip() for p in PARTS.split(text))):
            name, equals, value = part.partition("=")
            if not equals and name.lower() != "fp32":
                raise UsageError(f"--with takes NAME=VALUE, such as lr=3e-4 or dropout=0.1, or fp32, not {part!r}")
            found[name.strip()] = value.strip()
    return found


def vary(variant: Variant, options: Options, settings: Mapping[str, str], name: str | None = None) -> Variant:
    """The same with other settings: as an argument where the script has one of that name, and else, for the learning
    rate, clipping and precision, inside its process."""
    words, inside, how = list(variant.target.arguments), [], []
    for given, value in settings.items():
        passed = None if value.endswith("x") and given == "lr" else _as_argument(words, options, given, value)
        if passed is not None:
            words, said = passed
            how.append(said)
            continue
        text = f"{given}={value}" if value else given
        try:
            said = read_changes([text]).words
        except UsageError:
            raise UsageError(_unknown(variant.target, options, given, value)) from None
        if variant.target.kind == COMMAND:
            raise UsageError(f"{given} cannot be set inside a process that {variant.target.what} starts")
        inside.append(text)
        how.append(f"{said}, set inside the process at every update")
    changed = read_changes(inside)
    return replace(
        variant,
        name=name or ", ".join(f"{n}={v}" if v else n for n, v in settings.items()),
        target=replace(variant.target, arguments=tuple(words)),
        changes=changed if inside else variant.changes,
        settings=tuple(settings.items()),
        how=tuple(how),
    )


def read_other(text: str, first: Target) -> tuple[Target, Options]:
    """Another script for --compare. Without arguments of its own it gets those of the first."""
    words = shlex.split(text)
    if not words:
        raise UsageError('--compare takes a script: --compare other.py or --compare "other.py --width 64"')
    target = read_target(words)
    if not target.arguments:
        target = replace(target, arguments=first.arguments)
    return target, read_options(target)


def grid(ranges: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination."""
    return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*ranges.values())]


def name_apart(variants: Sequence[Variant]) -> list[Variant]:
    """With a number where two have the same name."""
    seen: dict[str, int] = {}
    named = []
    for variant in variants:
        seen[variant.name] = count = seen.get(variant.name, 0) + 1
        named.append(variant if count == 1 else replace(variant, name=f"{variant.name} ({count})"))
    return named


def _as_argument(words: list[str], options: Options, name: str, value: str) -> tuple[list[str], str] | None:
    names = ALIASES.get(plain_name(name), (name,))
    for candidate in names:
        changed = set_argument(words, candidate, value)
        if changed is not None:
            return changed, f"{name}={value} as its argument"
    declared = options.find(*names)
    if declared is None:
        return None
    return [*words, *declared.words(value)], f"{declared.flag}={value} ({declared.style})"


def _unknown(target: Target, options: Options, name: str, value: str) -> str:
    known = ", ".join(d.flag for d in options.declared[:12])
    there = f"it has {known}" if known else "no argument was found in its source"
    return (
        f"{target.what} has no argument for {name}={value} ({there}); without one lr=0.001, lr=0.1x, clip=1.0 and fp32 "
        "can be set, or write it among the script's own arguments"
    )
