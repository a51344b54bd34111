"""What an answer hangs on, for models and inputs of many kinds."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchdoctor
from seen import CLASSES, LABELS, LENGTHS, PICTURES, TOKENS, ByHand, InPlace, Reader, Recurrent, Stamp, convolutions
from torchdoctor import plots
from torchdoctor.errors import UsageError
from torchdoctor.instruments.seeing.attribution import METHODS
from torchdoctor.instruments.seeing.focus import find_focus


@pytest.mark.parametrize("method", METHODS)
def test_a_stamp_in_a_corner_shows(method: str) -> None:
    found = torchdoctor.saliency(Stamp(), (torch.randn(5, 3, 32, 32), CLASSES[:5]), sample=3, method=method)
    assert found.title.startswith("100% of the saliency lies in the upper right corner (6% of the area), for output ")
    outside = found.saliency.copy()
    outside[:, :5, -5:] = 0
    assert found.saliency.any() and not outside.any()
    assert len(plots.saliency(found).layout.images) == 2
    assert len(json.dumps(found.to_dict())) < 2000


def test_gradients_are_those_of_autograd_at_that_sample() -> None:
    model = convolutions().eval()
    found = torchdoctor.saliency(model, PICTURES, target=1, sample=5)
    x = PICTURES[5:6].clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(x)[0, 1], x)
    assert np.allclose(found.saliency, expected[0].numpy(), atol=1e-6)
    assert found.score == pytest.approx(float(model(x)[0, 1].detach()), abs=1e-5)


def test_integrated_gradients_add_up_to_the_change_of_the_output() -> None:
    model = convolutions().eval()
    found = torchdoctor.saliency(model, PICTURES, target=1, sample=5, method="integrated", steps=200)
    with torch.no_grad():
        change = model(PICTURES[5:6])[0, 1] - model(torch.zeros(1, 3, 12, 12))[0, 1]
    assert float(found.saliency.sum()) == pytest.approx(float(change), rel=0.05, abs=1e-3)
    assert found.notes == []


def test_a_leaking_column_is_named_whatever_its_unit() -> None:
    model = nn.Linear(8, 1)
    with torch.no_grad():
        model.weight.fill_(0.1)
        model.weight[0, 6] = 3000.0
    x = torch.randn(64, 8)
    x[:, 6] /= 1000
    found = torchdoctor.saliency(model, (x, torch.randn(64, 1)), columns=[*"abcdef", "leak", "h"])
    assert found.title.startswith("Column 6 (leak) carries 8") and found.kind == "table"
    assert found.title.endswith("of the saliency, for the output of sample 0")
    assert found.chart().layout["yaxis"]["title"]["text"] == "column"
    assert next(iter(found.shares)) == "column 6 (leak)"
    assert found.by_input == {"input": 1.0}
    found.plot("dark")


def test_tokens_by_their_embeddings() -> None:
    found = torchdoctor.saliency(Reader(), (TOKENS, LABELS), sample=3)
    assert found.kind == "tokens" and found.saliency.shape == (16,)
    assert not found.saliency[LENGTHS[3] :].any() and found.saliency[: LENGTHS[3]].all()
    unmasked = torchdoctor.saliency(Reader(False), (TOKENS, LABELS), sample=5, decode=lambda ids: f"w{ids[0]}")
    assert "of the saliency lies on padding" in unmasked.title and unmasked.names[0] == f"w{TOKENS[5, 0]}"


@pytest.mark.parametrize(
    ("model", "inputs", "kind", "output"),
    [
        (Recurrent(), torch.randn(4, 30, 3), "series", "the output"),
        (nn.Conv2d(3, 4, 3, padding=1), PICTURES, "image", "class "),
        (ByHand(True), torch.randn(3, 12, 8), "series", "at position 11"),
        (
            nn.Sequential(nn.Conv3d(1, 2, 3), nn.Flatten(), nn.LazyLinear(2)),
            torch.randn(2, 1, 20, 21, 22),
            "image",
            "o",
        ),
    ],
)
def test_models_of_many_kinds(model: nn.Module, inputs: Tensor, kind: str, output: str) -> None:
    model(inputs)
    found = torchdoctor.saliency(model, inputs, sample=1)
    assert found.kind == kind and output in found.output and found.saliency.shape == tuple(inputs.shape[1:])
    found.plot()


def test_several_inputs_share_the_saliency() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(7, 2)

        def forward(self, x: Tensor, extra: Tensor) -> Tensor:
            return self.head(torch.cat([x * 0.01, extra], 1))

    batch = {"x": torch.randn(6, 4), "extra": torch.randn(6, 3), "y": LABELS[:6]}
    found = torchdoctor.saliency(Two(), batch)
    assert next(iter(found.by_input)) == "extra" and "by input: extra" in str(found)


def test_of_several_inputs_the_weightiest_is_shown_and_named() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 2)

        def forward(self, table: Tensor, age: Tensor, mask: Tensor) -> Tensor:
            return self.head(torch.cat([table * mask * 1e-5, age], 1))

    batch = {"table": torch.randn(8, 5), "age": torch.randn(8, 1), "mask": torch.rand(8, 5) * 1e6, "y": LABELS}
    found = torchdoctor.saliency(Two(), batch, columns=[*"abcde"])
    assert found.input == "table"  # a mask beside it is not what is asked for
    batch["mask"] = torch.ones(8, 5)
    found = torchdoctor.saliency(Two(), batch, columns=[*"abcde"])
    assert found.input == "age" and found.saliency.shape == found.values.shape == (1,)
    assert found.title.startswith("age holds 100% of the saliency of 3 inputs; within it column 0 carries all of the")
    found.plot()


def test_an_input_with_time_first_is_refused_with_the_way_out() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend, self.head = nn.MultiheadAttention(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.attend(x, x, x)[0][-1])

    class SamplesFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = TimeFirst()

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x.transpose(0, 1))

    x, y = torch.randn(3, 6, 4), LABELS[:6]
    for look in (torchdoctor.saliency, torchdoctor.attention_maps):
        with pytest.raises(UsageError, match=r"is not the 6 samples.*x\.transpose\(0, 1\)"):
            look(TimeFirst(), (x, y))
        look(SamplesFirst(), (x.transpose(0, 1), y), sample=5)
    with pytest.raises(UsageError, match=r"not one output for each of 6 samples"):
        torchdoctor.saliency(nn.Flatten(0), (x.transpose(0, 1), y))


@pytest.mark.parametrize("target", [1, -2, torch.tensor(1), np.int64(1), (1,), torch.tensor([1])])
def test_targets_of_any_kind_are_named(target: Any) -> None:
    model, x = nn.Linear(5, 3), torch.randn(8, 5)
    found = torchdoctor.saliency(model, (x, LABELS), target=target, class_names=["cat", "dog", "emu"])
    assert found.output == "class dog" and np.allclose(found.saliency, (model.weight[1].detach() * x.std(0)).numpy())


@pytest.mark.parametrize("target", ["dog", 1.0, torch.tensor(1.0), [[1]]])
def test_what_is_no_target_is_refused(target: Any) -> None:
    with pytest.raises(UsageError, match="it is a class"):
        torchdoctor.saliency(nn.Linear(5, 3), torch.randn(8, 5), target=target)


def test_complex_inputs_are_refused_with_the_way_out() -> None:
    class Spectrum(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.abs())

    wave = torch.randn(4, 5, dtype=torch.complex64)
    for look in (torchdoctor.preview_batches, lambda batch: torchdoctor.saliency(Spectrum(5, 2), batch)):
        with pytest.raises(UsageError, match=r"complex numbers \(torch.complex64.*view_as_real"):
            look((wave, LABELS[:4]))


def test_what_has_no_gradient_says_why() -> None:
    class Closed(nn.Linear):
        @torch.no_grad()
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    class Rounded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * 0)

    with pytest.raises(UsageError, match=r"under torch.no_grad\(\)"):
        torchdoctor.saliency(Closed(3, 2), torch.randn(4, 3))
    assert "Nothing in the input moves" in torchdoctor.saliency(Rounded(3, 2), torch.randn(4, 3)).title
    with pytest.raises(UsageError, match=r"target is \(9,\)"):
        torchdoctor.saliency(nn.Linear(3, 2), torch.randn(4, 3), target=9)
    with pytest.raises(UsageError, match="known are gradient"):
        torchdoctor.saliency(nn.Linear(3, 2), torch.randn(4, 3), method="lime")


def test_a_model_that_works_in_place_is_followed_from_what_it_was_given() -> None:
    model, x = InPlace(nn.Linear(5, 2)), torch.randn(6, 5)
    found = torchdoctor.saliency(model, (x, LABELS[:6]), target=1, sample=4, method="input-x-gradient")
    leaf = x[4:5].clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(leaf.clone())[0, 1], leaf)
    assert np.array_equal(found.values, x[4].numpy())
    assert np.allclose(found.saliency, (expected[0] * x[4]).numpy(), atol=1e-6)


def test_a_border_is_named() -> None:
    saliency = np.full((3, 32, 32), 0.001)
    saliency[:, :2] = saliency[:, -2:] = saliency[..., :2] = saliency[..., -2:] = 1.0
    assert (
        "% of the saliency lies in the outer 2 pixels (23% of the area)" in find_focus(saliency, "image", (), None).text
    )
