"""What train mode does to the outputs beside dropout and normalisation: with these switched off one by one, eval mode
is to give the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome, failed
from torchdoctor.checks.model.influence import reseed
from torchdoctor.checks.model.mode_calls import AsInEval
from torchdoctor.checks.model.mode_passes import ROUNDING, ModelCall, Pass
from torchdoctor.checks.repeats.module_trace import first_difference, marks_of
from torchdoctor.findings import Fix, Place, Severity

KNOWN = (_DropoutNd, _NormBase, nn.RNNBase, nn.MultiheadAttention)
"""That differ from mode to mode as they should, those derived from them, too."""
AFTERWARDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": lambda x, _: x.softmax(-1),
    "softmax over dimension 1": lambda x, _: x.softmax(min(1, x.dim() - 1)),
    "log_softmax": lambda x, _: x.log_softmax(-1),
    "sigmoid": lambda x, _: x.sigmoid(),
    "tanh": lambda x, _: x.tanh(),
    "exp": lambda x, _: x.exp(),
    "clamp": lambda x, bounded: x.clamp(float(bounded.min()), float(bounded.max())),
}
"""What is done to outputs where they are used, and not where a loss of raw scores takes them."""


def judge_gap(bench: Bench, call: ModelCall) -> Outcome | None:
    """A difference by design is passed over: one that is drawn (stochastic depth, noise, jitter), outputs of another
    form (auxiliary heads), and what keeps a state (observers, running averages)."""
    model = bench.model
    model.train()
    keeping = _keeping(model, call)
    with _quiet(model, keeping):
        before = _random_state()
        one = call.make()
        draws = _random_state() != before
        other = call.make()
    model.eval()
    in_eval, again = call.make(), call.make()
    steady = one.marks == other.marks and in_eval.marks == again.marks
    if draws or not steady or one.form != in_eval.form or one.is_close(in_eval):
        return None
    return _differing(bench, call, one, in_eval, _losses(bench, keeping))


def _differing(bench: Bench, call: ModelCall, one: Pass, in_eval: Pass, losses: tuple[float, float] | None) -> Outcome:
    where = first_difference(one.calls, in_eval.calls)
    module = f"{where.module or 'the model'} ({where.kind})" if where is not None else "the model"
    text = (
        f"train and eval mode differ beside dropout and normalisation: {module} gives other outputs of the same inputs "
        f"({one.apart(in_eval):.0%} apart)"
    )
    harmed = losses is not None and abs(losses[0] - losses[1]) > ROUNDING * max(map(abs, losses))
    if harmed and losses is not None:
        digits = next((n for n in range(3, 9) if f"{losses[0]:.{n}g}" != f"{losses[1]:.{n}g}"), 9)
        trained, used = (f"{loss:.{digits}g}" for loss in losses)
        text += f", and the loss of a batch is {trained} in train mode and {used} in eval mode"
    done = _done_afterwards(one, in_eval)
    if done is not None:
        text += f"; eval mode gives the {done} of what train mode gives, which a loss must not be given"
    # Whoever is given more than one input may be given the answer in training: teacher forcing, a margin.
    meant = done is not None or len(call.given) > 1
    return failed(
        text,
        None,
        Fix(
            "Look at what its forward does under self.training: what is used is not what was trained.",
            "if self.training:",
        ),
        severity=Severity.WARNING if harmed and not meant else Severity.INFO,
        where=(Place(module=where.module),) if where is not None and where.module else (),
        apart=one.apart(in_eval),
    )


def _done_afterwards(one: Pass, in_eval: Pass) -> str | None:
    """What eval mode does to the first of the outputs and nothing else, if that is all."""
    trained, used = one.outputs[0], in_eval.outputs[0]
    if not trained.is_floating_point() or not trained.dim():
        return None
    for name, do in AFTERWARDS.items():
        made = do(trained.float(), used.float())
        if float((made - used.float()).abs().max()) <= ROUNDING * max(1e-12, float(used.abs().max())):
            return name
    return None


def _losses(bench: Bench, keeping: set[int]) -> tuple[float, float] | None:
    """Of the first batch in both modes; None where they are random, or the step sets the modes by itself."""
    model, batch = bench.model, bench.train[0]
    seen: list[list[bool]] = []

    def modes() -> list[bool]:
        return [module.training for module in model.modules()]

    def loss() -> float | None:
        reseed()
        wanted, found = modes(), float(bench.subject.loss(batch).detach())
        return found if seen and seen[-1] == wanted else None

    handle = bench.subject.called.register_forward_pre_hook(lambda *_: seen.append(modes()))

    try:
        model.train()
        with _quiet(model, keeping):
            one, other = loss(), loss()
        model.eval()
        in_eval = loss()
    finally:
        handle.remove()
    return (one, in_eval) if one is not None and one == other and in_eval is not None else None


def _keeping(model: nn.Module, call: ModelCall) -> set[int]:
    """Modules whose own tensors a training pass changes: normalisations by whatever name, running averages."""
    before = {id(m): _own_marks(m) for m in model.modules()}
    call.make()
    return {id(m) for m in model.modules() if _own_marks(m) != before[id(m)]}


def _own_marks(module: nn.Module) -> dict[str, Any]:
    if isinstance(module, torch.jit.ScriptModule):
        return {}
    own = {**module._buffers, **{name: value for name, value in vars(module).items() if isinstance(value, Tensor)}}
    return {name: marks_of(value) for name, value in own.items() if value is not None}


@contextlib.contextmanager
def _quiet(model: nn.Module, keeping: set[int]) -> Iterator[None]:
    """In train mode but for what is known to differ: torch's own modules, those that keep a state, and functions that
    are told the mode."""
    modes = [(m, m.training) for m in model.modules()]
    for module, _ in modes:
        own = type(module).__module__.startswith("torch.")
        if own or isinstance(module, KNOWN) or id(module) in keeping:
            module.training = False
    try:
        with AsInEval():
            yield
    finally:
        for module, training in modes:
            module.training = training


def _random_state() -> tuple[Any, ...]:
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    states = [torch.random.get_rng_state(), *devices]
    _, numbers, position, *_ = np.random.get_state()
    return random.getstate(), bytes(memoryview(numbers)), position, *(s.numpy().tobytes() for s in states)  # type: ignore[arg-type]
