"""A checkpoint holds all that the run needs to go on: saved, changed, loaded, and trained on to the same bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.repeats.hidden_state import HiddenState
from torchdoctor.checks.repeats.module_trace import Marks, marks_of
from torchdoctor.checks.repeats.training_state import RANDOM, differing, marks_of_state, tensor_attributes
from torchdoctor.checks.repeats.updating import train
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.state import Randomness, Trained
from torchdoctor.instruments.tables import listed

CHECK = Check(
    name="checkpoint-round-trip",
    asks="a checkpoint holds all that the run needs to go on",
    part=PROCEDURE,
    order=90,
    quick=False,
    diagnoses=("resume-without-state",),
)
UPDATES, FURTHER = 3, 2
SHOWN = 4
DIAGNOSIS = "resume-without-state"
WHOLE = """torch.save({
    "model": model.state_dict(),
    "optimizer": optimizer.state_dict(),
    "scheduler": scheduler.state_dict(),
    "random": torch.get_rng_state(),
    "epoch": epoch,
}, path)"""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped("there is no batch to train on")
    bench.model.train()
    outcome, count = _of_state_dict(bench)
    if outcome is not None:
        return outcome
    if bench.save is not None and bench.load is not None:
        return _of_run(bench, bench.save, bench.load)
    if bench.checkpoints is not None:
        from torchdoctor.checks.script.round_trip import of_script

        outcome, why_not = of_script(bench, bench.checkpoints())
        if outcome is not None:
            return outcome
    else:
        why_not = "save and load were not handed over"
    tried = f"the model's state_dict brings back what {UPDATES} updates have changed ({count} tensors)"
    return skipped(f"of the run only the model was saved and loaded on trial, since {why_not}; {tried}", tensors=count)


# -- the model alone ------------------------------------------------------------------------


def _of_state_dict(bench: Bench) -> tuple[Outcome | None, int]:
    """A model as it was built, given the state of the trained one, has to give the trained one's outputs."""
    model = bench.model
    built, hidden = Trained(model, *bench.optimizers, *bench.schedulers, *bench.scalers), HiddenState(bench)
    loose = {name: marks_of(t) for name, t in tensor_attributes(model)}
    train(bench, UPDATES)
    state = {k: v.detach().clone() if isinstance(v, torch.Tensor) else v for k, v in model.state_dict().items()}
    expected = _outputs(bench)
    trained = {name: marks_of(t) for name, t in tensor_attributes(model)}
    built.put_back()
    hidden.put_back()
    try:
        model.load_state_dict(state)
    except Exception as error:
        return _refused(error), len(state)
    given = _outputs(bench)
    built.put_back()
    hidden.put_back()
    if given == expected:
        return None, len(state)
    changed = [name for name, marks in trained.items() if marks != loose.get(name)]
    return _incomplete(changed), len(state)


def _outputs(bench: Bench) -> Marks:
    """In eval mode, with the same random numbers every time."""
    modes, kept, hidden = [(m, m.training) for m in bench.model.modules()], Randomness(), HiddenState(bench)
    try:
        torch.manual_seed(0)
        bench.model.eval()
        with torch.compiler.set_stance("force_eager"):  # with a graph, which the step may need
            made = bench.subject.outputs(bench.train[0])
        return marks_of(dict(made) if hasattr(made, "keys") else made)
    finally:
        kept.put_back()
        hidden.put_back()
        for module, training in modes:
            module.training = training


def _refused(error: Exception) -> Outcome:
    return failed(
        f"the model does not take its own state_dict: {type(error).__name__}: {str(error).splitlines()[0][:160]}",
        None,
        Fix(
            "Compare the names that state_dict gives with those that load_state_dict asks for; a module that is "
            "replaced or built in forward is in one of them alone.",
            "model.load_state_dict(model.state_dict())",
        ),
    )


