"""Train and eval mode differ as they should: eval is the same every time, dropout drops in training and only there."""

from __future__ import annotations

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.mode_calls import ModeCall
from torchdoctor.checks.model.mode_gap import judge_gap
from torchdoctor.checks.model.mode_modules import Sensitive, StepModes, judge_settings, sensitive_of
from torchdoctor.checks.model.mode_passes import ModelCall, Pass
from torchdoctor.checks.model.records import worst_of
from torchdoctor.checks.repeats.module_trace import Call, first_difference, mark_of
from torchdoctor.checks.repeats.updating import nudge
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.tables import listed

CHECK = Check(
    name="mode-switch",
    asks="train and eval mode differ as they should",
    part=MODEL,
    order=60,
    diagnoses=("eval-mode-in-training", "train-mode-in-evaluation", "over-regularized"),
)
SHOWN = 3
TRIED = 3
"""Small updates after which what dropout drops is no longer multiplied by weights that start at zero."""


def perform(bench: Bench) -> Outcome:
    if not bench.train:
        return skipped("there is no batch to look at")
    modules = sensitive_of(bench.model)
    outcome = judge_settings(bench, modules)  # before a step, which counts in the running statistics
    if outcome is not None:
        return outcome
    modes = StepModes.of(bench, modules)
    outcome = _left_in_eval(bench, modes) or _never_switched(modes)
    if outcome is not None:
        return outcome
    call = ModelCall.of_step(bench)
    if call is None:
        return skipped("the step does not call the model as a module")
    outcome = _in_eval(bench, call) or worst_of(judge_gap(bench, call), _in_training(bench, modules, call))
    return outcome or _pass(modes)


def _pass(modes: StepModes) -> Outcome:
    groups = ((modes.active, "in train mode"), (modes.silent, "in eval mode"), (modes.unused, "not at all"))
    calls = [f"{_counted(modules)} {how}" for modules, how in groups if modules]
    told = f"the training step calls {', '.join(calls)}" if calls else "no layer depends on the mode"
    dropouts, norms = (sum(m.drops is drops for m in modes.active) for drops in (True, False))
    return passed(f"two passes in eval mode are equal to the bit; {told}", dropouts=dropouts, norms=norms)


def _counted(modules: list[Sensitive]) -> str:
    counts = {"dropout": sum(m.drops for m in modules), "normalisation": sum(not m.drops for m in modules)}
    return " and ".join(f"{n} {kind} layer{'s' * (n != 1)}" for kind, n in counts.items() if n)


def _left_in_eval(bench: Bench, modes: StepModes) -> Outcome | None:
    """Find a model that is in eval mode as a whole when the step calls it, whoever set it."""
    silent = [m for m in modes.silent if not m.is_frozen]
    if modes.root_trains is not False or modes.active or not silent:
        return None
    norms = any(not m.drops for m in silent)
    library = hasattr(type(bench.model), "from_pretrained")
    return failed(
        f"the model is in eval mode where it is to be trained: {listed(list(map(str, silent)), SHOWN)} would not work"
        + ("; its library hands it out so, and its trainer switches it" if library else ""),
        "eval-mode-in-training",
        Fix("Switch to train mode at the top of every epoch, before the loop over batches.", "model.train()"),
        severity=Severity.INFO if library else Severity.ERROR if norms else Severity.WARNING,
        where=tuple(Place(module=m.name) for m in silent[:SHOWN]),
        silent=len(silent),
    )


def _never_switched(modes: StepModes) -> Outcome | None:
    """Find batch norm that stays in eval mode in training, although it has no statistics that it could use."""
    idle = [m for m in modes.silent if not m.drops and not m.is_frozen and m.has_initial_statistics]
    if not idle:
        return None
    names = listed(list(map(str, idle)), SHOWN)
    return failed(
        f"{len(idle)} batch-norm layer{'s stay' if len(idle) > 1 else ' stays'} in eval mode in the training step, "
        f"with running statistics that are still their start (mean 0, variance 1): {names} normalise"
        f"{'s' * (len(idle) == 1)} nothing",
        "eval-mode-in-training",
        Fix(
            "Let these layers follow the model's mode: look for a train() that is overridden, or for eval() on parts "
            "of the model.",
            "model.train()\nassert all(m.training for m in model.modules() if isinstance(m, nn.BatchNorm2d))",
        ),
        severity=Severity.WARNING,
        where=tuple(Place(module=m.name) for m in idle[:SHOWN]),
        silent=len(idle),
    )


