"""Does a language model see the token that it must predict? Ids given against ids wanted, and what attention saw.

Read from the graph alone, on the few steps on which it is walked anyway: nothing is computed a second time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.facts import TokenTargetsFact
from torchdoctor.probes.attention import FUSED, SOFTMAXES
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import ACCUMULATE, NODES_LIMIT, output_shape
from torchdoctor.probes.saved import saved

LEAST_LENGTH = 4
LOOKS = 12
SHIFTED = 0.3
"""Share of targets that are an embedded id one place later: words are dropped from a decoder's input, but not most."""
RELATED = 0.9
"""Below this share of equal ids, inputs and targets are of different kinds (tags, classes) or masked."""


@dataclass
class Sight:
    """What the graph between the ids and the loss lets a position see."""

    causal: int = 0
    ahead: list[Any] = field(default_factory=list)
    embeds_by_position: bool = False
    starts_at: int | None = None
    """the first position whose output the loss takes, where it takes all but one"""
    embedded: list[Tensor] = field(default_factory=list)
    """ids that were looked up, a row for each sample"""


class TokenTargetsProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._looks = self._walks = 0
        self._given: list[Tensor] = []

    @contained("token_targets: given")
    def given(self, tensors: list[Tensor]) -> None:
        """What a model is called with in training; the last call before the backward counts."""
        if self._looks < LOOKS and any(is_ids(t) for t in tensors):
            self._given = [t.detach() for t in tensors]

    def forget(self) -> None:
        """The pass raised, so no loss follows it."""
        self._given = []

    @contained("token_targets: look")
    def look(self, loss: Tensor, targets: list[Tensor], place: Place | None) -> None:
        """Compare what the model was given with what the loss wants. CPU or device, a few small reads."""
        inputs, self._given = self._given, []
        if self._looks >= LOOKS or not targets or loss.grad_fn is None:
            return
        target = targets[-1].detach()
        ids = [t for t in inputs if is_ids(t)]
        if not ids or target.is_floating_point() or target.dtype == torch.bool or target.device != ids[0].device:
            return
        aligned = align(ids[0], target)
        if aligned is None and (len(ids) < 2 or self._walks >= LOOKS):
            return
        self._walks += 1
        sight = walk_sight(loss.grad_fn, ids[0].shape[1], ids[0].numel())
        sight.embedded = [t for t in sight.embedded if t.device == target.device]
        compared = self._compare_decoder(sight.embedded, target, place)
        self._looks += compared or aligned is not None
        if aligned is None:
            return
        given, following, wanted = aligned
        if sight.starts_at == 1 and wanted.shape == given.shape and target.numel() < ids[0].numel():
            given, following = following, given
        telling = (given != following) & (wanted >= 0)
        count = telling.sum().clamp(min=1)
        shares = torch.stack(
            [
                ((given == wanted) & telling).sum() / count,
                ((following == wanted) & telling).sum() / count,
                (target < 0).float().mean(),
                telling.sum().float(),
            ]
        )
        both_ways = [
            name
            for _, model in self._context.names.live_models()
            for name, module in model.named_modules()
            if isinstance(module, nn.RNNBase) and module.bidirectional
        ]
        others = [t for t in inputs if t is not ids[0] and t.numel() > 1 and t.data_ptr() != targets[-1].data_ptr()]
        beside = [t for t in others if t.shape == ids[0].shape and is_ids(t)]
        step = self._context.step
        fact = TokenTargetsFact(
            input_shape=list(ids[0].shape),
            target_shape=list(target.shape),
            same=0.0,
            following=0.0,
            causal=sight.causal,
            both_ways=both_ways[:8],
            by_position=True if sight.embeds_by_position else None,
            single=all(is_mask(t) for t in others if not any(t is b for b in beside)),
            file=place.file if place else None,
            line=place.line if place else None,
        )
        second = [is_another_sequence(t, ids[0], target).reshape(1) for t in beside]
        shifted = [share_one_later(t, target).reshape(1) for t in sight.embedded]
        parts = [shares, *second, *shifted, *(a.reshape(1) for a in sight.ahead)]

        def arrived(values: Any) -> None:
            same, after, ignored, telling_count, *rest = (float(v) for v in values)
            sequences, ahead = rest[: len(second)], rest[len(second) + len(shifted) :]
            if max(same, after) < RELATED or telling_count < LEAST_LENGTH:
                return
            if same > after and max(rest[len(second) :][: len(shifted)], default=0.0) >= SHIFTED:
                return  # a decoder inside is given the targets one place later: copying is the task
            seen = sum(a > 0 for a in ahead)
            data = fact.to_dict() | {
                "same": same,
                "following": after,
                "ignored": ignored,
                "single": fact.single and not any(sequences),
                "ahead": seen,
                "causal": fact.causal + len(ahead) - seen,
            }
            self._context.record.fact(TokenTargetsFact(**data), step, "")

        self._context.read(torch.cat([p.double() for p in parts]), arrived)

    def _compare_decoder(self, embedded: list[Tensor], target: Tensor, place: Place | None) -> bool:
        """Of two embedded sequences one may be the targets, but then another is the targets shifted."""
        alike = [t for t in embedded if t.numel() == target.numel()]
        others = [[o for o in embedded if o is not t] for t in alike]
        if not any(others):
            return False
        same = [share_of_targets(t, target) for t in alike]
        second = [
            _any([is_another_sequence(o, t, target) for o in rest]) for t, rest in zip(alike, others, strict=True)
        ]
        shifted = [share_one_later(t, target) for t in embedded]
        fact = TokenTargetsFact([], list(target.shape), 0.0, 0.0, single=False, decoder=True)
        if place:
            fact = replace(fact, file=place.file, line=place.line)
        step = self._context.step

        def arrived(values: Any) -> None:
            found, rest = [float(v) for v in values], len(alike)
            k = max(range(rest), key=lambda i: found[i])
            if found[rest + k]:
                told = replace(fact, input_shape=list(alike[k].shape), same=found[k], following=max(found[2 * rest :]))
                self._context.record.fact(told, step, "")

        self._context.read(torch.stack([*same, *second, *shifted]), arrived)
        return True


