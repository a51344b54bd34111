"""What of a batch was looked at: a statement about the inputs holds for the first tensor of a call and no further."""

from __future__ import annotations

from torchdoctor.facts import InputsFact, MembershipFact, SpikeFact
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import Signal

INPUT_SIGNALS = ("input.", "batch.")
INPUT_FACTS = (InputsFact, MembershipFact, SpikeFact)
NAN_IN_ALL = "nan-in-inputs"
"""The diagnosis for which all tensors of a call are examined."""


def describe_scope(run: Run, rule: Rule) -> str:
    """Return what of the inputs a rule looked at, as "the first of 3 input tensors"; "" where that was all."""
    if rule.name == NAN_IN_ALL or not any(_is_of_inputs(need) for need in rule.needs):
        return ""
    most = max((f.tensors for f in run.facts(InputsFact) if f.role == "input"), default=1)
    return f"the first of {most} input tensors" if most > 1 else ""


def _is_of_inputs(need: object) -> bool:
    return need.name.startswith(INPUT_SIGNALS) if isinstance(need, Signal) else need in INPUT_FACTS
