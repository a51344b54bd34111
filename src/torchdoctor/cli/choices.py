"""Options that `run` and `diagnose` share: which rules are asked and how, and how the verdict is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

FORMATS = ("text", "json", "markdown", "sarif", "github")

OPTIONS = (
    click.option("--select", metavar="NAME", multiple=True, help="Ask these only: names, codes, D, A0, families."),
    click.option("--ignore", metavar="NAME", multiple=True, help="Do not ask these."),
    click.option("--severity", metavar="NAME=S", multiple=True, help="How grave it is: error, warning or info."),
    click.option("--threshold", metavar="NAME.T=X", multiple=True, help="Set a rule's threshold: dead-relu.least=0.7."),
    click.option("--config", metavar="FILE", help="Settings; by default the nearest pyproject.toml that has any."),
    click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="How the verdict is written."),
    click.option("--output", "-o", metavar="FILE", help="Write it in that format to a file."),
)


def write_flags(
    select: Sequence[str],
    ignore: Sequence[str],
    severity: Sequence[str],
    threshold: Sequence[str],
    config: str | None,
) -> tuple[str, ...]:
    """The options of the settings as they were given, to be given again."""
    given = {"--select": select, "--ignore": ignore, "--severity": severity, "--threshold": threshold}
    words = [word for option, values in given.items() for value in values for word in (option, value)]
    return (*words, *(("--config", config) if config is not None else ()))


def with_choices(command: C) -> C:
    """Add these options to a command's function, in this order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
