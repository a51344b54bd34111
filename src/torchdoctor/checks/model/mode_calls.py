"""Functions that are told by an argument whether they train: dropout and batch normalisation, as a pass calls them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from torchdoctor.attach.places import Place, caller
from torchdoctor.instruments.overfitting.dropout import Without

DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout)
NORMS = (F.batch_norm,)
ATTENTION = F.scaled_dot_product_attention
CALLS_KEPT = 512


@dataclass(frozen=True)
class ModeCall:
    """`dropout` or `batch_norm`, and whether it was told to train."""

    function: str
    training: bool
    place: Place | None

    @property
    def at(self) -> str:
        return f"{self.function} at {self.place}" if self.place is not None else self.function


class ModeCalls(TorchFunctionMode):
    """Those made inside that would do something in training."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[ModeCall] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if len(self.calls) < CALLS_KEPT:
            self._note(func, args, kwargs)
        return func(*args, **kwargs)

    def _note(self, func: Any, args: Any, kwargs: Any) -> None:
        if func in DROPOUTS:
            given = _arguments(func, args, kwargs)
            if given["p"] > 0:
                self.calls.append(ModeCall(f"F.{func.__name__}", bool(given["training"]), caller()))
        elif func is torch.dropout and (args[1] if len(args) > 1 else kwargs.get("p", 0)) > 0:
            told = args[2] if len(args) > 2 else kwargs.get("train", False)
            self.calls.append(ModeCall("torch.dropout", bool(told), caller()))
        elif func in NORMS:
            given = _arguments(func, args, kwargs)
            if given["running_mean"] is not None:
                self.calls.append(ModeCall("F.batch_norm", bool(given["training"]), caller()))
        elif func is ATTENTION and (args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)) > 0:
            self.calls.append(ModeCall("dropout of F.scaled_dot_product_attention", True, caller()))


class AsInEval(Without):
    """Inside, these functions do as in eval mode, whatever they are told."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.dropout:
            return args[0] if args else kwargs["input"]
        given = _arguments(func, args, kwargs) if func in NORMS else None
        if given is not None and given["running_mean"] is not None:
            return func(**{**given, "training": False})
        return super().__torch_function__(func, types, args, kwargs)


def _arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


@cache
def _signature(func: Any) -> inspect.Signature:
    return inspect.signature(func)
