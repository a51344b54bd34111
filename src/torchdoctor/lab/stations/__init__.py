"""The stations, in the order in which the lab shows them."""

from __future__ import annotations

from torchdoctor.lab.station import Station
from torchdoctor.lab.stations import gradient_health

STATIONS: dict[str, Station] = {station.name: station for station in (gradient_health.STATION,)}