def _in_eval(bench: Bench, call: ModelCall) -> Outcome | None:
    model = bench.model
    model.train()
    in_training = call.make()
    model.eval()
    before = {name: mark_of(buffer) for name, buffer in model.named_buffers()}
    randomness = Randomness()
    try:
        one = call.make()
    except Exception as error:
        return failed(
            f"the model fails in eval mode, though not in train mode: {type(error).__name__}: {str(error)[:120]}",
            None,
            Fix("Call it in eval mode on one batch and follow the traceback.", "model.eval()(x)"),
        )
    other = call.make()
    randomness.put_back()
    again = call.make()
    active = [c for c in one.functions if c.training]
    changed = [n for n, b in model.named_buffers() if mark_of(b) != before[n]]
    if one.is_broken and not in_training.is_broken:
        return _nonfinite_in_eval(one)
    if any("dropout" in c.function for c in active) or one.marks == again.marks != other.marks:
        return _random_in_eval(first_difference(one.calls, other.calls), active)
    if any(c.function == "F.batch_norm" for c in active) or (changed and any("running_" in n for n in changed)):
        return _learning_in_eval([c for c in active if c.function == "F.batch_norm"], changed)
    if one.marks != other.marks and not one.is_close(other):
        return _stateful(first_difference(one.calls, other.calls), changed)
    return None


def _nonfinite_in_eval(one: Pass) -> Outcome:
    count = sum(int((~tensor.isfinite()).sum()) for tensor in one.outputs if tensor.is_floating_point())
    return failed(
        "the outputs are finite in train mode and hold NaN or Inf in eval mode",
        None,
        Fix(
            "Look at the running statistics of the normalisations, which eval mode uses.",
            "print({n: (b.min(), b.max()) for n, b in model.named_buffers()})",
        ),
        evidence=(f"{count} values of the outputs",),
    )


def _random_in_eval(where: Call | None, active: list[ModeCall]) -> Outcome:
    module = f", first in {where.module or 'the model'} ({where.kind})" if where is not None else ""
    places = tuple(Place(file=c.place.file, line=c.place.line) for c in active[:1] if c.place is not None)
    drops = next((c for c in active if "dropout" in c.function), None)
    if drops is not None:
        return failed(
            f"dropout acts in eval mode, by {drops.at}: passes over the same batch differ{module}",
            "train-mode-in-evaluation",
            Fix(
                "Tell the function which mode the model is in; its default is to drop.",
                "x = F.dropout(x, p, training=self.training)",
            ),
            severity=Severity.WARNING,
            where=(*places, *((Place(module=where.module),) if where is not None and where.module else ())),
        )
    return failed(
        f"the model draws random numbers in eval mode: two passes over the same batch differ{module}",
        None,
        Fix("Where that is not meant (it is for a sampled code), draw in training only.", "if self.training:"),
        severity=Severity.INFO,
        where=(Place(module=where.module),) if where is not None and where.module else (),
    )


def _learning_in_eval(active: list[ModeCall], changed: list[str]) -> Outcome:
    by = f" by {active[0].at}" if active else ""
    told = f"{listed(changed, SHOWN)} change" if changed else "the batch's own statistics are used"
    return failed(
        f"batch normalisation trains in eval mode{by}: {told}, so results depend on what is evaluated together",
        "train-mode-in-evaluation",
        Fix(
            "Tell the function which mode the model is in.",
            "F.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=self.training)",
        ),
        severity=Severity.ERROR,
        where=tuple(Place(file=c.place.file, line=c.place.line) for c in active[:1] if c.place is not None),
    )


def _stateful(where: Call | None, changed: list[str]) -> Outcome:
    module = f"{where.module or 'the model'} ({where.kind})" if where is not None else "the model"
    return failed(
        f"the same batch gives another result the second time, in eval mode and with the same random numbers: {module} "
        + (f"changes {listed(changed, SHOWN)}" if changed else "keeps something from pass to pass"),
        None,
        Fix("Reset what is kept before each independent batch, or detach and store it outside of the model."),
        severity=Severity.INFO,
        where=(Place(module=where.module),) if where is not None and where.module else (),
    )


def _in_training(bench: Bench, modules: list[Sensitive], call: ModelCall) -> Outcome | None:
    """Dropout that is there and changes nothing."""
    model = bench.model
    model.train()
    dropouts = [m for m in modules if m.drops and m.module.training]
    one, other = call.make(), call.make()
    if not dropouts or one.marks != other.marks:
        return None
    for batch in (bench.train * TRIED)[:TRIED]:
        model.zero_grad(set_to_none=True)
        bench.subject.loss(batch).backward()
        nudge(model)
    one, other = call.make(), call.make()
    if one.marks != other.marks:
        return None
    ran = {c.module for c in one.calls}
    unused = [str(m) for m in dropouts if m.name not in ran]
    why = f"forward never calls {listed(unused, SHOWN)}" if unused else "what it gives is not used"
    return failed(
        f"dropout changes nothing in training ({listed(list(map(str, dropouts)), SHOWN)}): {why}",
        None,
        Fix("Put it into the forward pass, and use its result.", "x = self.dropout(x)"),
        severity=Severity.WARNING,
        where=tuple(Place(module=m.name) for m in dropouts[:SHOWN]),
    )
