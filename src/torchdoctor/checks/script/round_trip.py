"""The round trip of a checkpoint through a script's own code: saved, begun anew, resumed, and trained on."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed, passed
from torchdoctor.checks.checkpoint_round_trip import DIAGNOSIS, FURTHER, UPDATES, step_schedules
from torchdoctor.checks.repeats.training_state import BUFFERS, OPTIMIZER, RANDOM, SCALER, SCHEDULE, WEIGHTS
from torchdoctor.checks.repeats.updating import train
from torchdoctor.checks.script.checkpoints import Moment, ScriptCheckpoints, Trial, Trials, is_too_large
from torchdoctor.checks.script.loading import Load
from torchdoctor.checks.script.saving import Save
from torchdoctor.checks.script.source import Names
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.tables import listed

NAMES = {WEIGHTS: "model", BUFFERS: "model", OPTIMIZER: "optimizer", SCHEDULE: "scheduler", SCALER: "scaler"}
"""Of objects and of keys, in code to paste."""


def of_script(bench: Bench, found: ScriptCheckpoints) -> tuple[Outcome | None, str]:
    """What came of it, or in words why nothing did."""
    if why_not := _why_not(found):
        return None, why_not
    start = Moment(bench)
    train(bench, UPDATES)
    if bench.step_of_schedule != "update":
        step_schedules(bench)
    if is_too_large(bench):
        return None, "the script's own checkpoint is too large to be written for a trial"
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as folder:
        trials = Trials(bench, start, Path(folder))
        tried = trials.perform(found)
        done = sorted((t for t in tried if t.error is None), key=lambda t: len(t.lost))
        if not done:
            return _broken(tried, found)
        return (_lost(bench, done[0]) if done[0].lost else _whole(bench, done[0], trials)), ""


def place_of(code: Save | Load) -> str:
    return f"{Path(code.place.file or '').name}:{code.place.line}"


def _why_not(found: ScriptCheckpoints) -> str | None:
    if found.owner is not None and not (found.saves and found.loads):
        return f"checkpoints are those of {found.owner} here, and were not tried"
    if not found.saves and not found.loads:
        return "no code of the script's that saves or resumes was found"
    if not found.saves:
        return f"the script resumes at {place_of(found.loads[0])}, and no code that saves was found"
    if not found.loads:
        return f"the script saves at {place_of(found.saves[0])}, and no code that resumes from it was found"
    return None


# -- what came of it ------------------------------------------------------------------------------------


def _whole(bench: Bench, trial: Trial, trials: Trials) -> Outcome:
    kinds = ", ".join(kind for kind, marks in trials.saved.items() if marks and kind != RANDOM)
    kinds = kinds if trial.same else "weights and what else is loaded"
    told = "" if trial.random else "; the random state is not in it, so dropout and shuffling go on otherwise"
    way = f"{kinds} come back by way of {place_of(trial.save)} and {place_of(trial.load)}"
    expected, again = (_go_on(bench, trials.now.put_back) for _ in range(2))
    if not trial.same or expected != again:  # a loop that does not repeat itself cannot tell
        return passed(f"{way}{told}", random=trial.random)

    def resume() -> None:
        trial.again()
        trials.now.put_back_random()

    going_on = _go_on(bench, resume)
    if going_on != expected:
        return failed(
            f"after a resume ({place_of(trial.load)}) the losses are {going_on}, and {expected} without the break, "
            "though weights, optimizer, schedule and random numbers are the same: something else is kept in the "
            "objects",
            DIAGNOSIS,
            Fix("Look for what the model counts or averages by itself, and put it into the checkpoint."),
            severity=Severity.WARNING,
            where=(trial.load.place, trial.save.place),
        )
    return passed(f"{way}, and {FURTHER} further updates give the same bits{told}", random=trial.random)


def _go_on(bench: Bench, begin: Callable[[], None]) -> list[float]:
    begin()
    bench.model.train()
    return train(bench, FURTHER, UPDATES)


def _lost(bench: Bench, trial: Trial) -> Outcome:
    lost, holds = trial.lost, trial.holds
    parts = [f"{kind} ({listed(names, 3)})" for kind, names in lost.items()]
    worst = Severity.ERROR if WEIGHTS in lost or BUFFERS in lost else Severity.WARNING
    missing = [kind for kind in lost if kind not in holds and kind != BUFFERS]
    called = {NAMES[kind]: _name_of(kind, bench, trial.save.scope.names) for kind in lost}
    saving = ", ".join(f'"{key}": {name}.state_dict()' for key, name in called.items())
    code = [f"torch.save({{..., {saving}}}, path)"] if missing else []
    code += [f'{name}.load_state_dict(checkpoint["{key}"])' for key, name in called.items()]
    return failed(
        f"a training that is resumed at {place_of(trial.load)} from what {place_of(trial.save)} saves goes on without "
        f"its {' and '.join(parts)}",
        DIAGNOSIS,
        Fix("Save and load all of it." if missing else "Load all that is saved.", "\n".join(code)),
        severity=worst if trial.load.certain else Severity.INFO,
        evidence=(
            f"that this load is a resume is known since {trial.load.why}",
            *(f"{kind}: {'not in the file' if kind in missing else 'in the file, and not loaded'}" for kind in lost),
        ),
        where=(trial.load.place, trial.save.place),
        **{kind.replace(" ", "_"): len(names) for kind, names in lost.items()},
    )


def _name_of(kind: str, bench: Bench, names: Names) -> str:
    """By which the script calls the object of that kind."""
    objects = {OPTIMIZER: bench.optimizers, SCHEDULE: bench.schedulers, SCALER: bench.scalers}.get(kind, [bench.model])
    known = {**{f"self.{k}": v for k, v in getattr(names.get("self"), "__dict__", {}).items()}, **names}
    return next((name for name, value in known.items() if any(value is o for o in objects)), NAMES[kind])


def _broken(tried: list[Trial], found: ScriptCheckpoints) -> tuple[Outcome | None, str]:
    """A load that cannot read what the script saves is a fault where both are surely meant for each other."""
    load = place_of(found.loads[0])
    trial = next((t for t in tried if t.error is not None), None)
    if trial is None:
        return None, f"the resume at {load} loads into objects of its own, and could not be tried"
    told = f"{type(trial.error).__name__}: {(str(trial.error).splitlines() or [''])[0][:160]}"
    if not trial.load.certain or OPTIMIZER not in trial.holds or not _is_of_file(trial.error):
        return None, f"the resume at {load} could not be tried by itself ({told})"
    return failed(
        f"the resume at {load} fails on what {place_of(trial.save)} saves: {told}",
        DIAGNOSIS,
        Fix(
            "Start the script once with a checkpoint that it has written, and follow the traceback; keys have to be "
            "the same in save and load, and what is neither tensor nor plain value needs weights_only=False.",
        ),
        severity=Severity.WARNING,
        where=(trial.load.place, trial.save.place),
    ), ""


def _is_of_file(error: BaseException | None) -> bool:
    """It says of the file that it cannot be read, or that a key is not in it."""
    return isinstance(error, pickle.UnpicklingError) or (
        isinstance(error, KeyError) and bool(error.args) and isinstance(error.args[0], str)
    )
