"""`torchdoctor explain NAME`: a diagnosis' own docs in the terminal. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click
from rich.console import RenderableType
from rich.markdown import Markdown
from rich.text import Text

from torchdoctor import zoo
from torchdoctor.cli import unknown
from torchdoctor.errors import UnknownNameError
from torchdoctor.report.sheet import Page, Sheet, hang, indent, labelled, show, title, unbroken
from torchdoctor.report.text import clean_block, listed
from torchdoctor.rules import LoadedRule, catalogue, find
from torchdoctor.signals import Signal

CODE_THEME = "bw"
"""Pygments' plainest: a code block must read on a dark and on a light terminal."""


@click.command("explain")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Say what a diagnosis means, why it happens, how it is detected, and how to fix it.

    NAME is a diagnosis by name (vanishing-gradients) or code (A001). Without NAME all of them are listed.
    """
    show(Sheet(_write_list) if name is None else explain(name))


def explain(name: str) -> Sheet:
    """The sheet on one diagnosis; an error with close names where there is none."""
    loaded = find(name.strip().replace("_", "-"))
    if loaded is None:
        known = [n for r in catalogue() for n in (r.rule.name, r.rule.code.lower())]
        raise UnknownNameError(unknown("diagnosis", name, known, "torchdoctor explain lists them all"))
    return Sheet(lambda page, width: _write_rule(loaded, page, width))


def _write_rule(loaded: LoadedRule, page: Page, width: int) -> Iterator[RenderableType]:
    rule = loaded.rule
    yield Text()
    yield title(f"{rule.name} ({rule.code}, {rule.family})", page, width)
    yield Text()
    yield indent(page.line(loaded.title, "bold"), 2)
    for heading, body in loaded.sections.items():
        if not body:
            continue
        yield Text()
        yield page.heading(heading)
        yield indent(Markdown(clean_block(body, page.ascii_only), code_theme=CODE_THEME), 4)
    yield Text()
    needs = [need.name if isinstance(need, Signal) else need.kind for need in rule.needs]
    if needs:
        yield labelled("it reads", listed(needs, most=8), page)
    if rule.explains:
        yield labelled("may cause", listed(rule.explains, most=8), page)
    causes = [r.rule.name for r in catalogue() if rule.name in r.rule.explains]
    if causes:
        yield labelled("may follow", listed(causes, most=8), page)
    case = zoo.find(rule.name)
    if case is not None:
        yield unbroken("see it", f"torchdoctor demo {case.name}", page)
    yield Text()


def _write_list(page: Page, width: int) -> Iterator[RenderableType]:
    yield Text()
    for family, rules in groupby(catalogue(), key=lambda r: r.rule.family):
        yield page.heading(family)
        for loaded in rules:
            words = Text.assemble((loaded.rule.name, "bold"), "  ", page.line(loaded.title))
            yield hang(Text(loaded.rule.code), words, 4)
        yield Text()
    yield unbroken("read one", "torchdoctor explain NAME", page)
