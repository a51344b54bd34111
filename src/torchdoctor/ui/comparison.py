"""Two runs side by side: what differs in configuration, curves and findings."""

from __future__ import annotations

from collections.abc import Sequence

from torchdoctor.report.html import describe
from torchdoctor.report.template import embedded
from torchdoctor.report.text import clean
from torchdoctor.telling import tell_apart
from torchdoctor.ui.library import Library
from torchdoctor.ui.templates import render


def compare_page(library: Library, names: Sequence[str], place: str = "") -> str:
    opened = [library.tell_now(name) for name in names]
    found = tell_apart(opened)
    labelled = zip(opened, names, found.names, strict=True)
    told = [{**describe(each.told, "both"), "address": name, "name": label} for each, name, label in labelled]
    title = " and ".join(clean(each.told.name) for each in opened)
    charts = embedded({chart.name: chart.to_json() for chart in found.charts})
    return render("compare.html.j2", title=title, runs=told, comparison=found, charts=charts, place=place)
