"""The stations, in the order in which the lab shows them."""

from __future__ import annotations

from torchdoctor.lab.station import Station
from torchdoctor.lab.stations import activation_flow, gradient_health, learning_rates, weight_shapes

STATIONS: dict[str, Station] = {
    room.STATION.name: room.STATION for room in (gradient_health, activation_flow, weight_shapes, learning_rates)
}
