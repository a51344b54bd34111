"""The process in which a script is checked: it rehearses, hands its loop over, and ends when the last check is made."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import Options
from torchdoctor.attach.script import execute
from torchdoctor.attach.target import Target
from torchdoctor.checks.rehearsal import KEPT, Rehearsal
from torchdoctor.errors import UnknownNameError
from torchdoctor.experiments.shadow import keep_files
from torchdoctor.facts import TRAIN, VALIDATION, SchedulerFact


class Child:
    def __init__(self, request: dict[str, Any], pipe: int) -> None:
        self._quick: bool = request["quick"]
        self._names: list[str] = request["checks"]
        self._pipe = pipe

    def tell(self, **report: Any) -> None:
        """A line of JSON to whoever started this process."""
        os.write(self._pipe, (json.dumps(report) + "\n").encode())

    def end(self, **report: Any) -> NoReturn:
        try:
            self.tell(**report)
        finally:
            os._exit(0)

    def check(self, rehearsal: Rehearsal) -> None:
        """In the thread that checks."""
        from torchdoctor.checks.bottleneck import name_bottleneck
        from torchdoctor.checks.checklist import Checked
        from torchdoctor.checks.performing import choose, perform

        try:
            self.tell_verdict(rehearsal.run)
            bench = _lay_out(rehearsal, self._quick)
            if bench.why_no_loss is None:
                with bench.experiment():
                    bench.subject.outputs(bench.train[0])  # what the loop calls is known from here on
            self.tell(why_not=rehearsal.why_not, epochs=bench.epochs)

            def told(check: Any, made: Checked | None) -> None:
                self.tell(**({"began": check.name} if made is None else {"made": made.to_dict()}))

            chosen = choose(self._quick, self._names)
            self.tell(listed=[{"name": c.check.name, "asks": c.check.asks} for c in chosen])
            perform(bench, chosen, told)
            self.tell(bottleneck=name_bottleneck(bench))
        except UnknownNameError as error:
            self.end(unknown=str(error))
        except BaseException as error:
            self.end(failed=f"{type(error).__name__}: {error}")
        self.end(done=True)

    def tell_verdict(self, run: Any) -> None:
        """What the rules say of the rehearsal: what is proved by structure, since its curves are those of seconds."""
        from torchdoctor.engine import examine
        from torchdoctor.findings import Proof

        verdict = examine(run)
        proved = tuple(f for f in verdict.findings if f.proof is Proof.STRUCTURE)
        self.tell(verdict=replace(verdict, findings=proved).to_dict(), steps=run.steps)


def _lay_out(rehearsal: Rehearsal, quick: bool) -> Any:
    from torchdoctor.checks.bench import Bench
    from torchdoctor.checks.driving import LoopSubject, Undriven
    from torchdoctor.checks.run_length import find_epochs

    session = rehearsal.session
    roots = rehearsal.roots()
    train, validation = rehearsal.loader_of(TRAIN), rehearsal.loader_of(VALIDATION)
    driver = rehearsal.driver or Undriven(rehearsal.why_not or "")
    return Bench(
        subject=LoopSubject(roots[0], driver),
        train=_batches(rehearsal, train),
        validation=_batches(rehearsal, validation),
        train_loader=train,
        validation_loader=validation,
        optimizers=[optimizer for _, optimizer in session.registry.live_optimizers()],
        schedulers=rehearsal.schedulers,
        scalers=list(session.capturing.scalers),
        epochs=find_epochs(rehearsal.frames),
        accumulation=rehearsal.accumulation(),
        step_of_schedule=_stepped_by(rehearsal.run),
        quick=quick,
        why_no_loss=rehearsal.why_not,
        run=rehearsal.run,
    )


def _batches(rehearsal: Rehearsal, loader: Any) -> list[Any]:
    """Those that the script got, or more where its walk was short."""
    from torchdoctor.instruments.batches import first_batches

    held = rehearsal.batches.get(id(loader), [])
    return held if loader is None or len(held) >= KEPT else first_batches(loader, KEPT)


def _stepped_by(run: Any) -> str | None:
    facts = [fact for fact in run.facts(SchedulerFact) if not fact.nested and fact.calls]
    if not facts:
        return None
    apart = [after - before for before, after in pairwise(facts[-1].called_at)]
    return None if not apart else "update" if median(apart) <= 1 else "epoch"


def main(request_file: str) -> int:
    request = json.loads(Path(request_file).read_text())
    pipe = os.open(request["report"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    keep_files(Path(request["scratch"]))
    child = Child(request, pipe)
    options = Options(out=request["scratch"], name="check", capture=(), overhead=1.0, every_step=True)
    attachment = Attachment(options, examines=False)
    wishes = {name: bool(request[name]) for name in ("quick", "cuts", "early")}
    rehearsal = Rehearsal(attachment, **wishes, ready=child.check)
    after_import("torch", rehearsal.prepare)
    attachment.begin()
    after_import("torch", rehearsal.arrange)
    target = Target(request["kind"], request["what"], tuple(request["arguments"]))
    ending = execute(target)
    raised = f"{ending.exception['type']}: {ending.exception['message'][:300]}" if ending.exception else None
    if rehearsal.driver is not None:
        rehearsal.driver.ended(f"the script ended while it was checked ({raised or 'its loop was over'})")
        rehearsal.wait()
    session: Any = attachment.session
    trained = session is not None and session.loop.updates > 0
    if trained:
        session.finish()
        child.tell_verdict(session.record.stored_run())
    child.end(ended=raised or "", trained=trained)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
