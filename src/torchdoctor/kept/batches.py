"""The batch in a capture: which tensors it has, and which of them are samples to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchdoctor.report.text import clean
from torchdoctor.store.captured import ARRAY, DICT, FIELDS, LEFT_OUT, TENSOR, Capture, TensorEntry
from torchdoctor.store.captures import TARGETS_ONLY

MOST_LEAVES = 50
"""Tensors of a batch that are looked at; a batch has a handful."""
LETTERS = 40
"""Of a name in a batch."""
TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8",
    "F8_E5M2": "float8",
    "C64": "complex64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
WHOLE = ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


@dataclass(frozen=True)
class Leaf:
    """One tensor of a batch."""

    called: str
    """where it stands in the batch: 0, 1, input_ids"""
    name: str
    """in the file"""
    entry: TensorEntry

    @property
    def words(self) -> str:
        shape = " x ".join(map(str, self.entry.shape)) or "one number"
        return (
            f"{self.called}: {shape} {TYPES[self.entry.dtype]}" if self.called else f"{shape} {TYPES[self.entry.dtype]}"
        )


def batches_of(capture: Capture) -> list[dict[str, Any]]:
    """Those that the loader had given, the one that the step worked on last; what it had fetched ahead is left out."""
    document = capture.document
    steps = document.get("steps") or []
    given = [batch for step in steps for batch in step["batches"]] if steps else list(document["batches"])
    lead = document.get("lead", 0) if steps else 0
    return given[: len(given) - lead]


def is_of_the_step(capture: Capture) -> bool:
    """Whether that last one is the step's own; of a failure that was known late it is a later step's."""
    return bool(capture.document.get("steps")) or capture.document["taken_at_step"] == capture.step


def has_inputs(capture: Capture) -> bool:
    """False where only what the loss compares with was seen of the step."""
    return bool(capture.document.get("batch_source") != TARGETS_ONLY)


def leaves_of(capture: Capture, batch: dict[str, Any]) -> list[Leaf]:
    found = []
    for called, node in _walk(batch, ""):
        found.append(Leaf(called, node["name"], capture.tensors[node["name"]]))
        if len(found) == MOST_LEAVES:
            break
    return found


def missing_from(batch: dict[str, Any]) -> bool:
    """Something in it was of a type that captures do not hold."""
    if batch.get("kind") == LEFT_OUT:
        return True
    return any(missing_from(item) for item in batch.get("items", []))


def _walk(node: dict[str, Any], called: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if node["kind"] in (TENSOR, ARRAY):
        yield called, node
    names = node["keys"] if node["kind"] in (DICT, FIELDS) else range(len(node.get("items", [])))
    for name, item in zip(names, node.get("items", []), strict=False):
        own = clean(str(name)[:LETTERS])
        yield from _walk(item, f"{called}.{own}"[-2 * LETTERS :] if called else own)


def samples_in(leaves: list[Leaf]) -> Leaf | None:
    """What the model is given: the tensor with the most values of those that have an entry a sample."""
    several = [leaf for leaf in leaves if len(leaf.entry.shape) > 1 and leaf.entry.shape[0] > 0]
    return max(several, key=lambda leaf: leaf.entry.stop - leaf.entry.start, default=None)


def labels_in(leaves: list[Leaf], samples: Leaf) -> Leaf | None:
    """One whole number a sample, if there is such a tensor."""
    count = samples.entry.shape[0]
    flat = [leaf for leaf in leaves if leaf.entry.shape in ((count,), (count, 1)) and leaf.name != samples.name]
    return next((leaf for leaf in flat if leaf.entry.dtype in WHOLE), None)
