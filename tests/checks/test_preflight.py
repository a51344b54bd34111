"""The whole list at once: quiet on sound trainings, and without a trace in what it was given."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from checks.programs import HEALTHY, Program
from torchdoctor import check
from torchdoctor.attach.target import Target
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import failed, passed, skipped
from torchdoctor.checks.checklist import Checked, Checklist
from torchdoctor.checks.performing import all_checks, choose, perform
from torchdoctor.errors import UsageError
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.subject import Subject


def _bytes(value: Any) -> Any:
    """As plain, comparable data, to the bit."""
    if isinstance(value, Tensor):
        return (str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return {key: _bytes(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_bytes(part) for part in value]
    return value


def _state(program: Program, generator: torch.Generator, scheduler: Any) -> dict[str, Any]:
    model = program.model
    return {
        "weights and buffers": _bytes(dict(model.state_dict())),
        "identities": [id(p) for p in model.parameters()],
        "gradients": [_bytes(p.grad) for p in model.parameters()],
        "trainable": [p.requires_grad for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
        "optimizer": _bytes(program.optimizer.state_dict()),
        "scheduler": _bytes(scheduler.state_dict()),
        "torch": _bytes(torch.random.get_rng_state()),
        "numpy": _bytes(list(np.random.get_state())),
        "python": random.getstate(),
        "loader": _bytes(generator.get_state()),
        "settings": (torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()),
    }


def _worked(program: Program, generator: torch.Generator, scheduler: Any) -> None:
    """One update, so that there are gradients, moments and statistics to lose."""
    batch = next(iter(program.train))
    inputs, target = (batch[0], batch[-1])
    program.loss_fn(program.model(inputs), target).backward()
    program.optimizer.step()
    scheduler.step()
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(5)
    generator.manual_seed(6)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("kind", HEALTHY)
def test_a_sound_training_is_left_in_peace_and_as_it_was(kind: str, quick: bool) -> None:
    program = HEALTHY[kind]()
    generator = torch.Generator()
    program.train.generator = program.train.sampler.generator = generator
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(program.optimizer, 100)
    _worked(program, generator, scheduler)
    position = iter(program.train)
    next(position)
    before = _state(program, generator, scheduler)
    made = check(
        program.model,
        program.train,
        program.loss_fn,
        val_loader=program.val,
        optimizer=program.optimizer,
        scheduler=scheduler,
        quick=quick,
        progress=False,
    )
    after = _state(program, generator, scheduler)
    assert [name for name in before if before[name] != after[name]] == []
    assert len(list(position)) == len(program.train) - 1
    failed = [c for c in made.checked if c.outcome.passed is False and c.outcome.severity is not Severity.INFO]
    assert [(c.check.name, c.outcome.text) for c in failed] == []


def test_a_check_that_fails_leaves_no_trace_either() -> None:
    program = HEALTHY["mlp"]()
    scheduler, generator = torch.optim.lr_scheduler.ConstantLR(program.optimizer), torch.Generator()
    _worked(program, generator, scheduler)

    class Moody(nn.Module):
        """Raises from its third call on."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.calls = inner, [0]

        def forward(self, x: Tensor) -> Tensor:
            self.calls[0] += 1
            if self.calls[0] > 2:
                raise RuntimeError("no more")
            return self.inner(x)

    program.model = Moody(program.model)
    before = _state(program, generator, scheduler)
    made = check(program.model, program.train, program.loss_fn, optimizer=program.optimizer, progress=False)
    assert any("no more" in c.outcome.text for c in made.checked)
    assert before == _state(program, generator, scheduler)


class _StepsOnly:
    """A schedule of one's own, of which nothing can be put back."""

    def step(self) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"optimizer": "adam"}, "optimizer is a str"),
        ({"optimizer": torch.optim.Adam}, "optimizer is the class Adam"),
        ({"scheduler": _StepsOnly()}, "no state_dict()"),
        ({"loss_fn": None}, "hand over loss_fn"),
        ({"scripted": True}, "scripted"),
        ({"only": "memory"}, "'memory'"),
    ],
)
def test_wrong_use_is_refused_instead_of_told_by_every_check(given: dict[str, Any], named: str) -> None:
    program = HEALTHY["mlp"]()
    model = torch.jit.script(program.model) if given.pop("scripted", False) else program.model
    loss_fn = given.pop("loss_fn", program.loss_fn)
    with pytest.raises(UsageError, match=re.escape(named)):
        check(model, program.train, loss_fn, quick=True, progress=False, **given)


@pytest.mark.parametrize("name", ["train_loader", "val_loader"])
def test_the_loader_that_gives_no_batch_is_named(name: str) -> None:
    program = HEALTHY["mlp"]()
    loaders = {"train_loader": program.train, "val_loader": program.val, name: []}
    with pytest.raises(UsageError, match=f"^{name} gives no batch"):
        check(program.model, loss_fn=program.loss_fn, progress=False, **loaders)


def test_what_a_script_does_not_show_was_not_to_be_handed_over() -> None:
    program, names = HEALTHY["mlp"](), ("split-overlap", "validation-alike", "schedule-horizon")
    bench = Bench(Subject(program.model, program.loss_fn), [next(iter(program.train))], train_loader=program.train)
    for target, said in ((None, "was handed over"), (Target("file", "train.py"), "seen in the script's first steps")):
        bench.target = target
        assert all(said in made.outcome.text for made in perform(bench, choose(True, names)))


