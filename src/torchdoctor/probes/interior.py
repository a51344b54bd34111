"""What lies inside the graph behind a loss, beyond its head: layers, normalisation, attention, features."""

from __future__ import annotations

from torch import Tensor

from torchdoctor.probes.attention import AttentionProbe
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph
from torchdoctor.probes.layers import LayerProbe
from torchdoctor.probes.representation import RepresentationProbe


class InteriorProbe:
    """Hands one walk's operators to the probes that read them."""

    def __init__(self, context: Context) -> None:
        self._layers = LayerProbe(context)
        self._attention = AttentionProbe(context)
        self._representation = RepresentationProbe(context)

    def look(self, graph: Graph, batch: list[Tensor], *, structural: bool, looking: bool) -> None:
        """`structural`: the wiring is read on this step; `looking`: so are values."""
        if structural:
            self._layers.look(graph)
        if looking:
            self._layers.norms(graph)
            self._attention.look(graph, batch)
            self._representation.look(graph, batch)
