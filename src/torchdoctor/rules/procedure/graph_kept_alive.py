"""Graphs of past steps stay alive: a stored loss or a carried state holds them.

## What it means
Every loss is the end of a graph that remembers how it was computed. The graph is freed when nothing refers to it any
more. A running total of losses, a list of them, or a hidden state that is handed to the next step keeps it: memory
grows with every step until it runs out. Where the next loss is computed from the kept graph, each backward also goes
through all steps before it, so that steps become slower and slower.

## Why it happens
`total += loss` or `losses.append(loss)` instead of `loss.item()`; predictions collected for a metric without
`detach()`; a hidden state carried from batch to batch without `detach()`, with the error that this gives silenced by
`retain_graph=True`.

## How it is detected
On the steps on which the graph is walked, the operator of its last layer gets a mark that dies with it. Marks of
earlier steps that are still alive later mean that something holds those graphs. Operators are numbered in the order of
their making, so the graph behind a new loss also shows how many steps it reaches back, and its size whether it grows.
An error of torch about a used-up graph is explained by it where that graph reaches back.

## How to fix it
Keep numbers, not graphs: `total += loss.item()` (or `loss.detach()` to spare the wait on a GPU). Cut a state before it
is carried over: `hidden = hidden.detach()`, or for an LSTM `hidden = tuple(h.detach() for h in hidden)`.

## Known false alarms
One or two losses that are still referred to (the best so far, the last one) are not reported. Back-propagation
through a fixed number of chunks reaches back a fixed number of steps and is not reported, nor is a part of the model
that is computed once and used in every step: the graph must grow.

## References
PyTorch FAQ, "My model reports cuda runtime error: out of memory" (do not accumulate history across the training loop).
Williams and Peng, "An Efficient Gradient-Based Algorithm for On-Line Training of Recurrent Network Trajectories", 1990.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRAPH_NODES, GRAPH_REACH, GRAPHS_KEPT, GRAPHS_MARKED, MEMORY_HOST

RULE = Rule(
    of_code=True,
    code="T012",
    name="graph-kept-alive",
    family="procedure",
    needs=(GRAPH_NODES,),
    explains=("memory-growth", "periodic-stall", "exploding-gradients", "vanishing-gradients"),
)

KEPT = 4
"""Marked graphs of earlier steps that are alive at one time. A loop that keeps its best loss holds one, one that
compares two stages a few."""
KEPT_SHARE = 0.5
"""Of the marks since the oldest one that is alive; a total that is reset every epoch drops those before."""
REACH = 4
"""Steps back; chunked back-propagation goes one or two back."""
GROWTH = 2.0
"""Size of the graph at the end over its size at the first looks."""
RISING = 0.8
"""Share of looks at which a growing graph is larger than at the look before."""
LOOKS = 5
STOPPED_BY = ("backward through the graph a second time", "modified by an inplace operation")
"""How torch ends a program that goes through a graph whose values are gone, or whose weights were updated since."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    if (message := _stopped_by(run)) is not None:
        yield _stopped(run, message)
        return
    if (carried := _carried(run)) is not None:
        yield _carried_state(run, *carried)
        return
    kept, marked = run.scalar(GRAPHS_KEPT), run.scalar(GRAPHS_MARKED)
    if len(kept) < LOOKS or len(kept) != len(marked):
        return
    if not np.isfinite(kept.high).all() or not np.any(marked.high >= 1):
        return
    held = kept.high >= KEPT
    if held.sum() >= 2 and float(np.max(kept.high / np.maximum(marked.high, 1))) >= KEPT_SHARE:
        yield _stored_losses(run, int(kept.steps[int(np.argmax(held))]), int(kept.high.max()), int(marked.high.max()))
    elif not np.any(kept.high > 1):
        yield RuledOut(RULE.name, "the graphs of earlier steps were freed", GRAPHS_KEPT.name, float(kept.high.max()))


def _carried(run: Run) -> tuple[int, int, float, float] | None:
    """First step, reach, and size of the graph at the beginning and the end, where it grows from step to step."""
    reach, nodes = run.scalar(GRAPH_REACH), run.scalar(GRAPH_NODES)
    if len(reach) < LOOKS or len(nodes) < LOOKS:
        return None
    far = np.flatnonzero(reach.values >= REACH)
    begin, end = float(np.median(nodes.values[:2])), float(nodes.values[-1])
    rising = float(np.mean(np.diff(nodes.values) > 0))
    if not len(far) or len(far) < len(reach) / 3 or rising < RISING or end < GROWTH * begin:
        return None
    return int(reach.steps[int(far[0])]), int(reach.values.max()), begin, end