def _incomplete(changed: list[str]) -> Outcome:
    named = f": {listed(changed, SHOWN)}" if changed else ""
    return failed(
        "a freshly built model with the trained one's state_dict gives other outputs: training changes what is not in "
        f"it{named}",
        DIAGNOSIS,
        Fix(
            "Register what training changes as a buffer that is saved.",
            f"self.register_buffer({changed[0].rpartition('.')[2]!r}, value)  # persistent=True"
            if changed
            else "self.register_buffer('name', value)",
        ),
        evidence=tuple(f"{name} changes in training and is not in the state_dict" for name in changed[:SHOWN]),
        where=tuple(Place(module=name.rpartition(".")[0] or None) for name in changed[:SHOWN]),
        missing=len(changed),
    )


# -- the whole run --------------------------------------------------------------------------


def _of_run(bench: Bench, save: Callable[[Any], Any], load: Callable[[Any], Any]) -> Outcome:
    train(bench, UPDATES)
    if bench.step_of_schedule != "update":
        step_schedules(bench)
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as folder:
        path = Path(folder) / "checkpoint.pt"
        try:
            _call(save, path)
        except Exception as error:
            return _failing("save", error)
        saved, random = marks_of_state(bench), Randomness()
        expected = train(bench, FURTHER, UPDATES)
        step_schedules(bench)
        after = marks_of_state(bench)
        try:
            _call(load, path)
        except Exception as error:
            return _failing("load", error)
    loaded = marks_of_state(bench)
    lost = {kind: names for kind, names in differing(saved, loaded).items() if kind != RANDOM}
    if lost:
        return _lost(lost, differing(saved, after))
    with_random = saved[RANDOM] == loaded[RANDOM]
    random.put_back()
    going_on = train(bench, FURTHER, UPDATES)
    if going_on != expected:
        return failed(
            f"after the checkpoint was loaded the losses are {going_on}, and {expected} without the break, though "
            "weights, optimizer, schedule and random numbers are the same: something else is kept in the objects",
            DIAGNOSIS,
            Fix(
                "Look for what the model or the loop counts or averages by itself, and put it into the checkpoint.",
                WHOLE,
            ),
            severity=Severity.WARNING,
        )
    kinds = ", ".join(kind for kind, marks in saved.items() if marks and kind != RANDOM)
    told = "" if with_random else "; the random state is not in it, so dropout and shuffling go on otherwise"
    return passed(f"{kinds} come back, and {FURTHER} further updates give the same bits{told}", random=with_random)


def _call(function: Callable[[Any], Any], path: Path) -> None:
    """Some want a path, some a string."""
    try:
        function(path)
    except (TypeError, AttributeError):
        function(str(path))


def step_schedules(bench: Bench) -> None:
    """As at the end of an epoch."""
    for scheduler in bench.schedulers:
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            scheduler.step(1.0)
        else:
            scheduler.step()


def _failing(what: str, error: Exception) -> Outcome:
    return failed(
        f"{what} fails: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}",
        DIAGNOSIS if what == "load" else None,
        Fix(f"Call {what} once by hand and follow the traceback.", f"{what}('checkpoint.pt')"),
    )


def _lost(lost: dict[str, list[str]], could: dict[str, list[str]]) -> Outcome:
    """`could`: what had changed since, and so could be seen not to come back."""
    worst = Severity.ERROR if "weights" in lost or "buffers" in lost else Severity.WARNING
    parts = [f"{kind} ({listed(names, 3)})" for kind, names in lost.items()]
    return failed(
        f"after the checkpoint was loaded these are not what was saved: {'; '.join(parts)}",
        DIAGNOSIS,
        Fix("Save and load all of it.", WHOLE),
        severity=worst,
        evidence=tuple(
            f"{kind}: {len(names)} of the {len(could.get(kind, names))} that had changed since are not put back"
            for kind, names in lost.items()
        ),
        **{kind.replace(" ", "_"): len(names) for kind, names in lost.items()},
    )
