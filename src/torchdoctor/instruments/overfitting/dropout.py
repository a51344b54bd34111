"""A model without its dropout for a while: what is to be memorised should not be noisy on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

DROPOUTS = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
)


class Without(TorchFunctionMode):
    """Lets dropout that is called as a function pass its input through."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        return func(*args, **kwargs)


@contextlib.contextmanager
def without_dropout(model: nn.Module, functions: bool = False) -> Iterator[bool]:
    """Rates of dropout modules, recurrent layers and attention are 0 inside; `functions` stops F.dropout, too. Gives
    whether there was any such module."""
    before = [(m, name, getattr(m, name)) for m in model.modules() for name in _rates(m) if getattr(m, name)]
    try:
        for module, name, _ in before:
            setattr(module, name, 0.0)
        with Without() if functions else contextlib.nullcontext():
            yield bool(before)
    finally:
        for module, name, rate in before:
            setattr(module, name, rate)


def _rates(module: nn.Module) -> tuple[str, ...]:
    if isinstance(module, _DropoutNd):
        return ("p",)
    return ("dropout",) if isinstance(module, nn.RNNBase | nn.MultiheadAttention) else ()