def _stopped_by(run: Run) -> str | None:
    """The error that ended the program, if the last graph reached back into an earlier step."""
    error = run.info.get("exception") or {}
    message = str(error.get("message") or "")
    if (error.get("explanation") or {}).get("earlier_step") is False:
        return None  # an update in the midst of a step
    reach = run.scalar(GRAPH_REACH)
    if not any(known in message for known in STOPPED_BY) or not len(reach) or not reach.values[-1] >= 1:
        return None
    return message.strip().splitlines()[0]


def _stopped(run: Run, message: str) -> Finding:
    reach = int(run.scalar(GRAPH_REACH).values[-1])
    error = run.info.get("exception") or {}
    where = [Place(file=error.get("file"), line=error.get("line"))] if error.get("file") else []
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.97,
        proof=Proof.STRUCTURE,
        title="backward ran into the graph of an earlier step: a state is carried over without detach",
        summary="This step's loss was computed from a tensor of an earlier step that still carries its graph. That "
        "graph is used up, or its weights have been updated since, so the program was stopped.",
        where=[*where, *call_places(run, "backward")],
        first_step=run.steps,
        evidence=[
            Evidence(f"{error.get('type', 'error')}: {message[:160]}"),
            Evidence(
                f"the graph behind the last loss reaches {reach} step{'s' if reach > 1 else ''} back",
                GRAPH_REACH.name,
                float(reach),
                0.0,
            ),
        ],
        fix=Fix(
            "Detach what is carried from one step to the next; retain_graph=True would only hide it.",
            "hidden = hidden.detach()  # an LSTM's: hidden = tuple(h.detach() for h in hidden)",
        ),
        symptoms=("growing-memory",),
    )


def _carried_state(run: Run, first: int, reach: int, begin: float, end: float) -> Finding:
    nodes = run.scalar(GRAPH_NODES)
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.97,
        proof=Proof.STRUCTURE,
        title=f"the graph grows with every step: it reaches {reach} steps back",
        summary="Each loss is computed from a state that still carries the graph of the steps before it, so every "
        "backward goes through all of them again: steps become slower and memory grows.",
        where=call_places(run, "backward"),
        first_step=first,
        evidence=[
            Evidence(
                f"the graph behind the loss grew from {begin:.0f} operators to {end:.0f}",
                GRAPH_NODES.name,
                end,
                GROWTH * begin,
                curves.spark(nodes.values),
            ),
            Evidence(f"it reaches {reach} steps back", GRAPH_REACH.name, float(reach), float(REACH)),
            *_memory(run),
        ],
        fix=Fix(
            "Detach what is carried from one step to the next, and drop retain_graph=True.",
            "hidden = hidden.detach()  # an LSTM's: hidden = tuple(h.detach() for h in hidden)",
        ),
        symptoms=("growing-memory", "slow-steps"),
    )


def _stored_losses(run: Run, first: int, kept: int, marked: int) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.95,
        proof=Proof.STRUCTURE,
        title="the graphs of past steps are never freed",
        summary="Something holds on to losses or predictions of earlier steps together with their graphs: a running "
        "total, a list of them. Memory grows with every step.",
        where=call_places(run, "backward"),
        first_step=first,
        evidence=[
            Evidence(
                f"of {marked} graphs that were marked at earlier steps, {kept} were still held",
                GRAPHS_KEPT.name,
                float(kept),
                float(KEPT),
            ),
            *_memory(run),
        ],
        fix=Fix(
            "Keep the number instead of the tensor wherever a loss (or a prediction) is stored or added up.",
            "total_loss += loss.item()",
        ),
        symptoms=("growing-memory",),
    )


def _memory(run: Run) -> Iterator[Evidence]:
    memory = curves.read(run.scalar(MEMORY_HOST))
    rise = curves.trend(memory.values)
    if len(memory) >= LOOKS and rise.sigmas > 3:
        text = f"the process grew by {rise.change / 2**20:.1f} MiB over the run"
        yield Evidence(text, MEMORY_HOST.name, rise.change, 0.0, curves.spark(memory.values))
