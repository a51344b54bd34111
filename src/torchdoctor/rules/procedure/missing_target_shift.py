"""A language model sees the token that it must predict.

## What it means
A language model predicts the next token from those before it. If its targets are its own inputs, unshifted, it only
has to copy; if it may look ahead, the answer stands one place to the right. Either way the loss falls to nearly zero
within a few hundred steps, and the model cannot write a sentence.

## Why it happens
`y = x.clone()` (or `labels=input_ids` for a model that does not shift by itself), a shift applied to both sides or to
neither, `is_causal=False` or a forgotten `attn_mask`, a mask of the wrong triangle, off by one or added after the
softmax, a bidirectional recurrent network.

## How it is detected
On the first steps the ids that the model was given are compared with those that the loss wants. Equal at the same
place: the shift is missing. Equal to the next: then the graph is read. Attention weights of the sequence's length whose
upper triangle is not zero, attention without a causal mask, or a recurrent module that runs both ways let a position
see the next one. Where two sequences are embedded (encoder and decoder), one of them may be the targets (a task of
copying), but then another one must be the targets shifted. No value of the loss is needed, so it shows from the first
step on.

## How to fix it
`inputs, targets = ids[:, :-1], ids[:, 1:]`, and `is_causal=True` or
`mask = nn.Transformer.generate_square_subsequent_mask(length)` in every attention layer.

## Known false alarms
Masked language models change their inputs, so they differ from the targets and are not reported. A denoising model
neither. An autoencoder of token sequences wants its inputs back, but sends them through one code: unless a path for
each single position leads past it (or the loss falls to nothing), it is not reported. Encoder-decoder models are given
two sequences and are not judged by what the encoder sees. Prefix language models, which may look ahead inside the
prefix, ignore the prefix in the loss and are not reported.

## References
Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018. Vaswani et al., "Attention Is All
You Need", 2017, section 3.2.3. Devlin et al., "BERT", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchdoctor.facts import TokenTargetsFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import baseline
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN

RULE = Rule(
    code="T013",
    name="missing-target-shift",
    family="procedure",
    needs=(TokenTargetsFact,),
    explains=("label-leakage", "overfitting", "train-validation-overlap", "validation-better-than-training"),
)

SAME = 0.999
"""Share of targets equal to their own input. Masking hides 15 % of them, so a masked model stays far below."""
FOLLOWING = 0.98
"""Share of targets equal to the next input; the rest are ends of documents."""
SHIFTED = 0.3
"""Share of targets that a decoder was given one place later, as it should be; words may be dropped on the way."""
TOO_GOOD = 0.05
"""Loss over that of a uniform guess. Characters of English need about a third of it, words more."""
MOST_IGNORED = 0.02
"""A loss that skips more than the ends of rows may be that of a prefix model."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    decoded = [f for f in run.facts(TokenTargetsFact) if f.decoder]
    copied = [f for f in decoded if f.same >= SAME and f.following < SHIFTED]
    if copied and len(copied) > len(decoded) / 2:
        yield _unshifted(run, copied[-1])
        return
    looks = [f for f in run.facts(TokenTargetsFact) if not f.decoder]
    same = [f for f in looks if f.same >= SAME and f.following < SAME]
    following = [f for f in looks if f.following >= FOLLOWING and f.same < SAME]
    if same and len(same) > len(looks) / 2:
        fact = same[-1]
        if _copies(run, fact):
            yield _unshifted(run, fact)
    elif following and all(_looks_ahead(f) for f in following):
        yield _sees_ahead(run, following[-1])
    elif following and all(f.causal and not f.ahead for f in following):
        yield RuledOut(RULE.name, "targets are the next tokens, and attention sees nothing ahead")


def _copies(run: Run, fact: TokenTargetsFact) -> bool:
    """A copy of the input is within reach position by position, or the loss shows that it was found."""
    if not fact.single:
        return False
    return bool(fact.by_position) or fact.causal > 0 or _too_good(run)


