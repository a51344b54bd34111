"""A model's weights from where people keep them: a state dict, another model, or a file, which is never unpickled."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.tables import listed

Source = Mapping[str, Any] | nn.Module | str | Path
HOLDERS = ("state_dict", "model_state_dict", "model", "net", "module")
"""Under which a checkpoint keeps the weights beside an optimizer's state and the like."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DataParallel, torch.compile and Lightning put before the names."""


def read_weights(source: Source, model: nn.Module, name: str) -> dict[str, Tensor]:
    """As this model names them, on the CPU where they come from a file. `name` is what errors call it."""
    if isinstance(source, nn.Module):
        found: Any = source.state_dict()
    elif isinstance(source, str | Path):
        found = _read_file(Path(source))
    else:
        found = source
    if not isinstance(found, Mapping):
        raise UsageError(f"{name} holds a {type(found).__name__}; a state dict, a model or a path is needed")
    expected = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
    weights = _renamed(_unwrapped(found), expected)
    missing = [k for k in expected if k not in weights]
    if missing:
        raise UsageError(
            f"{name} lacks {len(missing)} of the model's {len(expected)} tensors: {listed(missing)}. It has "
            f"{listed(list(map(str, weights))) or 'none'}; is it of the same architecture?"
        )
    for key, tensor in expected.items():
        if weights[key].shape != tensor.shape:
            raise UsageError(
                f"{key} has shape {tuple(weights[key].shape)} in {name} and {tuple(tensor.shape)} in the model"
            )
    return {k: weights[k].detach() for k in expected}


def _read_file(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise UsageError(
            f"{path} cannot be read as weights alone ({str(error).splitlines()[0]}). Save model.state_dict() by "
            "itself, or load the file yourself, if you trust it, and hand over the state dict"
        ) from error


def _unwrapped(found: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors, or those one level down."""
    inner = next((found[h] for h in HOLDERS if isinstance(found.get(h), Mapping)), found)
    return {k: v for k, v in inner.items() if isinstance(v, Tensor)}


def _renamed(weights: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without a prefix that stands before every name, or with the one that the model has itself."""
    if all(k in weights for k in expected):
        return weights
    for prefix in PREFIXES:
        without = {k.removeprefix(prefix): v for k, v in weights.items()}
        if all(k in without for k in expected):
            return without
        if all(k.startswith(prefix) and k.removeprefix(prefix) in weights for k in expected):
            return {prefix + k: v for k, v in weights.items()}
    return weights
