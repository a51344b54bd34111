"""What autograd keeps of the forward pass for its gradients, read without running anybody's code.

Where hooks pack the saved tensors away (activation checkpointing, offloading), reading one brings it back: it runs the
user's forward pass again, or copies from the host. From the first such hook on, nothing saved is read.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchdoctor.stats import has_own_dispatch


class Packing:
    """Whether saved tensors were packed away by hooks in this session."""

    seen = False


def saved(node: Any, name: str) -> Tensor | None:
    """The tensor that an operator saved under that name; None where there is none, or it was freed or changed since."""
    if Packing.seen:
        return None
    kept = getattr(node, f"_raw_saved_{name}", None)
    if kept is not None and (getattr(kept, "unpack_hook", None) or _has_own_dispatch(getattr(kept, "data", None))):
        return None
    try:
        value = getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None
    return value if isinstance(value, Tensor) else None


def _has_own_dispatch(data: object) -> bool:
    return isinstance(data, Tensor) and has_own_dispatch(data)
