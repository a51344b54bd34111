"""What may be wrong with the inputs of a batch, by the limits of the rules on data."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchdoctor.findings import Severity
from torchdoctor.instruments.one_look.problems import Problem, Seen, nonfinite_problem
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data.columns import is_constant
from torchdoctor.rules.data.constant_inputs import DEAD_SHARE, LEAST_SAMPLES, NOTHING
from torchdoctor.rules.data.unnormalized_inputs import EXTREME, LARGE, SPREAD
from torchdoctor.stats import features

CHANNELS = (1, 3, 4)
BYTES = 255
STANDARD_MEAN, STANDARD_STD = 0.5, (0.4, 2.5)
"""Of one batch: of many samples nearer, of few or of one class farther from 0 and 1."""
FEW_SAMPLES = 16
"""Fewer samples than this say little about what is constant."""


def words_of_input(seen: Seen) -> str:
    """The scale, in words."""
    if not seen.is_float:
        if seen.is_mask or seen.dtype == "bool":
            return "mask"
        return "bytes" if seen.dtype == "uint8" else "whole numbers"
    if not seen.shape or seen.std != seen.std:
        return ""
    if seen.std == 0:
        return "constant"
    if abs(seen.mean) <= STANDARD_MEAN and STANDARD_STD[0] <= seen.std <= STANDARD_STD[1]:
        return "standardised"
    if seen.low >= 0 and seen.high <= 1:
        return "between 0 and 1"
    if seen.low >= -1 and seen.high <= 1:
        return "between -1 and 1"
    return "small" if seen.size < LARGE else "not normalised"


def input_problems(seen: Seen, tensor: Tensor) -> list[Problem]:
    if not tensor.numel() or not seen.shape:
        return []
    found = [nonfinite_problem(seen, tensor)] if seen.nonfinite else []
    found += _types(seen, tensor)
    if seen.is_mask:
        return [*found, *_mask(seen, tensor)]
    found += _sameness(seen, tensor)
    if seen.is_float and seen.std > 0:
        found += [*_scale(seen, tensor), *_layout(seen)]
    elif not seen.is_float and seen.low < 0 and len(seen.shape) == 2:
        text, fix = f"whole numbers from {figure(seen.low)}", "Token ids begin at 0; an embedding fails below it."
        found.append(Problem(Severity.WARNING, seen.name, text, fix))
    return found


def _types(seen: Seen, tensor: Tensor) -> Iterator[Problem]:
    if seen.dtype == "float64":
        yield Problem(
            Severity.WARNING,
            seen.name,
            "it is float64, models are float32 unless told otherwise",
            "Convert it in the dataset: x.float(), or array.astype('float32').",
        )
    if seen.dtype == "uint8" and len(seen.shape) >= 3:
        yield Problem(
            Severity.ERROR,
            seen.name,
            "it holds bytes; layers want floating-point numbers",
            "x.float() / 255, or torchvision's ToDtype(torch.float32, scale=True).",
        )
    if tensor.requires_grad and not tensor.is_leaf:
        yield Problem(
            Severity.WARNING,
            seen.name,
            "it carries a graph from where it was made",
            "Memory grows and backward() goes through it; detach() it in the dataset, unless this is meant.",
        )


def _mask(seen: Seen, tensor: Tensor) -> Iterator[Problem]:
    if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32, torch.bool):
        empty = int((tensor == 0).all(1).sum())
        if empty:
            yield Problem(
                Severity.WARNING,
                seen.name,
                f"{empty} of {len(tensor)} rows are masked altogether",
                "Attention over nothing is NaN or a plain mean; leave such samples out.",
            )


def _sameness(seen: Seen, tensor: Tensor) -> Iterator[Problem]:
    count = len(tensor)
    if tensor.dim() < 2 or count < LEAST_SAMPLES:
        return
    rows = tensor.detach().flatten(1)
    distinct = len({row.tobytes() for row in rows.float().cpu().numpy()})
    spread = float((rows.float() - rows[:1].float()).abs().max())
    if distinct == 1 or (seen.is_float and spread < NOTHING * max(seen.size, 1e-30)):
        yield Problem(
            Severity.ERROR,
            seen.name,
            f"all {count} samples are the same",
            "Look at the dataset's __getitem__: it may ignore its index, or return one buffer again and again.",
        )
        return
    if distinct < count:
        severity = Severity.WARNING if distinct <= count // 2 else Severity.INFO
        text = f"{count - distinct} of {count} samples are copies of others"
        yield Problem(severity, seen.name, text, "Duplicates, or a sampler that draws with replacement?")
    if seen.is_float and count >= FEW_SAMPLES:
        yield from _constant_features(seen, tensor)


def _constant_features(seen: Seen, tensor: Tensor) -> Iterator[Problem]:
    _, _, low_F, high_F = features(tensor, 1)
    if len(low_F) < 2:
        return
    still = torch.from_numpy(is_constant(low_F.double().cpu(), high_F.double().cpu(), str(tensor.dtype)))
    count, what = int(still.sum()), "channels" if seen.is_image else "features"
    if not count:
        return
    share = count / len(still)
    severity = Severity.WARNING if share > DEAD_SHARE or seen.is_image else Severity.INFO
    among = f"of {len(still)}" + (" looked at" if len(still) < seen.shape[1] else "")
    where = ", ".join(map(str, torch.nonzero(still).flatten().tolist()[:5]))
    text = f"{count} {among} {what} are constant in this batch (number {where}{' ...' * (count > 5)})"
    yield Problem(severity, seen.name, text, "Constant features teach nothing; rare ones may vary in other batches.")


def _scale(seen: Seen, tensor: Tensor) -> Iterator[Problem]:
    if seen.is_image and seen.low >= 0 and BYTES / 2 < seen.high <= BYTES:
        text = f"pixels up to {figure(seen.high)}, as they are in the file"
        yield Problem(Severity.WARNING, seen.name, text, "Divide by 255, best standardise by channel.")
        return
    sizes, ratio, at = _feature_sizes(tensor)
    largest = max(seen.size, sizes)
    if largest >= EXTREME:
        where = f" (feature {at})" if sizes > seen.size else ""
        yield Problem(
            Severity.WARNING,
            seen.name,
            f"not normalised: of size {figure(largest)}{where}, from {figure(seen.low)} to {figure(seen.high)}",
            "Standardise with mean and std of the training set: x = (x - mean) / std.",
        )
    elif ratio > SPREAD:
        yield Problem(
            Severity.WARNING,
            seen.name,
            f"features differ {figure(ratio)}-fold in scale",
            "Standardise each feature with mean and std of the training set.",
        )
    elif seen.size >= LARGE:
        text = f"large: root mean square {figure(seen.size)}, where layers are made for about 1"
        yield Problem(Severity.INFO, seen.name, text, "Standardise it unless the model does so itself.")


def _feature_sizes(tensor: Tensor) -> tuple[float, float, int]:
    """The largest feature's size, by how much spreads differ, and which is the largest; flags of 0 and 1 left out."""
    if tensor.dim() != 2 or len(tensor) < LEAST_SAMPLES:
        return 0.0, 1.0, 0
    mean_F, std_F, low_F, high_F = features(tensor, 1).double()
    kept = ~((low_F >= 0) & (high_F <= 1)) & torch.isfinite(std_F)
    if not kept.any():
        return 0.0, 1.0, 0
    size_F = torch.where(kept, (mean_F.square() + std_F.square()).sqrt(), 0.0)
    moving = std_F[kept & (std_F > 0)]
    ratio = float(moving.max() / moving.min()) if len(moving) > 1 else 1.0
    step = -(-tensor.shape[1] // len(size_F))
    return float(size_F.max()), ratio, int(size_F.argmax()) * step


def _layout(seen: Seen) -> Iterator[Problem]:
    if len(seen.shape) == 4 and seen.shape[3] in CHANNELS and seen.shape[1] not in CHANNELS and seen.shape[1] > 4:
        yield Problem(
            Severity.WARNING,
            seen.name,
            f"channels seem to come last in {tuple(seen.shape)}",
            "Convolutions of torch want them second: x.permute(0, 3, 1, 2).",
        )
