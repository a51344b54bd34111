"""Finding models behind parameters: by what was seen while they were built, with a search as the last resort."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from torchdoctor.attach import guard
from torchdoctor.attach.ownership import Heap, watch_building
from torchdoctor.attach.registry import Registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    guard.reset()
    registry = Registry()
    handles = watch_building(registry.ownership)
    yield registry
    for handle in handles:
        handle.remove()


def optimize(registry: Registry, *modules: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD([p for module in modules for p in module.parameters()], 0.1)
    registry.optimizer_key(optimizer)
    return optimizer


class Trainer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3)))
        self.layers = nn.ModuleList([nn.Linear(3, 3)])
        self.scales = nn.ParameterList([torch.ones(3)])


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[nn.Module]:
        raise AssertionError("all objects were searched")

    monkeypatch.setattr(Heap, "top_modules", staticmethod(refuse))


@pytest.mark.usefixtures("no_search")
def test_the_outermost_module_is_found_without_a_search(registry: Registry) -> None:
    trainer = Trainer()
    optimizer = optimize(registry, trainer.encoder[1], trainer.layers, trainer.scales)
    assert registry.discover().found
    assert registry.models["Trainer"]() is trainer
    assert registry.name_of(trainer.encoder[1][0].weight) == "encoder.1.0.weight"
    assert registry.name_of(trainer.scales[0]) == "scales.0"
    trainer.layers[0] = nn.Linear(3, 3)  # a part is replaced, and trained
    optimizer.add_param_group({"params": [trainer.layers[0].bias]})
    assert registry.discover() == (True, True)
    assert registry.name_of(trainer.layers[0].bias) == "layers.0.bias"


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_is_known_once_it_is_called(registry: Registry, make_copy: object) -> None:
    model = make_copy(nn.Sequential(nn.Linear(2, 2)))  # type: ignore[operator]
    optimizer = optimize(registry, model)
    assert registry.is_unknown(model)
    registry.discover()
    assert registry.name_of(model[0].weight) == "0.weight"
    assert not registry.is_unknown(model)
    del optimizer


def test_a_copy_that_is_never_called_is_searched_for_within_the_budget(registry: Registry) -> None:
    model = copy.deepcopy(nn.Sequential(nn.Linear(2, 2)))
    optimizer = optimize(registry, model)
    registry.can_spend = lambda _seconds: False
    assert not registry.discover().found
    assert registry.name_of(model[0].weight) is None
    assert registry.searches_skipped == 1
    registry.can_spend = lambda _seconds: True
    assert registry.discover().found
    assert registry.name_of(model[0].weight) == "0.weight"
    del optimizer


def test_parameters_outside_of_modules_are_searched_for_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []
    monkeypatch.setattr(Heap, "top_modules", staticmethod(lambda: searches.append(1) or []))
    parameter, tensor = nn.Parameter(torch.zeros(2)), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter, tensor], 0.1)
    registry.optimizer_key(optimizer)
    for _ in range(3):
        registry.discover([parameter, tensor])
    assert len(searches) == 1
    assert registry.name_of(parameter) == "optimizer0.group0.0"
    assert registry.name_of(tensor) == "optimizer0.group0.1"


def test_names_of_models_that_are_gone_are_free_again(registry: Registry) -> None:
    first = nn.Sequential(nn.Linear(2, 2))
    optimizer = optimize(registry, first)
    registry.discover()
    second = nn.Sequential(nn.Linear(2, 2))
    optimizer = optimize(registry, second)
    assert registry.discover() == (True, True)
    assert registry.name_of(second[0].bias) == "Sequential'.0.bias"
    third = nn.Sequential(nn.Linear(2, 2))
    optimizer = optimize(registry, third)
    assert registry.discover() == (True, False)  # names in use stay as they are
    assert len({registry.name_of(m[0].bias) for m in (first, second, third)}) == 3
    del first, second
    third.extend([nn.Linear(2, 2)])
    optimizer.add_param_group({"params": third[1].parameters()})
    assert registry.discover() == (True, True)
    assert registry.name_of(third[0].bias) == "0.bias"
    assert set(registry.parameter_names.values()) == {"0.weight", "0.bias", "1.weight", "1.bias"}


@pytest.mark.usefixtures("no_search")
def test_work_on_a_new_model_does_not_grow_with_the_models_before(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = []
    name_parameter = Registry._name_parameter
    monkeypatch.setattr(
        Registry, "_name_parameter", lambda self, p, name: (named.append(name), name_parameter(self, p, name))
    )
    monkeypatch.setattr(Heap, "attribute_names", staticmethod(lambda _: {}))
    models = [nn.Sequential(nn.Linear(2, 2)) for _ in range(50)]
    optimizers = []
    for model in models:
        optimizers.append(optimize(registry, model))
        registry.discover()
    assert len(named) <= 2 * (len(models) + 1)
    assert len(registry.module_names) == 2 * len(models)


@pytest.mark.usefixtures("no_search")
def test_searches_for_names_become_rarer_where_none_is_found(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    registry.can_spend = lambda seconds: not asked.append(seconds) and len(asked) < 4
    monkeypatch.setattr(Heap, "predicted_seconds", 1.0)
    monkeypatch.setattr(Heap, "measured", lambda *_: None)
    monkeypatch.setattr(Heap, "attribute_names", staticmethod(lambda _: {}))
    kept = []
    for model in [nn.Sequential(nn.Linear(2, 2)) for _ in range(5)]:
        kept.append((model, optimize(registry, model)))
        registry.discover()
    assert asked == [1, 4, 16, 64, 64]
    assert registry.searches_skipped == 2


def test_entries_of_dead_modules_are_swept(registry: Registry) -> None:
    for _ in range(3000):
        nn.Linear(1, 1)
    assert len(registry.ownership._parameters) <= 4097


def test_a_parameter_with_the_id_of_one_that_has_gone_is_held(registry: Registry) -> None:
    """Searches build one model after another, and Python uses their addresses again."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], 0.1)
    key = registry.optimizer_key(optimizer)
    assert len(registry.held()) == 1
    optimizer.param_groups[0]["params"].clear()
    parameter = nn.Parameter(torch.zeros(2))
    registry._held_ids[key] = [id(parameter)]  # as if it had the address of the one before
    optimizer.param_groups[0]["params"].append(parameter)
    assert list(registry.held()) == [id(parameter)]


def test_a_part_that_models_share_in_turn_knows_those_alone_that_live(registry: Registry) -> None:
    """Each registration asks all that are known, so that dead ones would make the next model slower."""
    shared = nn.Linear(2, 2)
    for _ in range(20):
        nn.Sequential(shared)
    kept = nn.Sequential(shared)
    assert [reference() for reference in registry.ownership._submodules[id(shared)]] == [kept]
