from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from checks.programs import HEALTHY, Program
from torchdoctor.checks.check import Outcome
from torchdoctor.findings import Severity

NAME = "checkpoint-round-trip"


def is_quiet(outcome: Outcome) -> bool:
    """The model alone was saved and loaded: nothing is wrong, and nothing is said of the rest of a checkpoint."""
    return outcome.passed is None and "brings back" in outcome.text


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert is_quiet(HEALTHY[kind]().outcome(NAME))


def _parts(program: Program) -> dict[str, Any]:
    schedule = CosineAnnealingLR(program.optimizer, 50)
    return {"model": program.model, "optimizer": program.optimizer, "scheduler": schedule}


def _with(program: Program, parts: dict[str, Any], names: tuple[str, ...], **more: Any) -> Outcome:
    def save(path: Any) -> None:
        torch.save({name: parts[name].state_dict() for name in names} | {"random": torch.get_rng_state()}, path)

    def load(path: Any) -> None:
        held = torch.load(path)
        for name in names:
            parts[name].load_state_dict(held[name])
        torch.set_rng_state(held["random"])

    return program.outcome(NAME, scheduler=parts["scheduler"], **{"save": save, "load": load, **more})


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_whole_checkpoint(kind: str) -> None:
    program = HEALTHY[kind]()
    outcome = _with(program, _parts(program), ("model", "optimizer", "scheduler"))
    assert outcome.passed and "same bits" in outcome.text and outcome.figures["random"] is True


@pytest.mark.parametrize("lacks", ["model", "optimizer", "scheduler"])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder", "multilabel"])
def test_a_part_that_is_left_out(kind: str, lacks: str) -> None:
    program = HEALTHY[kind]()
    parts = _parts(program)
    outcome = _with(program, parts, tuple(name for name in parts if name != lacks))
    assert outcome.passed is False and outcome.diagnosis == "resume-without-state"
    assert {"model": "weights", "optimizer": "optimizer state", "scheduler": "schedule"}[lacks] in outcome.text
    assert outcome.severity is (Severity.ERROR if lacks == "model" else Severity.WARNING)


def test_random_numbers_are_told_of() -> None:
    program = HEALTHY["multilabel"]()
    parts = _parts(program)

    def save(path: str) -> None:
        torch.save({name: part.state_dict() for name, part in parts.items()}, path)

    def load(path: str) -> None:
        for name, state in torch.load(path).items():
            parts[name].load_state_dict(state)

    outcome = _with(program, parts, (), save=save, load=load)
    assert outcome.passed and "random state is not in it" in outcome.text


def test_a_load_that_fails() -> None:
    program = HEALTHY["mlp"]()

    def load(_path: Any) -> None:
        raise KeyError("optimizer")

    outcome = _with(program, _parts(program), ("model",), load=load)
    assert outcome.passed is False and "load fails: KeyError" in outcome.text


def test_a_path_as_a_string() -> None:
    program = HEALTHY["mlp"]()
    held: dict[str, Any] = {}
    parts = _parts(program)

    def save(path: str) -> None:
        name = path + ".tmp"
        held[name] = {k: part.state_dict() for k, part in parts.items()}
        torch.save(held[name], name)

    def load(path: str) -> None:
        for k, state in torch.load(path + ".tmp").items():
            parts[k].load_state_dict(state)

    assert _with(program, parts, (), save=save, load=load).passed


class Centred(nn.Module):
    """Takes an average off that it keeps itself."""

    def __init__(self, model: nn.Module, keep: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.model = model
        keep(self)

    def forward(self, *args: Tensor) -> Tensor:
        out = self.model(*args)
        if self.training:
            self.centre = 0.5 * self.centre + 0.5 * out.detach().mean()
        return out - self.centre


def _as_attribute(module: nn.Module) -> None:
    module.centre = torch.zeros(())


def _not_to_be_saved(module: nn.Module) -> None:
    module.register_buffer("centre", torch.zeros(()), persistent=False)


def _saved(module: nn.Module) -> None:
    module.register_buffer("centre", torch.zeros(()))


@pytest.mark.parametrize("keep", [_as_attribute, _not_to_be_saved])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder", "autoencoder"])
def test_a_state_that_state_dict_does_not_hold(kind: str, keep: Callable[[nn.Module], None]) -> None:
    program = HEALTHY[kind]()
    program.model = Centred(program.model, keep)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "resume-without-state" and "centre" in outcome.text
    assert outcome.fix is not None and "register_buffer('centre'" in (outcome.fix.listing or "")


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder"])
def test_a_state_that_is_a_buffer(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = Centred(program.model, _saved)
    assert is_quiet(program.outcome(NAME))


def test_constants_need_not_be_saved() -> None:
    program = HEALTHY["mlp"]()
    program.model.register_buffer("table", torch.randn(3), persistent=False)
    program.model.scale = torch.ones(2)
    assert is_quiet(program.outcome(NAME))


def test_tied_weights() -> None:
    program = HEALTHY["decoder"]()
    program.model.head.weight = program.model.words.weight  # type: ignore[union-attr]
    program.optimizer = torch.optim.Adam(program.model.parameters())
    assert is_quiet(program.outcome(NAME))


def test_a_model_that_does_not_take_its_own_state() -> None:
    class Renaming(nn.Linear):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return {f"old.{k}": v for k, v in super().state_dict(*args, **kwargs).items()}

    program = HEALTHY["regression"]()
    program.model = Renaming(6, 1)
    program.optimizer = torch.optim.SGD(program.model.parameters(), 0.1)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "own state_dict" in outcome.text
