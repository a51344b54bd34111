"""Which tensors can be measured, and their elements as one flat run of real numbers.

Complex tensors are measured by their magnitudes, integers and bools by their values, sparse ones over what they
store and the zeros they imply, expanded ones without copying what they repeat.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import Parameter, UninitializedTensorMixin
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torchdoctor.interruptions import let_through

PLAIN_TYPES = frozenset({Tensor, Parameter})
FLOATS = frozenset({torch.float32, torch.bfloat16, torch.float16, torch.float64})
"""What the fast paths take as it is; everything else real is widened first."""

_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
_FLOAT8 = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
)
INTEGERS = frozenset(
    {torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32}
    | {torch.int64}
)
_COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})


_transform_level, _tracing_state = torch._C._functorch.maybe_current_level, torch._C._get_tracing_state
_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_grad_enabled, _set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled

WHOLE = 1 << 15
"""Integers of a CPU tensor above this many are left as they are, to be widened piece by piece."""


class Elements(NamedTuple):
    """A tensor's elements: `values` once for every `repeats`, and `implied` zeros that are stored nowhere."""

    values: Tensor
    repeats: int = 1
    implied: int = 0


class Quiet:
    """Lets our own operations leave no trace: no graph, and unseen by the user's torch modes."""

    __slots__ = ("_grad", "_stack")

    def __enter__(self) -> None:
        self._stack: ExitStack | None = None
        if _function_modes() or _dispatch_modes():
            self._stack = ExitStack()
            self._stack.enter_context(torch._C.DisableTorchFunction())
            self._stack.enter_context(torch._C._DisableTorchDispatch())
        self._grad = _grad_enabled()
        _set_grad_enabled(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_grad_enabled(self._grad)
        if self._stack is not None:
            self._stack.close()


def blocked() -> str | None:
    """Why nothing can be measured here and now, whatever the tensors are; None if it can."""
    if _transform_level() is not None:
        return "inside a function transform (torch.func)"
    if _tracing_state() is not None:
        return "inside torch.jit.trace"
    return None


def capturing() -> bool:
    """Whether what is done on the GPU now goes into a CUDA graph of the user's instead of being run."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def unsupported(tensor: object) -> str | None:
    """Why this tensor cannot be measured, in words; None if it can."""
    try:
        return blocked() or _odd_type(tensor) or _odd_content(tensor)  # type: ignore[arg-type]
    except Exception as error:
        let_through(error)
        return f"cannot be inspected ({type(error).__name__})"


def has_own_dispatch(tensor: Tensor) -> bool:
    """Whether operations on it run code of its class (DTensor, FakeTensor, a counting subclass): even `detach` does."""
    kind = type(tensor)
    if kind in PLAIN_TYPES:
        return False
    return kind.__torch_dispatch__ is not Tensor.__torch_dispatch__ or is_traceable_wrapper_subclass(tensor)


def detached(tensor: Tensor) -> Tensor:
    """The tensor without its graph, or as it is where detaching it would run code of its class."""
    return tensor if has_own_dispatch(tensor) else tensor.detach()


def _odd_type(tensor: object) -> str | None:
    if type(tensor) in PLAIN_TYPES:
        return None
    if not isinstance(tensor, Tensor):
        return f"not a tensor but {type(tensor).__name__}"
    if isinstance(tensor, UninitializedTensorMixin):
        return "a lazy parameter that has no shape yet"
    if has_own_dispatch(tensor):
        return f"a {type(tensor).__name__}, whose elements are held elsewhere"
    return None


def _odd_content(tensor: Tensor) -> str | None:
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.is_meta:
        return "a meta tensor, which has no data"
    if tensor.is_cuda and capturing():
        return "a CUDA tensor while a CUDA graph is captured"
    if tensor.is_quantized:
        return "a quantized tensor"
    if tensor.layout == torch.sparse_coo:
        if not tensor.is_cpu and not tensor.is_coalesced():
            return "an uncoalesced sparse tensor on a device, whose sum would wait for the device"
    elif tensor.layout != torch.strided and tensor.layout not in _COMPRESSED:
        return f"a tensor of layout {tensor.layout}"
    if tensor.dtype not in FLOATS | INTEGERS | _COMPLEX | _FLOAT8:
        return f"a tensor of {tensor.dtype}"
    return None


def elements(tensor: Tensor) -> Elements:
    """The elements of a tensor that `unsupported` has nothing against; call it under `Quiet`."""
    plain = tensor.detach()
    if type(plain) is not Tensor:
        plain = plain.as_subclass(Tensor)
    implied = 0
    if plain.layout != torch.strided:
        total = plain.numel()
        plain = (plain.coalesce() if plain.layout == torch.sparse_coo else plain).values()
        implied = total - plain.numel()
    plain, repeats = _unexpand(plain)
    return Elements(real(flatten(plain)), repeats, implied)


def real(flat: Tensor) -> Tensor:
    """The same numbers in one of FLOATS: magnitudes of complex ones, integers as float64 where there is one."""
    if flat.dtype in FLOATS or (flat.is_cpu and flat.numel() >= WHOLE and flat.dtype in INTEGERS):
        return flat
    if flat.dtype in _FLOAT8:
        return flat.float()
    wide = torch.float32 if flat.device.type == "mps" else torch.float64
    if flat.dtype in _COMPLEX:
        return flat.to(torch.complex64 if wide == torch.float32 else torch.complex128).abs()
    return flat.to(wide)


def numbers(tensor: Tensor) -> Tensor:
    """A supported tensor as plain float32, or float64 where it is wider, in its own shape."""
    plain = tensor.detach()
    plain = plain.to_dense() if plain.layout != torch.strided else plain
    plain = real(plain.as_subclass(Tensor)).resolve_neg()
    return plain if plain.dtype is torch.float64 else plain.float()


def flatten(tensor: Tensor) -> Tensor:
    """All elements in one dimension, in any order; a view wherever they lie densely."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    if tensor.is_contiguous():
        return tensor.view(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(order)
    return ordered.view(-1) if ordered.is_contiguous() else tensor.reshape(-1)


def _unexpand(tensor: Tensor) -> tuple[Tensor, int]:
    """Without the dimensions that only repeat (stride 0), and how often they do."""
    repeated = [d for d in range(tensor.dim()) if tensor.stride(d) == 0 and tensor.size(d) > 1]
    if not repeated:
        return tensor, 1
    repeats = math.prod(tensor.size(d) for d in repeated)
    for d in repeated:
        tensor = tensor.narrow(d, 0, 1)
    return tensor, repeats
