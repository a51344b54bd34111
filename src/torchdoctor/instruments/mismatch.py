"""What an instrument is called under and with: errors of torch that come from it are said so that one knows what to
change."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import nn

from torchdoctor.errors import UsageError

TYPES = re.compile(r"same dtype|expected scalar type|expected target dtype|should be the same|must match .*dtype")
"""How torch says that inputs, weights and targets are of types that do not go together."""

Given = ParamSpec("Given")
Found = TypeVar("Found")


def explained(instrument: Callable[Given, Found]) -> Callable[Given, Found]:
    """A batch of another type than the weights, or than the loss takes, is an error of usage. Called in inference mode,
    an instrument leaves it for the time: batches made under it could not be learned from."""

    @functools.wraps(instrument)
    def told(*args: Given.args, **options: Given.kwargs) -> Found:
        try:
            with _outside_inference(args[0] if args else options.get("model")):
                return instrument(*args, **options)
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            if not TYPES.search(first):
                raise
            raise UsageError(
                f"a batch and the model or the loss are of different types: {first}. Cast one of them, such as "
                "inputs.float(), labels.long() or model.double(), or hand over autocast="
            ) from error

    return told


def _outside_inference(model: object) -> contextlib.AbstractContextManager[object]:
    """Weights that were made under it cannot be put back outside."""
    if not torch.is_inference_mode_enabled():
        return contextlib.nullcontext()
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    made_there = any(p.is_inference() for p in weights if not nn.parameter.is_lazy(p))
    return contextlib.nullcontext() if made_there else torch.inference_mode(False)
