"""How a fault is planted in a sound program: what a table of faults is written with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from check_models import Apply
from check_programs import Program

Change = Callable[[Program], None]
FAULTS: list[Fault] = []


@dataclass(frozen=True)
class Fault:
    """One thing that is broken in one kind of program, and the check that has to see it."""

    check: str
    name: str
    kind: str
    plant: Change
    names: tuple[str, ...]
    """diagnoses that would be right"""
    twin: Change | None
    """what the program is given to begin with, where it is nothing that could be broken without"""

    def __str__(self) -> str:
        return f"{self.check}/{self.name}/{self.kind}"


def planted(check: str, *kinds: str, names: tuple[str, ...] = (), twin: Change | None = None) -> Callable[..., Change]:
    """A function that breaks one thing, listed for each kind of program that it breaks it in."""

    def listed(plant: Change) -> Change:
        name = plant.__name__.replace("_", "-")
        FAULTS.extend(Fault(check, name, kind, plant, names, twin) for kind in kinds)
        return plant

    return listed


class Changed(Dataset):
    """The samples of another dataset, each changed as it is asked for."""

    def __init__(self, samples: Dataset, change: Callable[..., Any]) -> None:
        self.samples, self.change = samples, change

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        sample = self.samples[index]
        return self.change(sample) if isinstance(sample, dict) else self.change(*sample)


def change_samples(program: Program, change: Callable[..., Any]) -> None:
    program.train, program.validation = Changed(program.train, change), Changed(program.validation, change)


def before_head(program: Program, function: Callable[..., Any]) -> None:
    program.model.head = nn.Sequential(Apply(function), program.model.head)


def after_head(program: Program, layer: nn.Module) -> None:
    program.model.head = nn.Sequential(program.model.head, layer)


def layers(program: Program, *kinds: type[nn.Module]) -> list[Any]:
    return [module for module in program.model.modules() if isinstance(module, kinds)]