def _looks_ahead(fact: TokenTargetsFact) -> bool:
    if not fact.single or fact.ignored > MOST_IGNORED:
        return False
    return (fact.ahead > 0 and fact.causal == 0) or (bool(fact.both_ways) and not fact.causal)


def _too_good(run: Run) -> bool:
    loss, chance = loss_curve(run), baseline.chance(run)
    return loss is not None and chance is not None and bool(loss.end < TOO_GOOD * chance)


def _unshifted(run: Run, fact: TokenTargetsFact) -> Finding:
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.97 if fact.causal else 0.9,
        proof=Proof.STRUCTURE,
        title="the decoder is given the targets themselves: the shift by one token is missing"
        if fact.decoder
        else "the targets are the inputs themselves: the shift by one token is missing",
        summary="The loss asks at every position for the token that the model was given there. It learns to copy, not "
        "to predict.",
        where=known(Place(file=fact.file, line=fact.line)),
        first_step=0,
        evidence=[
            Evidence(
                f"{fact.same:.1%} of the targets equal the input at their own position, {fact.following:.1%} the next",
                TokenTargetsFact.kind,
                fact.same,
                SAME,
            ),
            *_loss(run),
        ],
        fix=Fix(
            "Give the decoder a start token and the target without its last one; the loss asks for the target. (Where "
            "the target begins with a start token: target[:, :-1] in, target[:, 1:] wanted.)"
            if fact.decoder
            else "Give the tokens without the last one and ask for those without the first.",
            "decoder_input = torch.cat([start, target[:, :-1]], dim=1)  # start: a column of the start token"
            if fact.decoder
            else "inputs, targets = ids[:, :-1], ids[:, 1:]",
        ),
        symptoms=("too-good-too-soon",),
    )


def _sees_ahead(run: Run, fact: TokenTargetsFact) -> Finding:
    if fact.ahead:
        what = f"{fact.ahead} attention layer{'s' if fact.ahead > 1 else ''} without a causal mask"
        seen = f"{fact.ahead} attention operators over {fact.input_shape[-1]} positions give weight to later ones"
        fix = Fix(
            "Mask what lies ahead in every attention layer.",
            "F.scaled_dot_product_attention(q, k, v, is_causal=True)  "
            "# nn.TransformerEncoder: mask=nn.Transformer.generate_square_subsequent_mask(length)",
        )
    else:
        what = f"{fact.both_ways[0]} runs in both directions"
        seen = f"{', '.join(fact.both_ways)}: a recurrent module with bidirectional=True"
        fix = Fix("Let the recurrent network run forward only.", "nn.LSTM(width, width, batch_first=True)")
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.96,
        proof=Proof.STRUCTURE,
        title=f"the model can look at the token that it must predict: {what}",
        summary="The targets are the next tokens, and a position may look at later positions: the answer is in plain "
        "sight.",
        where=known(
            *(Place(module=name) for name in fact.both_ways if not fact.ahead), Place(file=fact.file, line=fact.line)
        ),
        first_step=0,
        evidence=[
            Evidence(
                f"{fact.following:.1%} of the targets equal the next input",
                TokenTargetsFact.kind,
                fact.following,
                FOLLOWING,
            ),
            Evidence(seen, TokenTargetsFact.kind, float(fact.ahead or len(fact.both_ways)), 0.0),
            *_loss(run),
        ],
        fix=fix,
        symptoms=("too-good-too-soon",),
    )


def _loss(run: Run) -> Iterator[Evidence]:
    loss, chance = loss_curve(run), baseline.chance(run)
    if loss is None or chance is None or not math.isfinite(loss.end):
        return
    yield Evidence(
        f"the loss went from {loss.begin:.3g} to {loss.end:.3g} (a uniform guess costs {chance:.3g})",
        LOSS_TRAIN.name,
        loss.end,
        TOO_GOOD * chance,
        loss.spark,
    )
