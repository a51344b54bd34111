"""A mask does not hide padding, hides everything but padding, or hides everything.

## What it means
Sequences of different lengths are filled up with padding to stand in one batch. A mask has to keep attention off it. If
it does not, what a token is turned into depends on how long its neighbours in the batch happen to be; if the mask is
inverted, attention sees nothing but padding; if all keys of a query are hidden, the result is NaN or an average.

## Why it happens
- No mask is passed on, or it stops on the way (a layer that ignores the argument).
- `True` means "ignore" to nn.MultiheadAttention's key_padding_mask and "take part" to F.scaled_dot_product_attention
  and to Hugging Face's attention_mask.
- `masked_fill(mask, 1e-9)` instead of `-1e9`; a mask of zeros and ones that is added to the scores; a mask applied
  after the softmax; a mask with the wrong dimension broadcast.

## How it is detected
Padding is found in the inputs: one token (or a vector of zeros) that fills the ends of at least a third of the
sequences, to different lengths, and stands nowhere else. Then the attention weights of real queries on padded keys are
added up, on the first looks, before a model has learned to look away. Nine tenths or more are an error (the mask is
inverted), at least half of the padding's share of the keys is a warning (it is not applied). Queries from which every
key is hidden are an error where the query is known to be real, or where it is so for nearly all.

## How to fix it
Build the mask from the tokens, once, and say for each call what True means there:
`key_padding_mask = tokens == pad` for nn.MultiheadAttention and nn.TransformerEncoder;
`attn_mask = (tokens != pad)[:, None, None, :]` for scaled_dot_product_attention.

## Known false alarms
Causal attention with padding at the end does not see it and is not reported. Where a token that is no padding fills the
ends of many sequences and stands nowhere else (a stop symbol repeated on purpose), attending to it may be meant.

## References
PyTorch documentation, torch.nn.MultiheadAttention and torch.nn.functional.scaled_dot_product_attention. Vaswani et al.,
"Attention is all you need" (2017).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ATTENTION

ON_PADDING, PADDED, EMPTY, CAUSAL = (ATTENTION[n] for n in ("on_padding", "padded", "empty", "causal"))

RULE = Rule(
    code="A017",
    name="attention-mask-ineffective",
    family="architecture",
    needs=(EMPTY,),
    explains=(
        "attention-collapse",
        "nonfinite-parameters",
        "log-of-zero",
        "division-by-zero",
        "exp-overflow",
        "sqrt-at-zero",
        "representation-collapse",
        "vanishing-gradients",
        "learning-rate-too-low",
        "learning-rate-too-high",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "overfitting",
        "majority-class-collapse",
        "saturated-activations",
    ),
)

INVERTED = 0.9
APPLIED = 0.5
"""Of the padding's share of keys: a mask in effect leaves nothing, none leaves about all of it."""
LEAST_PADDING = 0.05
EMPTY_REAL, EMPTY_ANY = 0.01, 0.9
MIN_LOOKS, FIRST_LOOKS = 3, 5


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    seen = {signal: _medians(run, signal.name) for signal in (ON_PADDING, PADDED, EMPTY)}
    on_padding, padded, empty = seen[ON_PADDING], seen[PADDED], seen[EMPTY]
    known = [n for n in on_padding if padded.get(n, 0.0) >= LEAST_PADDING]
    inverted = [n for n in known if on_padding[n] >= INVERTED > padded[n]]
    unmasked = [n for n in known if APPLIED * padded[n] <= on_padding[n] and n not in inverted]
    hidden = [n for n, share in empty.items() if share >= (EMPTY_REAL if n in known else EMPTY_ANY)]
    if inverted:
        yield _inverted(inverted, on_padding, padded)
    elif hidden:
        yield _hidden(hidden, empty, known)
    elif 2 * len(unmasked) >= len(known) > 0:
        yield _unmasked(unmasked, on_padding, padded)
    elif known:
        most = max(on_padding[n] for n in known)
        yield RuledOut(RULE.name, f"attention gives at most {most:.1%} of its weight to padding", ON_PADDING.name, most)


