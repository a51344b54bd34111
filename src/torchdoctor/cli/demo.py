"""`torchdoctor demo [CASE]`: the first minute with torchdoctor, on a training from the zoo."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click

from torchdoctor import zoo
from torchdoctor.cli import unknown
from torchdoctor.cli.names import FOLDER
from torchdoctor.console import RenderableType, Text
from torchdoctor.errors import UnknownNameError, UsageError
from torchdoctor.launching import own_module
from torchdoctor.report.sheet import Page, Sheet, hang, show, unbroken
from torchdoctor.report.text import clean
from torchdoctor.rules import catalogue
from torchdoctor.rules.rule import FAMILIES

DEFAULTS = ("missing-zero-grad/mlp", "missing-zero-grad", "learning-rate-too-high", "vanishing-gradients")
"""What is shown when no case is named: the first of these the zoo has; each is known to most people."""


@click.command("demo")
@click.argument("case", required=False)
@click.option("--list", "list_cases", is_flag=True, help="List the cases, by family.")
@click.option("--out", default=str(FOLDER), show_default=True, metavar="DIR", help="Folder for the run.")
def command(case: str | None, list_cases: bool, out: str) -> None:
    """Train a small broken model and show its diagnosis.

    CASE is a name from --list, such as vanishing-gradients/mlp, or a diagnosis.
    """
    if list_cases:
        show(Sheet(_write_list))
        return
    chosen = choose(case)
    click.echo(f"torchdoctor: running {chosen.name}: {chosen.summary}", err=True)
    click.echo(f"torchdoctor: the script is {chosen.path}", err=True)
    status = run_case(chosen, out)
    if status == 0:
        show(Sheet(lambda page, width: _write_next(chosen, out, page)), sys.stderr)
    sys.exit(status)


def run_case(case: zoo.Case, out: str) -> int:
    """Run the script as a user would, and give its status; Ctrl-C is left to the script, whose verdict still comes."""
    command_line = own_module("torchdoctor", "run", "--out", out, str(case.path))
    with subprocess.Popen(command_line, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
    return status if status >= 0 else 128 - status


def choose(name: str | None) -> zoo.Case:
    """The case of that name, or the first of the defaults."""
    cases = zoo.cases()
    names = DEFAULTS if name is None else (name,)
    found = next((c for c in (zoo.find(n, cases) for n in names) if c is not None), None)
    if found is not None:
        return found
    if name is None:
        raise UsageError("the zoo of example trainings is not installed; reinstall torchdoctor")
    known = dict.fromkeys([c.diagnosis for c in cases] + [c.name for c in cases])
    raise UnknownNameError(unknown("case", name, list(known), "torchdoctor demo --list shows them all"))


def _write_next(case: zoo.Case, out: str, page: Page) -> Iterator[RenderableType]:
    where = "" if Path(out) == FOLDER else f" {shlex.quote(out)}"
    others = [c for c in zoo.cases() if c.diagnosis == case.diagnosis and c.healthy != case.healthy]
    twin = min(others, key=lambda c: c.kind != case.kind, default=None)
    yield unbroken("as a page", f"torchdoctor report{where}", page)
    yield unbroken("live page", f"torchdoctor ui{where}", page)
    yield unbroken("script", str(case.path), page)
    if twin is not None:
        yield unbroken("its twin", f"torchdoctor demo {twin.name}", page)
    yield unbroken("more", "torchdoctor demo --list", page)
    yield unbroken("your own", "torchdoctor run train.py", page)
    yield Text()


def _write_list(page: Page, width: int) -> Iterator[RenderableType]:
    families = {r.rule.name: r.rule.family for r in catalogue()}
    order = {family: i for i, family in enumerate(FAMILIES)}
    cases = sorted(zoo.cases(), key=lambda c: order.get(families.get(c.diagnosis, ""), len(order)))
    yield Text()
    for family, group in groupby(cases, key=lambda c: families.get(c.diagnosis, c.diagnosis)):
        yield page.heading(family)
        for case in group:
            name = Text(clean(case.name, page.ascii_only), style="green" if case.healthy else "bold")
            yield hang(Text(page.bullet), Text.assemble(name, "  ", page.line(case.summary)), 4)
        yield Text()
    yield unbroken("run one", "torchdoctor demo NAME", page)
