"""Every check in turn, each leaving the bench as it found it."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter

from torchdoctor import checks
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PARTS, Check, LoadedCheck, Outcome, skipped
from torchdoctor.checks.checklist import Checked
from torchdoctor.errors import UnknownNameError
from torchdoctor.takeover.driving import LoopEndedError

log = logging.getLogger("torchdoctor")


@cache
def all_checks() -> tuple[LoadedCheck, ...]:
    """One for each module of this package that holds a CHECK."""
    modules = [importlib.import_module(f"{checks.__name__}.{m.name}") for m in pkgutil.iter_modules(checks.__path__)]
    found = [LoadedCheck(m.CHECK, m.perform) for m in modules if isinstance(getattr(m, "CHECK", None), Check)]
    return tuple(sorted(found, key=lambda c: (PARTS.index(c.check.part), c.check.order, c.check.name)))


def choose(quick: bool, only: Sequence[str] = ()) -> list[LoadedCheck]:
    known = {c.check.name for c in all_checks()}
    for name in only:
        if name not in known:
            raise UnknownNameError(f"there is no check {name!r}; there are {', '.join(sorted(known))}")
    return [c for c in all_checks() if (c.check.name in only if only else c.check.quick or not quick)]


def perform(
    bench: Bench, chosen: Sequence[LoadedCheck], tell: Callable[[Check, Checked | None], None] = lambda *_: None
) -> list[Checked]:
    """`tell` is called as each begins, and again with what it said. A script's loop that ends at another than the first
    ends the work: in a new process it may get through."""
    done: list[Checked] = []
    for loaded in chosen:
        tell(loaded.check, None)
        begun = perf_counter()
        try:
            outcome = _perform(loaded, bench)
        except LoopEndedError as error:
            if done:
                raise
            outcome = skipped(str(error))
        bench.outcomes[loaded.check.name] = outcome
        done.append(Checked(loaded.check, outcome, perf_counter() - begun))
        tell(loaded.check, done[-1])
    return done


def _perform(loaded: LoadedCheck, bench: Bench) -> Outcome:
    if loaded.check.needs_loss and bench.why_no_loss is not None:
        return skipped(bench.why_no_loss)
    try:
        with bench.experiment():
            return loaded.perform(bench)
    except LoopEndedError:
        raise
    except Exception as error:
        log.debug("check %s failed", loaded.check.name, exc_info=True)
        return skipped(f"could not be examined: {type(error).__name__}: {str(error)[:200]}")
