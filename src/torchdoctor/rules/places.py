"""Where the user's code calls something, and how it spells it, so that a fix can be pasted as it stands."""

from __future__ import annotations

import re

from torchdoctor.facts import CallSiteFact
from torchdoctor.findings import Place
from torchdoctor.run import Run


def call_site(run: Run, call: str) -> CallSiteFact | None:
    """The last known place of that call (backward, step, zero_grad, clip, eval, train, scheduler)."""
    return next((f for f in reversed(run.facts(CallSiteFact)) if f.call == call), None)


def call_places(run: Run, *calls: str) -> tuple[Place, ...]:
    """Places of these calls, as far as they are known."""
    found = (call_site(run, call) for call in calls)
    return tuple(Place(file=site.file, line=site.line) for site in found if site)


def receiver(run: Run, call: str, default: str) -> str:
    """What stands before `.call(` in the user's own line, such as `self.optimizer`; else the default.

    A gradient scaler steps for the optimizer that it is given.
    """
    site = call_site(run, call)
    scaled = re.search(r"scaler\.step\(\s*([A-Za-z_][\w.]*)", site.code) if site and call == "step" else None
    if scaled:
        return scaled.group(1)
    match = re.search(rf"([A-Za-z_][\w.]*(?:\[[^\]]*\])?)\.{re.escape(call)}\(", site.code) if site else None
    return match.group(1) if match else default


def known(*places: Place) -> tuple[Place, ...]:
    """Those that say anything, each once."""
    said = [p for p in places if p != Place()]
    return tuple(dict.fromkeys(said))
