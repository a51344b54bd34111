from __future__ import annotations

from collections import OrderedDict, UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "input-dependence"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


class Lost(nn.Module):
    """What it is given never reaches its model, or what comes of it is thrown away."""

    def __init__(self, model: nn.Module, how: str) -> None:
        super().__init__()
        self.model, self.how = model, how
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "overwritten":
            x = torch.ones_like(x)
        y = self.model(x)
        if self.how == "multiplied by zero":
            y = y * 0
        elif self.how == "pooled over the batch":
            y = y.mean(0, keepdim=True).expand_as(y)
        return y + self.shift


@pytest.mark.parametrize("how", ["overwritten", "multiplied by zero", "pooled over the batch"])
@pytest.mark.parametrize("kind", HEALTHY)
def test_constant_outputs(kind: str, how: str) -> None:
    program = HEALTHY[kind]()
    program.model = Lost(program.model, how)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "representation-collapse"
    assert outcome.severity is Severity.ERROR
    assert ("all 16 samples" in outcome.text) == (how == "pooled over the batch")


@pytest.mark.parametrize("kind", ["mlp", "cnn", "multilabel", "autoencoder"])
def test_a_layer_that_is_dead(kind: str) -> None:
    program = HEALTHY[kind]()
    relu = next(n for n, m in enumerate(program.model) if isinstance(m, nn.ReLU))  # type: ignore[arg-type,var-annotated]
    above = program.model[relu - 1]  # type: ignore[index]
    nn.init.constant_(above.bias, -100.0)  # type: ignore[arg-type,union-attr]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "dead-relu"
    assert outcome.where[0].module == str(relu)


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_last_layer_that_starts_at_zero_is_meant(kind: str) -> None:
    program = HEALTHY[kind]()
    last = [m for m in program.model.modules() if isinstance(m, nn.Linear)][-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    assert program.outcome(NAME).passed


class Two(nn.Module):
    def __init__(self, used: bool, gate: float | None = None) -> None:
        super().__init__()
        self.used = used
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(5, 8), nn.Linear(8, 3)
        self.gate = None if gate is None else nn.Parameter(torch.tensor(gate))

    def forward(self, a: Tensor, b: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.first(a)
        side = self.second(b if self.used else torch.zeros_like(b))
        return self.head(torch.relu(h + (side if self.gate is None else self.gate * side)))


def _two(*more: Tensor, model: nn.Module) -> Program:
    torch.manual_seed(0)
    train = loader(torch.randn(64, 6), torch.randn(64, 5), *more, torch.randint(0, 3, (64,)))
    return Program(model, train, nn.CrossEntropyLoss())


def test_one_of_several_is_ignored() -> None:
    outcome = _two(model=Two(False)).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.WARNING
    assert "number 2 of 2" in outcome.text and "(16, 5)" in outcome.text
    assert _two(model=Two(True)).outcome(NAME).passed


def test_a_gate_that_starts_shut_is_meant() -> None:
    assert _two(model=Two(True, gate=0.0)).outcome(NAME).passed


def test_a_mask_that_hides_nothing_is_meant() -> None:
    assert _two(torch.ones(64, 6), model=Two(True)).outcome(NAME).passed
    assert _two(torch.arange(6).expand(64, 6), model=Two(True)).outcome(NAME).passed


def test_labels_that_the_model_is_given_are_meant() -> None:
    class OwnLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.body, self.head = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 20)

        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.head(self.body(self.words(input_ids))[0])
            if labels is None:
                return {"logits": logits}
            wanted = labels[:, 1:].flatten()
            return {"loss": F.cross_entropy(logits[:, :-1].flatten(0, 1), wanted), "logits": logits}

    ids = torch.randint(0, 20, (4, 16, 9))
    batches = [{"input_ids": x, "labels": torch.where(torch.arange(9) < 3, -100, x)} for x in ids]
    step = lambda model, batch: model(**batch)["loss"]  # noqa: E731
    assert Program(OwnLoss(), batches, more={"step_fn": step}).outcome(NAME).passed
    assert Program(OwnLoss(), batches).outcome(NAME).passed


def test_identical_samples_are_not_blamed_on_the_model() -> None:
    program = HEALTHY["mlp"]()
    program.train = loader(torch.randn(1, 12).expand(64, 12), torch.randint(0, 4, (64,)))
    assert program.outcome(NAME).passed


@dataclass
class Held:
    x: Tensor
    labels: Tensor


class Pair(NamedTuple):
    x: Tensor
    labels: Tensor


class Whole(nn.Module):
    """Is handed a batch as it is."""

    def __init__(self, leaks: bool) -> None:
        super().__init__()
        self.leaks, self.inner = leaks, HEALTHY["mlp"]().model

    def forward(self, batch: Any) -> Tensor:
        y = self.inner(batch["x"] if isinstance(batch, Mapping) else batch.x)
        return y + y.roll(1, 0) if self.leaks else y


@pytest.mark.parametrize("kind", [Held, Pair, UserDict, OrderedDict, dict])
@pytest.mark.parametrize("leaks", [False, True])
def test_a_batch_that_is_handed_over_whole(kind: Any, leaks: bool) -> None:
    x, y = HEALTHY["mlp"]().train.dataset[:]
    batches = [kind(x=x[at : at + 16], labels=y[at : at + 16]) for at in range(0, 64, 16)]

    def step(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch), batch["labels"] if isinstance(batch, Mapping) else batch.labels)

    program = Program(Whole(leaks), batches, more={"step_fn": step})
    assert program.outcome(NAME).passed
    assert program.outcome("sample-leakage").passed is not leaks


class Deep(nn.Module):
    """Blocks in a row, with or without skip connections."""

    def __init__(self, skips: bool, depth: int = 24) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))
        self.first, self.head, self.skips = nn.Linear(12, 32), nn.Linear(32, 4), skips

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = torch.relu(block(x)) + (x if self.skips else 0)
        return self.head(x)


@pytest.mark.parametrize("skips", [True, False])
def test_a_deep_stack_that_loses_the_samples_is_not_ok(skips: bool) -> None:
    program = HEALTHY["mlp"]()
    program.model, program.optimizer = Deep(skips), None
    outcome = program.outcome(NAME)
    assert outcome.passed is skips, outcome.text


def test_outputs_as_alike_as_the_inputs_are_ok() -> None:
    program = HEALTHY["mlp"]()
    x, y = program.train.dataset.tensors
    program.train = loader(1 + 1e-3 * x, y)
    assert program.outcome(NAME).passed
