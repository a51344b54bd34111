"""Stations asked without a process between: what they compute, and what they show of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from torchdoctor.lab.station import Shown, Value
from torchdoctor.lab.stations import STATIONS

Try = Callable[..., Shown]


@pytest.fixture(scope="session")
def try_station() -> Try:
    """`try_station(name, **choices)`; what is left out is as at the beginning."""

    def go(name: str, **choices: Value) -> Shown:
        station = STATIONS[name]
        chosen = {**station.defaults(), **choices}
        return station.draw(chosen, computed(name, chosen))

    return go


def computed(name: str, chosen: dict[str, Value]) -> dict[str, Any]:
    module = importlib.import_module(f"torchdoctor.lab.computing.{name.replace('-', '_')}")
    found: dict[str, Any] = module.compute(**chosen)
    return found
