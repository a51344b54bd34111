"""Captures for tests of pages: of a batch of small pictures, and such as somebody means harm with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from torchdoctor.store.captures import CAPTURES, DOCUMENT, TENSORS, CaptureName, write_capture

STEP = 30


def document(**fields: Any) -> dict[str, Any]:
    """A capture.json with nothing in it."""
    whole = {"format": 2, "step": STEP, "taken_at_step": STEP, "rank": 0, "reason": "nonfinite", "when": 1.8e9}
    tables = {"parameters": {}, "buffers": {}, "random": {}, "batches": [], "optimizers": [], "scalers": []}
    return whole | tables | {"steps": []} | fields


def capture_pictures(run: Path, dtype: torch.dtype = torch.float32, **fields: Any) -> Path:
    """Of step 30: 40 pictures with their labels, a weight, an optimizer, a random state."""
    pictures = torch.rand(40, 3, 8, 8)
    pictures[25, 0, 2, 2] = float("nan")
    tensors = {
        "batch/0/0": pictures.to(dtype),
        "batch/0/1": torch.arange(40) % 4,
        "parameter/fc.weight": torch.ones(4, 192),
        "optimizer/0/0": torch.zeros(4, 192),
        "random/torch": torch.zeros(16, dtype=torch.uint8),
    }
    batch = {"kind": "tuple", "items": [{"kind": "tensor", "name": f"batch/0/{i}"} for i in (0, 1)]}
    held = {
        "batches": [batch],
        "parameters": {"fc.weight": "parameter/fc.weight"},
        "optimizers": [{"type": "Adam", "state": {}}],
        "random": {"torch": "random/torch"},
        "losses": ["nan"],
    }
    return write_capture(run, CaptureName(STEP, "nonfinite"), document(**held | fields), tensors, keep=5)


def capture_by_hand(run: Path, name: str, described: Any, header: dict[str, Any], size: int = 0) -> Path:
    """Whatever is wanted; the tensors' bytes are a hole in the file."""
    folder = run / CAPTURES / name
    folder.mkdir(parents=True)
    (folder / DOCUMENT).write_text(described if isinstance(described, str) else json.dumps(described))
    text = json.dumps(header).encode()
    with (folder / TENSORS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    return folder
