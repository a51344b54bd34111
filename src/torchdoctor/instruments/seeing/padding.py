"""Which positions of one sample are padding, of what a model was given."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from torchdoctor.instruments.seeing.samples import Array, as_array, main_input
from torchdoctor.probes.padding import find_padding


def padding_of(given: Mapping[str, Tensor], sample: int, model: nn.Module) -> Array | None:
    """Which positions of this sample are padding: told by a mask, by an embedding's padding_idx, or by the batch."""
    for name, tensor in given.items():
        if tensor.dim() == 2 and "mask" in name and "attn" not in name:
            row = tensor[sample]
            if "padding" in name or "attention" in name:
                return as_array(row != 0) > 0 if "padding" in name else as_array(row == 0) > 0
    name, tensor = main_input(given)
    if tensor.dim() == 2 and not tensor.is_floating_point():
        embeddings = (m for m in model.modules() if isinstance(m, nn.Embedding))
        index = next((m.padding_idx for m in embeddings if m.padding_idx is not None), None)
        if index is not None:
            return as_array(tensor[sample] == index) > 0
    found = find_padding(tensor)
    return as_array(found[0][sample]) > 0 if found is not None and bool(found[1]) else None
