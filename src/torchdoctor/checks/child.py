"""The process in which a script is checked; it ends when the last check is made."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchdoctor.attach.importing import after_import
from torchdoctor.attach.target import Target
from torchdoctor.checks.script.watch import ScriptWatch
from torchdoctor.errors import UnknownNameError
from torchdoctor.opening import current_folder
from torchdoctor.takeover.child import Child, serve
from torchdoctor.takeover.limits import lift_epochs

if TYPE_CHECKING:
    from torchdoctor.checks.bench import Bench
    from torchdoctor.checks.checklist import Checked
    from torchdoctor.findings import Verdict
    from torchdoctor.run import Run
    from torchdoctor.takeover.rehearsal import Rehearsal


def check(watch: ScriptWatch, child: Child, rehearsal: Rehearsal) -> None:
    from torchdoctor.checks.bottleneck import name_bottleneck
    from torchdoctor.checks.checklist import read_outcome
    from torchdoctor.checks.performing import choose, perform
    from torchdoctor.checks.script.checkpoints import find_checkpoints

    quick: bool = child.request["quick"]
    folders = source_folders(child)
    verdict = prove(rehearsal.run, folders)
    child.tell(verdict=verdict.to_dict(), steps=rehearsal.run.steps)
    bench = lay_bench(rehearsal, quick)
    bench.target = Target(*(child.request[name] for name in ("kind", "what")), tuple(child.request["arguments"]))
    bench.setup, bench.seeded = watch.setup, bool(watch.seeds.calls)
    bench.checkpoints = functools.partial(find_checkpoints, rehearsal.frames, watch.saves, bench)
    bench.outcomes = {made["name"]: read_outcome(made) for made in child.request["made"]}
    if bench.why_no_loss is None:
        with bench.experiment():
            bench.subject.outputs(bench.train[0])  # what the loop calls is known from here on
    child.tell(why_not=rehearsal.why_not, epochs=bench.epochs)

    def told(check: Any, made: Checked | None) -> None:
        if made is None:
            child.tell(began=check.name)
        else:
            child.tell(made=made.fitted((), rehearsal.run, folders).to_dict())

    try:
        chosen = choose(quick, child.request["checks"])
    except UnknownNameError as error:
        child.end(unknown=str(error))
    child.tell(listed=[{"name": c.check.name, "asks": c.check.asks, "part": c.check.part} for c in chosen])
    perform(bench, chosen, told)
    child.tell(bottleneck=name_bottleneck(bench, verdict.findings))


def lay_bench(rehearsal: Rehearsal, quick: bool) -> Bench:
    from torchdoctor.checks.bench import Bench
    from torchdoctor.takeover.parts import lay_out

    return Bench(**vars(lay_out(rehearsal)), quick=quick)


def prove(run: Run, folders: tuple[str, ...]) -> Verdict:
    """What the rules say of the rehearsal: what is proved by structure, since its curves are those of seconds."""
    from torchdoctor.engine import examine
    from torchdoctor.findings import Proof
    from torchdoctor.settings import Settings

    verdict = examine(run, settings=Settings(folders=folders))
    return replace(verdict, findings=tuple(f for f in verdict.findings if f.proof is Proof.STRUCTURE))


def source_folders(child: Child) -> tuple[str, ...]:
    """Return where the script's source may be read: below the current folder and the script's own."""
    target = Target(*(child.request[name] for name in ("kind", "what")))
    return tuple(str(folder) for folder in (current_folder(), *target.source_folders))


def tell_verdict(child: Child, run: Run) -> None:
    child.tell(verdict=prove(run, source_folders(child)).to_dict(), steps=run.steps)


if __name__ == "__main__":
    watch = ScriptWatch()
    watch.place()
    after_import("transformers.trainer", lift_epochs)
    serve(sys.argv[1], functools.partial(check, watch), tell_verdict)
