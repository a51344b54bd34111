"""Tensors of every kind that a training can hold, ordinary and odd; made without torch's random state."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor

from torchdoctor.stats import reference

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
OTHERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128)
LAYOUTS = ("plain", "transposed", "every other", "offset", "expanded", "channels last", "reversed order")
SHAPES = ((), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4, 5), (1, 1), (700,), (40_000,), (130, 300))


def build(shape: tuple[int, ...], dtype: torch.dtype, seed: int, scale: float, centre: float, odd: float) -> Tensor:
    """Random numbers around `centre`; a share `odd` each of zeros, tiny ones, and (in floats) NaN, Inf and -Inf."""
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal(shape) + centre) * scale
    pick = rng.random(shape)
    values = np.where(pick < odd, 0.0, values)
    values = np.where((pick >= odd) & (pick < 2 * odd), 3e-9, values)
    if dtype.is_floating_point or dtype.is_complex:
        for i, bad in enumerate((math.nan, math.inf, -math.inf)):
            values = np.where((pick > 1 - (i + 1) * odd / 3) & (pick <= 1 - i * odd / 3), bad, values)
    elif dtype is not torch.bool:
        values = np.clip(
            values, *((torch.iinfo(dtype).min, torch.iinfo(dtype).max) if dtype.itemsize < 4 else (-9e8, 9e8))
        )
    with np.errstate(all="ignore"):
        made = torch.from_numpy(np.asarray(values, np.float64))
        if dtype.is_complex:
            made = torch.complex(made, made.flip(0) if made.dim() else made)
        return made.to(dtype)


def arrange(tensor: Tensor, layout: str) -> Tensor:
    """The same tensor, or one like it, lying otherwise in memory."""
    if layout == "transposed" and tensor.dim() >= 2:
        return tensor.transpose(0, -1)
    if layout == "every other" and tensor.dim():
        return tensor.repeat_interleave(2, -1)[..., ::2]
    if layout == "offset" and tensor.dim():
        return torch.cat([tensor.new_zeros(1), tensor.reshape(-1)])[1:].view(tensor.shape)
    if layout == "expanded":
        return tensor.unsqueeze(0).expand(3, *tensor.shape)
    if layout == "channels last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if layout == "reversed order" and tensor.dim() >= 2:
        return tensor.permute(*reversed(range(tensor.dim())))
    return tensor


def sparse(seed: int, odd: float = 0.0) -> list[Tensor]:
    """Of every sparse layout; the first has two values in one place."""
    dense = build((6, 8), torch.float32, seed, 1.0, 0.5, odd)
    dense = torch.where(build((6, 8), torch.float32, seed + 1, 1.0, 0.0, 0.0) > 0.3, dense, 0.0)
    index = torch.tensor([[0, 0, 2, 5], [1, 1, 3, 7]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            torch.sparse_coo_tensor(index, torch.tensor([1.0, 2.0, -3.0, 0.0]), (6, 8)),
            dense.to_sparse(),
            dense.to_sparse_csr(),
            dense.to_sparse_csc(),
            dense.to_sparse_bsr((2, 2)),
            torch.zeros(3, 3).to_sparse(),
        ]


def unmeasurable() -> dict[str, object]:
    """What `unsupported` must name; nothing may raise on it."""
    from torch._subclasses import FakeTensorMode

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with FakeTensorMode():
            fake = torch.ones(3)
        return {
            "meta": torch.empty(3, device="meta"),
            "fake": fake,
            "lazy": torch.nn.parameter.UninitializedParameter(),
            "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
            "mkldnn": torch.ones(3, 3).to_mkldnn(),
            "text": "tensor",
            "none": None,
        }


def octets(tensor: Tensor) -> bytes:
    """A CPU tensor's bytes, element after element."""
    plain = tensor.detach().resolve_conj()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy().tobytes()


def close(found: Tensor, tensor: Tensor) -> None:
    """One row of `summarize` against its definition."""
    row, truth = found.double().tolist(), torch.tensor(reference.summarize(tensor)).double().tolist()
    names = ("l2", "mean", "std", "absmax", "absmean", "zeros", "tiny", "nonfinite")
    size = truth[3] if math.isfinite(truth[3]) else 0.0
    spread = 1e-5 * truth[4] if math.isfinite(truth[4]) else 0.0
    slack = {"mean": spread, "std": 2e-6 * size}
    relative = {"l2": 2e-5, "mean": 1e-4, "std": 2e-3, "absmean": 2e-5}
    for name, got, want in zip(names, row, truth, strict=True):
        assert math.isnan(got) == math.isnan(want), (name, got, want)
        if not math.isnan(want):
            allowed = slack.get(name, 0.0) + abs(want) * relative.get(name, 1e-6)
            assert got == want or abs(got - want) <= allowed, (name, got, want)