def share_of_targets(ids: Tensor, target: Tensor) -> Tensor:
    """The share of targets that these ids are, at their own place."""
    wanted = target.reshape(ids.shape)
    telling = wanted >= 0
    telling[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    return ((ids == wanted) & telling).sum().double() / telling.sum().clamp(min=LEAST_LENGTH)


def share_one_later(ids: Tensor, target: Tensor) -> Tensor:
    """The share of targets that these ids are one place later, as the input of a decoder is: along either dimension,
    with as many places as the targets or one more, whose output the loss leaves out."""
    shares = []
    for time in (0, 1):
        length, rows = ids.shape[time], ids.shape[1 - time]
        for wanted_length in (length, length - 1):
            if wanted_length * rows != target.numel() or wanted_length < 2:
                continue
            wanted = target.reshape((wanted_length, rows) if time == 0 else (rows, wanted_length))
            now, later = ids.narrow(time, 0, length - 1), ids.narrow(time, 1, length - 1)
            wanted = wanted.narrow(time, 0, length - 1)
            telling = (now != later) & (wanted >= 0)
            shares.append(((later == wanted) & telling).sum().double() / telling.sum().clamp(min=LEAST_LENGTH))
    return torch.stack(shares).amax() if shares else torch.zeros((), dtype=torch.float64, device=target.device)


def _any(flags: list[Tensor]) -> Tensor:
    return torch.stack([f.double() for f in flags]).amax()


def is_ids(tensor: Tensor) -> bool:
    return (
        not tensor.is_floating_point()
        and not tensor.is_complex()
        and tensor.dtype != torch.bool
        and tensor.dim() == 2
        and tensor.shape[1] >= LEAST_LENGTH
        and tensor.shape[0] >= 1
    )


def is_mask(tensor: Tensor) -> bool:
    """Flags, lengths and square masks tell nothing about the tokens."""
    return tensor.dtype == torch.bool or tensor.dim() <= 1 or tensor.shape[-1] == tensor.shape[-2]


def is_another_sequence(tensor: Tensor, ids: Tensor, target: Tensor) -> Tensor:
    """A second sequence: not a mask of 0 and 1, not positions (equal in all rows), not the ids or targets again."""
    if len(tensor) == 1 < len(ids):
        return torch.zeros((), dtype=torch.bool, device=tensor.device)
    differs = tensor.max() > 1
    if tensor.shape == ids.shape:
        differs = differs & ((tensor != ids) & (tensor >= 0)).any()
    if len(tensor) > 1:
        differs = differs & (tensor[0] != tensor[-1]).any()
    if target.numel() == tensor.numel():
        wanted = target.reshape(tensor.shape)
        differs = differs & ((wanted != tensor) & (wanted >= 0)).any()
    return differs


def align(ids: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The ids at the targets' own positions, those after them, and the targets, all of one shape.

    Time runs along dimension 1, or along 0 in the older recurrent style: that with which the next ids agree.
    """
    rows, length = ids.shape
    if target.numel() == rows * length:
        wanted = target.reshape(rows, length)
        along = (ids[:, :-1], ids[:, 1:], wanted[:, :-1])
        if rows > LEAST_LENGTH and ids.device.type == "cpu":  # elsewhere the question would wait for the device
            across = (ids[:-1], ids[1:], wanted[:-1])
            if bool((across[1] == across[2]).float().mean() > RELATED):
                return across
        return along
    if target.numel() == rows * (length - 1):
        return ids[:, :-1], ids[:, 1:], target.reshape(rows, length - 1)
    return None


def walk_sight(root: Any, length: int, positions: int) -> Sight:
    """Attention over the sequence in the graph, and whether a path of whole sequences leads from loss to embedding."""
    sight = Sight()
    queue = deque([(root, True)])
    seen: dict[Any, bool] = {root: True}
    while queue and len(seen) < NODES_LIMIT:
        node, along = queue.popleft()
        name = node.name()
        if name.startswith("EmbeddingBackward"):
            sight.embeds_by_position |= along
            sight.embedded += [t.detach() for t in _saved(node, "indices") if is_ids(t)]
        _read_attention(node, name, length, sight)
        if sight.starts_at is None and name.startswith("SliceBackward"):
            sight.starts_at = _start_of_slice(node, length)
        for child, _ in node.next_functions:
            if child is None or child.name() == ACCUMULATE:
                continue
            keeps = along and _is_whole(child, length, positions)
            if child not in seen or (keeps and not seen[child]):
                seen[child] = keeps
                queue.append((child, keeps))
    return sight


def _start_of_slice(node: Any, length: int) -> int | None:
    shape, dim = output_shape(node), int(getattr(node, "_saved_dim", -1))
    if shape is None or not 0 <= dim < len(shape) or shape[dim] != length - 1:
        return None
    return int(getattr(node, "_saved_start", 0))


def _is_whole(node: Any, length: int, positions: int) -> bool:
    """Its output has an entry for every position; one of unknown shape may have."""
    shape = output_shape(node)
    if shape is None:
        return False
    return any(size in (length, length - 1, positions, positions - positions // length) for size in shape) or not shape


def _read_attention(node: Any, name: str, length: int, sight: Sight) -> None:
    if name in SOFTMAXES:
        for weights in _saved(node, "result"):
            if (
                weights.dim() >= 3
                and weights.shape[-1] == weights.shape[-2]
                and weights.shape[-1] in (length, length - 1)
            ):
                sight.ahead.append(weights.detach().triu(1).abs().amax())
    elif name.startswith(FUSED):
        query = next(_saved(node, "query"), None)
        key = next(_saved(node, "key"), None)
        if query is None or key is None or query.shape[-2] != key.shape[-2]:
            return
        if query.shape[-2] not in (length, length - 1):
            return
        mask = next(_saved(node, "attn_mask", "attn_bias"), None)
        if getattr(node, "_saved_is_causal", False):
            sight.causal += 1
        elif mask is None:
            sight.ahead.append(torch.ones((), device=query.device))
        else:
            size = query.shape[-2]
            open_ = torch.isfinite(mask.detach().float()) & (mask.detach().float() > BLOCKED)
            sight.ahead.append(open_[..., :size, :size].expand(*open_.shape[:-2], size, size).triu(1).any().float())


BLOCKED = -1e4
"""A bias below this hides a position as well as minus infinity does."""


def _saved(node: Any, *names: str) -> Iterator[Tensor]:
    yield from (value for name in names if (value := saved(node, name)) is not None)
