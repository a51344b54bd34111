"""Our pages put together: templates that escape what runs hold, and the static files they name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from torchdoctor import __version__
from torchdoctor.report.template import environment as report_environment
from torchdoctor.report.template import part, plotly_script

SCRIPT, STYLE = "text/javascript", "text/css"
OURS = dict.fromkeys(("ui.css", "lab.css", "gallery.css"), STYLE) | dict.fromkeys(
    (
        *("list.js", "run.js", "captures.js", "speaking.js", "linked.js", "compare.js"),
        *("lab.js", "following.js", "gallery.js", "marking.js", "curve.js", "quiz.js", "clipping.js"),
    ),
    SCRIPT,
)
SHARED = {"page.css": STYLE, "charts.js": SCRIPT, "copy.js": SCRIPT}
"""What the report has, too."""
PLOTLY = "plotly.js"


@dataclass(frozen=True)
class Static:
    body: bytes
    kind: str
    version: str


@cache
def static_file(name: str) -> Static | None:
    """One of a fixed list: nothing is looked up by a name that somebody sent."""
    if name in OURS:
        text, kind = _read("static", name), OURS[name]
    elif name in SHARED:
        text, kind = part(name), SHARED[name]
    elif name == PLOTLY:
        text, kind = plotly_script(), SCRIPT
    else:
        return None
    body = text.encode()
    return Static(body, kind, hashlib.blake2b(body, digest_size=8).hexdigest())


def address_of(name: str) -> str:
    """With its contents' hash, so that browsers may keep it for good."""
    found = static_file(name)
    return f"/static/{found.version}/{name}" if found else ""


def prepare() -> None:
    """What takes a while the first time: templates are translated, Plotly's script is read."""
    for name in ("base", "list", "rows", "run", "run-parts", "parts", "kept"):
        environment().get_template(f"{name}.html.j2")
    static_file(PLOTLY)


def render(page: str, **values: Any) -> str:
    return str(environment().get_template(page).render(**values))


@cache
def environment() -> Any:
    from jinja2 import FunctionLoader

    found = report_environment().overlay(loader=FunctionLoader(_template))
    found.globals = {**found.globals, "static": address_of, "version": __version__}
    found.filters = {**found.filters, "segment": lambda name: quote(name, safe="")}
    return found


def render_macro(template: str, macro: str, *values: Any) -> str:
    """One part of a page, for an answer that renews it."""
    return str(getattr(environment().get_template(template).module, macro)(*values))


def render_part(macro: str, *values: Any) -> str:
    """One macro of the parts that make up a run's page."""
    return render_macro("run-parts.html.j2", macro, *values)


def _template(name: str) -> str:
    return part(name) if name in ("parts.html.j2", "kept.html.j2") else _read("pages", name)


@cache
def _read(folder: str, name: str) -> str:
    return files("torchdoctor.ui").joinpath(folder, name).read_text(encoding="utf-8")