def test_one_check_by_its_name_and_several_optimizers() -> None:
    program = HEALTHY["mlp"]()
    both = {"optimizer": [program.optimizer, torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)]}
    made = check(program.model, program.train, program.loss_fn, only="optimizer-coverage", progress=False, **both)
    assert [c.check.name for c in made.checked] == ["optimizer-coverage"] and made.passed


def test_nothing_examined_is_not_passed_and_notes_are_not_failures() -> None:
    kind = next(c.check for c in all_checks())
    nothing = Checklist([Checked(kind, skipped("no batch"), 0.0)] * 3)
    assert not nothing.passed and "3 not examined" in str(nothing)
    assert nothing.plot().layout.title.text == "None of 3 checks could tell"
    note = failed("it may be meant", None, Fix("Look at it."), severity=Severity.INFO)
    mixed = Checklist([Checked(kind, outcome, 0.0) for outcome in (passed("well"), note, skipped("no batch"))])
    assert mixed.passed and mixed.plot().layout.title.text == "All that was checked is well (1)"
    assert "1 of 3 passed, 0 failed, 1 of note, 1 not examined" in str(mixed)


def test_a_finding_is_as_sure_as_its_check_and_what_several_see_is_told_once() -> None:
    first, second = (c.check for c in all_checks()[:2])
    fix, name = Fix("Scale them."), "unnormalized-inputs"
    warned = failed("too large", name, fix, severity=Severity.WARNING)
    again = failed("(as that says)", name, fix, severity=Severity.INFO, consequence_of=name)
    likely = failed("probably", "dead-relu", fix, consequence_of=name, proven=False)
    found = Checklist([Checked(first, warned, 0.0), *(Checked(second, o, 0.0) for o in (again, likely))]).findings()
    told = {f.name: (f.confidence, f.consequence_of) for f in found}
    assert told == {name: (0.8, None), "dead-relu": (0.6, name)}


def test_a_compiled_model_is_checked_as_it_is_written() -> None:
    """Dynamo would trace the hooks of the checks, and take half a minute for it."""
    program = HEALTHY["mlp"]()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # of all tests before this one
    compiled = torch.compile(program.model)
    made = check(compiled, program.train, program.loss_fn, optimizer=program.optimizer, quick=True, progress=False)
    assert not torch._dynamo.utils.counters["frames"]
    told = {c.check.name: c.outcome for c in made.checked}
    assert told["gradients-reach"].passed and told["activation-health"].passed
    assert "without torch.compile" in told["run-cost"].text


class _Forces(nn.Module):
    """The gradient of an energy, as models of molecules give it."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_(True)
        return torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]


def _residual(model: nn.Module, batch: Any) -> Tensor:
    """Of a differential equation: the step takes the gradient of what the model gives."""
    x = batch[0].clone().requires_grad_(True)
    u = model(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    return (slope[:, :1] - 1).square().mean() + (u - x[:, :1].detach()).square().mean()


@pytest.mark.parametrize("inside", [True, False])
def test_a_gradient_within_the_step_loses_no_check(inside: bool) -> None:
    torch.manual_seed(0)
    x = torch.rand(96, 2)
    data = TensorDataset(x, 2 * x) if inside else TensorDataset(x)
    model: nn.Module = _Forces() if inside else nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    made = check(
        model,
        DataLoader(data, 16, shuffle=True),
        nn.functional.mse_loss if inside else None,
        step_fn=None if inside else _residual,
        val_loader=DataLoader(data, 16),
        optimizer=torch.optim.Adam(model.parameters()),
        progress=False,
    )
    assert [c.check.name for c in made.checked if "could not be examined" in c.outcome.text] == []
    told = {c.check.name: c.outcome.passed for c in made.checked}
    assert all(told[name] for name in ("mode-switch", "memorise", "run-cost"))


class Prototypes(nn.Module):
    """A loss with weights and a counter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, outputs: Tensor, target: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.cross_entropy(outputs @ self.centres.T, target)


@pytest.mark.parametrize("kind", ["loss", "teacher"])
def test_what_the_loss_works_with_is_left_as_it_was(kind: str) -> None:
    program, beside = HEALTHY["mlp"](), Prototypes()
    if kind == "teacher":
        beside = copy.deepcopy(program.model)
    optimizer = torch.optim.Adam([*program.model.parameters(), *beside.parameters()])

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        outputs = model(batch[0])
        with torch.no_grad():
            wanted = beside(batch[0])
            for mine, other in zip(beside.parameters(), model.parameters(), strict=True):
                mine.lerp_(other, 0.1)
        return nn.functional.cross_entropy(outputs, batch[1]) + nn.functional.mse_loss(outputs, wanted)

    before = _bytes(dict(beside.state_dict()))
    given = {"loss_fn": beside} if kind == "loss" else {"step_fn": step}
    made = check(program.model, program.train, optimizer=optimizer, progress=False, **given)
    assert before == _bytes(dict(beside.state_dict()))
    failed = [c for c in made.checked if c.outcome.passed is False and c.outcome.severity is not Severity.INFO]
    assert [(c.check.name, c.outcome.text) for c in failed] == []
