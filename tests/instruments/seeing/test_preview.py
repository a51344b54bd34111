"""Batches as the model gets them, of many kinds, and nothing taken from the loader."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from seen import CLASSES, LABELS, PICTURES, TOKENS, Stamp
from torchdoctor import plots
from torchdoctor.errors import UsageError


def test_what_comes_out_of_the_loaders_is_shown_as_it_is() -> None:
    raw = (PICTURES.abs() * 80).clamp(max=255)
    train = DataLoader(TensorDataset(PICTURES, CLASSES), 8, shuffle=True)
    found = torchdoctor.preview_batches(train, DataLoader(TensorDataset(raw, CLASSES), 8), samples=4, batches=2)
    assert found.title.startswith("Validation inputs lie in 0.") and found.kind == "image"
    assert [s.samples for s in found.splits] == [16, 16] and found.splits[1].high == 255
    assert sum(found.splits[0].targets.values()) == 16
    assert [len(g.arrays) for g in found.groups] == [4, 4]
    assert "validation" in str(found) and "3 x 12 x 12" in str(found)
    assert len(json.dumps(found.to_dict())) < 3000
    assert "Validation inputs" in plots.batches(found, theme="dark").layout.title.text


@pytest.mark.parametrize(
    ("batch", "kind", "name", "captions"),
    [
        ({"input_ids": TOKENS, "attention_mask": TOKENS.ne(0).long(), "labels": LABELS}, "tokens", "input_ids", 8),
        ((torch.randn(8, 30, 2), torch.rand(8, 1)), "series", "", 8),
        ((torch.randn(8, 5), torch.randint(0, 2, (8, 3)).float()), "table", "", 8),
        ((PICTURES[:8], torch.randint(0, 3, (8, 12, 12))), "image", "", 8),
        (torch.randn(8, 2000), "series", "", 0),
        ({"volume": torch.rand(8, 1, 9, 20, 20), "y": torch.rand(8)}, "image", "volume", 8),
        ((torch.randn(8, 4, dtype=torch.bfloat16), LABELS.bool()), "table", "", 8),
    ],
)
def test_batches_of_many_kinds(batch: Any, kind: str, name: str, captions: int) -> None:
    found = torchdoctor.preview_batches(batch, samples=8)
    assert (found.kind, found.input) == (kind, name)
    assert len(found.groups[0].captions) == captions
    found.plot("dark")


def test_masks_are_drawn_and_labels_named() -> None:
    found = torchdoctor.preview_batches((PICTURES[:8], torch.randint(0, 3, (8, 12, 12))))
    assert [g.heading for g in found.groups] == ["training", "training targets"]
    labels = torchdoctor.preview_batches((torch.randn(2, 5), torch.tensor([[1, 0, 1], [0, 0, 0]])), class_names="abc")
    assert labels.groups[0].captions == ["a, c", "none"]


def test_a_loader_stays_where_it_is() -> None:
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(PICTURES, CLASSES), 8, shuffle=True, generator=generator)
    states = generator.get_state(), torch.random.get_rng_state(), random.getstate()
    torchdoctor.preview_batches(loader)
    assert torch.equal(generator.get_state(), states[0]) and torch.equal(torch.random.get_rng_state(), states[1])
    assert random.getstate() == states[2]


def test_a_preview_holds_no_more_than_it_shows() -> None:
    batches = [(torch.randn(32, 3, 64, 64), torch.zeros(32, 64, 64).long()) for _ in range(4)]
    given = sum(t.nbytes for batch in batches for t in batch)
    tracemalloc.start()
    try:
        found = torchdoctor.preview_batches(batches, batches, samples=4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.2 * given, peak / given
    whole = torch.cat([x for x, _ in batches]).double()
    (split, _) = found.splits
    assert split.samples == 128 and (split.low, split.high) == (whole.min(), whole.max())
    assert (split.mean, split.spread) == pytest.approx((whole.mean().item(), whole.std(correction=0).item()))
    assert split.channel_spreads == pytest.approx(whole.std((0, 2, 3), correction=0).tolist())
    assert found.title == "128 of 128 validation samples looked at are also among the training samples"


def test_batches_without_samples_are_said() -> None:
    empty = (torch.rand(0, 3, 8, 8), torch.zeros(0).long())
    with pytest.raises(UsageError, match="the training batches hold no sample"):
        torchdoctor.preview_batches([empty])
    with pytest.raises(UsageError, match="the validation batches hold no sample"):
        torchdoctor.preview_batches([(PICTURES, CLASSES)], [empty])
    with pytest.raises(UsageError, match="the batch holds no sample"):
        torchdoctor.saliency(Stamp(), empty)
