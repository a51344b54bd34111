"""The templates, styles and scripts of our pages; the report and the live page share them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from torchdoctor.scrubbing import may_hold_secret, scrub, scrub_text


@cache
def environment() -> Any:
    """Whatever a run holds is escaped where it is put in, and free of secrets."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(part),
        finalize=lambda value: scrub_text(value) if type(value) is str else value,  # not of markup, which is ours
    )


@cache
def part(name: str) -> str:
    """A file of report/page."""
    return files("torchdoctor.report").joinpath("page", name).read_text(encoding="utf-8")


@cache
def plotly_script() -> str:
    """The script that comes in Plotly's wheel."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def embedded(data: Any) -> str:
    """JSON that cannot end its script element, whatever names a run holds."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    if may_hold_secret(text):
        text = json.dumps(scrub(data, names=False), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
