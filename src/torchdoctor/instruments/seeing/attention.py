"""Where a model attends, layer by layer and head by head, for one sample; and which heads look at nothing in
particular."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.one_batch import one_batch
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.seeing.attending import MOST_KEYS, Attention, Catcher, named_calls
from torchdoctor.instruments.seeing.calling import Call, check_time_first, given_to, make_subject
from torchdoctor.instruments.seeing.padding import padding_of
from torchdoctor.instruments.seeing.samples import Array, as_array, main_input, spell
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import Subject, logits_of
from torchdoctor.instruments.tables import table
from torchdoctor.plots.attention_maps import Map, draw_attention
from torchdoctor.report.text import count as counted

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.plots.chart import Chart

EVEN = 0.97
"""Entropy over the most possible: a head above it tells its keys hardly apart."""
ONE = 0.7
"""Of the attention of all queries, on one key or one place beside the query: there is hardly any for others."""
PADDED = 0.01
"""Attention on padding that is worth a word: a mask leaves none."""
FEW = 4
"""Layers that a note names."""
EVENLY, ON_ONE, ITSELF, BEFORE, AFTER = "evenly", "one token", "itself", "the one before", "the one after"
ODD = (EVENLY, ON_ONE)


@dataclass(frozen=True)
class Head:
    layer: str
    head: int
    entropy: float
    """over the most possible, mean of the queries; 0 is one key, 1 is all alike"""
    pattern: str | None
    """evenly, one token, itself, the one before, the one after; None for anything else"""
    share: float | None
    """of the attention that is so spent"""
    token: int | None
    """position that is looked at, where it is one"""
    on_padding: float | None
    """attention of real tokens to padding; None where there is none"""


@dataclass(frozen=True)
class AttentionMaps(Result):
    """`str()` lists the heads, `plot()` shows where they look."""

    title: str
    sample: int
    layers: list[str]
    heads: list[Head]
    on_padding: float | None
    """mean over all heads"""
    tokens: list[str]
    maps: Mapping[str, Array] = field(repr=False, default_factory=dict)
    """by layer: heads x queries x keys"""
    shown: tuple[str | int | None, int | None] = (None, None)
    """layer and head that are drawn, unless others are asked for"""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("layer", "head", "entropy", "on padding", "looks at")
        rows = [
            (h.layer, str(h.head), f"{h.entropy:.2f}", "" if h.on_padding is None else f"{h.on_padding:.1%}", _looks(h))
            for h in self.heads
        ]
        return "\n".join([f"{self.title}.", "", *table(head, rows), *(f"note: {n}" for n in self.notes)])

    def chart(self, layer: str | int | None = None, head: int | None = None) -> Chart:
        """All heads; those of one layer; or one head with its tokens."""
        if layer is None and head is None:
            layer, head = self.shown
        chosen = self.layers if layer is None else [self._layer(layer)]
        known = {(h.layer, h.head): h for h in self.heads}
        wanted = [(name, at) for name in chosen for at in range(len(self.maps[name])) if head in (None, at)]
        if not wanted:
            raise UsageError(f"head is {head}; {chosen[0]} has heads 0 to {len(self.maps[chosen[0]]) - 1}")
        maps = [_map(known[key], self.maps[key[0]][key[1]]) for key in wanted]
        title = self.title if len(maps) > 1 or len(known) == 1 else f"{maps[0].layer}, head {maps[0].head} "
        if len(maps) == 1 < len(known):
            only = known[wanted[0]]
            title += f"looks at {_looks(only)}" if only.pattern else f"has entropy {only.entropy:.2f} of 1"
        return draw_attention(title, maps, self.tokens)

    def plot(self, layer: str | int | None = None, head: int | None = None, theme: str = "light") -> Figure:
        return self.chart(layer, head).figure(theme)

    def to_dict(self) -> dict[str, Any]:
        """Without the maps."""
        kept = super().to_dict()
        del kept["maps"], kept["shown"]
        return kept

    def showing(self, layer: str | int | None, head: int | None) -> AttentionMaps:
        chosen = replace(self, shown=(layer, head))
        if layer is not None or head is not None:
            chosen.chart()  # says what there is, where there is no such
        return chosen

    def _layer(self, layer: str | int) -> str:
        if isinstance(layer, str) and layer.lstrip("-").isdigit() and layer not in self.layers:
            layer = int(layer)
        if isinstance(layer, int) and -len(self.layers) <= layer < len(self.layers):
            return self.layers[layer]
        if layer not in self.layers:
            raise UsageError(f"layer is {layer!r}; there are {', '.join(self.layers)} (0 to {len(self.layers) - 1})")
        return str(layer)


@unseen()
@explained
def attention_maps(
    model: nn.Module,
    inputs: Any,
    sample: int = 0,
    *,
    layer: str | int | None = None,
    head: int | None = None,
    call: Call | None = None,
    decode: Any = None,
) -> AttentionMaps:
    """Run the model on a batch in eval mode and catch the attention weights of one sample.

    `inputs`: a batch as a loader gives it, (inputs, target) or a mapping, inputs alone, or the loader itself;
    `call(model, batch)` where the model is called in another way. Seen are nn.MultiheadAttention,
    scaled_dot_product_attention, models of Hugging Face, and a softmax over products of queries and keys. `layer` (its
    name or number) and `head` choose what `plot()` shows. `decode`: a tokenizer, or a function from a list of ids to
    text. Nothing is changed.
    """
    subject, batch = make_subject(model, call), one_batch(inputs)
    with untouched(*subject.parts):
        model.eval()
        return catch_attention(subject, batch, sample, decode).showing(layer, head)


def catch_attention(subject: Subject, batch: Any, sample: int, decode: Any = None) -> AttentionMaps:
    """In the mode that the model is in; what is changed has to be put back by the caller."""
    given: dict[str, Tensor] = {}
    catcher = Catcher(sample, given)
    with (
        torch.no_grad(),
        torch.compiler.set_stance("force_eager"),
        given_to(subject, given, catcher.caught.clear),
        named_calls(subject.model, catcher.within),
        catcher,
    ):
        outputs = logits_of(subject.outputs(batch))
    if isinstance(outputs, Tensor) and given:
        check_time_first(outputs, *main_input(given))
    if not catcher.caught:
        long = f"; {catcher.too_long} are longer than {MOST_KEYS} keys" if catcher.too_long else ""
        raise UsageError(
            f"no attention was seen in {type(subject.model).__name__}{long}: neither nn.MultiheadAttention nor "
            "scaled_dot_product_attention nor a softmax over products of queries and keys"
        )
    return _conclude(catcher, given, sample, subject.model, decode)


def _conclude(catcher: Catcher, given: dict[str, Tensor], sample: int, model: nn.Module, decode: Any) -> AttentionMaps:
    padded = padding_of(given, sample, model)
    heads = [_describe(a, number, padded) for a in catcher.caught for number in range(len(a.weights))]
    known = [h.on_padding for h in heads if h.on_padding is not None]
    on_padding = float(np.mean(known)) if known else None
    tokens = _tokens(given, sample, decode)
    return AttentionMaps(
        title=_title(heads, on_padding),
        sample=sample,
        layers=[a.layer for a in catcher.caught],
        heads=heads,
        on_padding=on_padding,
        tokens=tokens,
        maps={a.layer: a.weights for a in catcher.caught},
        notes=_notes(catcher),
    )


def _notes(catcher: Catcher) -> list[str]:
    notes = [f"{catcher.too_long} attentions of more than {MOST_KEYS} keys are left out"] if catcher.too_long else []
    if catcher.windows:
        some = ", ".join(f"{layer} ({count})" for layer, count in list(catcher.windows.items())[:FEW])
        more = f" and {len(catcher.windows) - FEW} more" if len(catcher.windows) > FEW else ""
        notes.append(f"a sample has several maps a head in {some}{more}, as windows have: the first is shown")
    return notes


def _describe(attention: Attention, number: int, padded: Array | None) -> Head:
    weights = np.asarray(attention.weights[number], np.float64)
    queries, keys = weights.shape
    fits = padded is not None and keys == len(padded)
    real = ~padded if fits and queries == keys and padded is not None else np.ones(queries, bool)
    real &= weights.sum(1) > 0.5
    rows, open_ = weights[real], _open_keys(attention.weights)[real]
    on_padding = float(rows[:, padded].sum(1).mean()) if fits and len(rows) and padded.any() else None  # type: ignore[union-attr]
    pattern, share, token = _pattern(weights, real, open_)
    return Head(attention.layer, number, _entropy(rows, open_), pattern, share, token, on_padding)


def _open_keys(weights: Array) -> Array:
    """How many keys each query may look at: those that some head does. Where all heads together look at one or two, the
    others may be masked or weigh too little for the format: then all, up to the query where nobody looks ahead."""
    seen = (weights > 0).any(0)
    queries, keys = seen.shape
    causal = queries == keys and not np.triu(seen, 1).any()
    most = np.arange(1, queries + 1) if causal else np.full(queries, keys)
    counts = seen.sum(1)
    return np.where(counts <= 2, np.maximum(counts, most), counts)


def _entropy(rows: Array, open_: Array) -> float:
    counted_ = open_ > 1
    if not counted_.any():
        return float("nan")
    rows, open_ = rows[counted_], open_[counted_]
    return float((-(rows * np.log(np.maximum(rows, 1e-30))).sum(1) / np.log(open_)).mean())


def _pattern(weights: Array, real: Array, open_: Array) -> tuple[str | None, float | None, int | None]:
    queries, keys = weights.shape
    rows = weights[real]
    choice = open_ > 2  # who may look at one or two alone has no choice
    if not len(rows) or not choice.any():
        return None, None, None
    if queries == keys:
        places = np.flatnonzero(real)
        for offset, name in ((0, ITSELF), (-1, BEFORE), (1, AFTER)):
            at = places + offset
            inside = (at >= 0) & (at < keys)
            share = float(weights[places[inside], at[inside]].mean()) if inside.any() else 0.0
            if share > ONE:
                return name, share, None
    column = rows[choice].mean(0)
    if column.max() > ONE:
        return ON_ONE, float(column.max()), int(column.argmax())
    entropy = _entropy(rows[choice], open_[choice])
    return (EVENLY, entropy, None) if entropy > EVEN else (None, None, None)


def _title(heads: Sequence[Head], on_padding: float | None) -> str:
    kinds = Counter(h.pattern for h in heads)
    parts = []
    if kinds[EVENLY]:
        parts.append(
            f"{_of(kinds[EVENLY], heads)} {'spreads' if kinds[EVENLY] == 1 else 'spread'} evenly over all keys"
        )
    stuck = Counter(h.token for h in heads if h.pattern == ON_ONE)
    if stuck:
        token, times = stuck.most_common(1)[0][0], stuck.total()
        look = "looks" if times == 1 else "look"
        where = f"position {token}" if len(stuck) == 1 else "one position"
        most = "" if len(stuck) == 1 else f", most often at {token}"
        parts.append(f"{_of(times, heads)} {look} at {where} alone{most}")
    for name in (ITSELF, BEFORE, AFTER):
        if kinds[name] > len(heads) / 4 or (kinds[name] and not parts):
            of = "each token itself" if name == ITSELF else f"the token {name.removeprefix('the one ')} each"
            parts.append(f"{_of(kinds[name], heads)} {'looks' if kinds[name] == 1 else 'look'} at {of}")
    if on_padding is not None and on_padding > PADDED:
        parts.insert(0, f"{on_padding:.0%} of the attention falls on padding")
    if not parts:
        entropies = [h.entropy for h in heads if np.isfinite(h.entropy)]
        spread = f"{min(entropies):.2f} to {max(entropies):.2f}" if entropies else "not known"
        return f"None of {counted(len(heads), 'head')} is even or stuck on one token; entropy {spread} of 1"
    told = "; ".join(parts)
    return told[:1].upper() + told[1:]


def _of(count: int, heads: Sequence[Head]) -> str:
    return f"all {len(heads)} heads" if count == len(heads) > 1 else f"{count} of {counted(len(heads), 'head')}"


def _looks(head: Head) -> str:
    if head.pattern is None or head.share is None:
        return ""
    if head.pattern == EVENLY:
        return "all keys evenly"
    where = f"position {head.token}" if head.pattern == ON_ONE else head.pattern
    return f"{where} ({head.share:.0%})"


def _map(head: Head, weights: Array) -> Map:
    named = {EVENLY: "even", ON_ONE: f"all on {head.token}", ITSELF: "itself", BEFORE: "before", AFTER: "after"}
    said = named[head.pattern] if head.pattern is not None else f"{head.entropy:.2f}"
    return Map(head.layer, head.head, weights, f"{head.head}: {said}", head.pattern in ODD)


def _tokens(given: Mapping[str, Tensor], sample: int, decode: Callable[..., Any] | None) -> list[str]:
    _, tensor = main_input(given)
    if tensor.dim() != 2 or tensor.is_floating_point():
        return []
    row = as_array(tensor[sample])
    return spell([row], decode)[0] if decode is not None else [str(token) for token in row.tolist()]