def _medians(run: Run, name: str) -> dict[str, float]:
    """By attention, over the first looks: a model may learn to look away from padding, a mask need not."""
    signal = next(s for s in ATTENTION.values() if s.name == name)
    trace = run.matrix(signal)
    found = {}
    for column in trace.columns:
        values = trace.column(column).values
        values = values[np.isfinite(values)]
        if len(values) >= MIN_LOOKS:
            found[column] = float(np.median(values[:FIRST_LOOKS]))
    return found


def _inverted(names: list[str], on_padding: dict[str, float], padded: dict[str, float]) -> Finding:
    worst = max(names, key=lambda n: on_padding[n])
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.95,
        proof=Proof.STRUCTURE,
        title=f"the mask is inverted: attention sees nothing but padding ({worst})",
        summary="Real tokens give nearly all their attention to padding. The mask means the opposite of what this "
        "attention takes it for.",
        where=_places(names),
        evidence=[_evidence(worst, on_padding, padded, INVERTED)],
        fix=Fix(
            "Turn the mask round. True means ignore for key_padding_mask of torch's modules, and take part for "
            "scaled_dot_product_attention.",
            "mask = ~mask  # key_padding_mask = tokens == pad for nn.MultiheadAttention and nn.TransformerEncoder",
        ),
        symptoms=("stuck-at-chance", "slow-descent"),
    )


def _unmasked(names: list[str], on_padding: dict[str, float], padded: dict[str, float]) -> Finding:
    worst = max(names, key=lambda n: on_padding[n])
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85,
        proof=Proof.STRUCTURE,
        title=f"padding is attended: it gets {on_padding[worst]:.0%} of the attention ({worst})",
        summary="Sequences are filled up with padding, and no mask in effect keeps attention off it: the result for a "
        "sequence depends on how long the others in its batch are.",
        where=_places(names),
        evidence=[_evidence(worst, on_padding, padded, APPLIED * padded[worst])],
        fix=Fix(
            "Pass the mask to every attention, hide padding before the softmax, with a large negative number.",
            "scores = scores.masked_fill((tokens == pad)[:, None, None, :], float('-inf'))  # or "
            "src_key_padding_mask=tokens == pad",
        ),
        symptoms=("slow-descent",),
    )


def _hidden(names: list[str], empty: dict[str, float], known: list[str]) -> Finding:
    worst = max(names, key=lambda n: empty[n])
    is_sure = worst in known or empty[worst] >= 1 - EMPTY_REAL
    return RULE.finding(
        severity=Severity.ERROR if is_sure else Severity.WARNING,
        confidence=0.93 if is_sure else 0.75,
        proof=Proof.STRUCTURE,
        title=f"the mask hides every key from {empty[worst]:.0%} of the queries ({worst})",
        summary="A softmax over nothing is NaN with a mask of -inf, and the plain average of everything with a large "
        "negative number: attention does not choose at all there.",
        where=_places(names),
        evidence=[
            Evidence(
                f"{worst}: {empty[worst]:.0%} of {'real ' if worst in known else ''}queries have no key left",
                EMPTY.name,
                empty[worst],
                EMPTY_REAL if worst in known else EMPTY_ANY,
            )
        ],
        fix=Fix(
            "Check what True means in this mask and which dimension it stands for; let every query see at least "
            "itself.",
            "assert not mask.all(-1).any()  # where True hides a key",
        ),
        symptoms=("stuck-at-chance", "nan-at-first-step"),
    )


def _evidence(name: str, on_padding: dict[str, float], padded: dict[str, float], threshold: float) -> Evidence:
    return Evidence(
        f"{name}: {padded[name]:.0%} of the keys are padding, and real tokens give them {on_padding[name]:.0%} of "
        "their attention",
        ON_PADDING.name,
        on_padding[name],
        threshold,
    )


def _places(names: list[str]) -> list[Place]:
    return [Place(module=n.removeprefix("attention after ")) for n in names[:4]]
