"""`torchdoctor explain NAME`: a diagnosis' own docs, or a symptom's causes, in the terminal. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import click
from rich.markdown import Markdown

from torchdoctor import symptoms, zoo
from torchdoctor.cli import unknown
from torchdoctor.console import RenderableType, Text
from torchdoctor.errors import UnknownNameError
from torchdoctor.report.sheet import Page, Sheet, hang, indent, labelled, show, title, unbroken
from torchdoctor.report.text import clean_block, listed
from torchdoctor.rules import LoadedRule, catalogue, find
from torchdoctor.rules.rule import name_of

CODE_THEME = "bw"
"""Pygments' plainest: a code block must read on a dark and on a light terminal."""


@click.command("explain")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Say what a diagnosis means, why it happens, how it is detected, and how to fix it.

    NAME is a diagnosis by name (vanishing-gradients) or code (A001), or a symptom (nan-later, flat-from-start): then
    its causes are walked in the order to test them. Without NAME all of both are listed.
    """
    show(Sheet(_write_list) if name is None else explain(name))


def explain(name: str) -> Sheet:
    """The sheet on one diagnosis or symptom; an error with close names where there is none."""
    wanted = name.strip().replace("_", "-")
    loaded, symptom = find(wanted), symptoms.find(wanted.lower())
    if loaded is not None:
        return Sheet(lambda page, width: _write_rule(loaded, page, width))
    if symptom is not None:
        return Sheet(lambda page, width: _write_symptom(symptom, page, width))
    known = [n for r in catalogue() for n in (r.rule.name, r.rule.code.lower())] + symptoms.names()
    raise UnknownNameError(unknown("diagnosis or symptom", name, known, "torchdoctor explain lists them all"))


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
    needs = [name_of(need) for need in rule.reads]
    if needs:
        yield labelled("it reads", listed(needs, most=8), page)
    if rule.explains:
        yield labelled("may cause", listed(rule.explains, most=8), page)
    causes = [r.rule.name for r in catalogue() if rule.name in r.rule.explains]
    if causes:
        yield labelled("may follow", listed(causes, most=8), page)
    seen_as = symptoms.of_cause(rule.name)
    if seen_as:
        yield labelled("is seen as", listed(seen_as, most=8), page)
    case = zoo.find(rule.name)
    if case is not None:
        yield unbroken("see it", f"torchdoctor demo {case.name}", page)
    yield Text()


def _write_symptom(symptom: symptoms.Symptom, page: Page, width: int) -> Iterator[RenderableType]:
    yield Text()
    yield title(f"{', '.join(symptom.names)} (symptom)", page, width)
    yield Text()
    yield indent(page.line(symptom.seen, "bold"), 2)
    yield Text()
    yield page.heading("Check first")
    yield indent(page.line(symptom.check), 4)
    yield Text()
    yield page.heading("What may be behind it, in the order to test")
    for number, cause in enumerate(symptom.causes, 1):
        loaded = find(cause)
        code = f" ({loaded.rule.code})" if loaded else ""
        words = page.line(loaded.title if loaded else "not examined by this version")
        yield hang(Text(f"{number}."), Text.assemble((cause, "bold"), f"{code}  ", words), 4)
    yield Text()
    yield page.heading("The usual way out")
    yield indent(page.line(symptom.way_out), 4)
    yield Text()
    yield unbroken("read one", f"torchdoctor explain {symptom.causes[0]}", page)
    yield unbroken("in a run", "torchdoctor run train.py", page)
    yield Text()


def _write_list(page: Page, width: int) -> Iterator[RenderableType]:
    yield Text()
    for family, rules in groupby(catalogue(), key=lambda r: r.rule.family):
        yield page.heading(family)
        for loaded in rules:
            words = Text.assemble((loaded.rule.name, "bold"), "  ", page.line(loaded.title))
            yield hang(Text(loaded.rule.code), words, 4)
        yield Text()
    yield page.heading("symptoms")
    for symptom in symptoms.TABLE:
        yield hang(Text(page.bullet), Text.assemble((symptom.name, "bold"), "  ", page.line(symptom.seen)), 4)
    yield Text()
    yield unbroken("read one", "torchdoctor explain NAME", page)
