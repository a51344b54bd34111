"""What is shown of batches, mistakes, attention and saliency, for many kinds of models, and that nothing is changed."""

from __future__ import annotations

import copy
import itertools
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, WeightedRandomSampler

import torchdoctor
from torchdoctor import plots
from torchdoctor.errors import UsageError
from torchdoctor.instruments.seeing.attribution import METHODS
from torchdoctor.instruments.seeing.focus import find_focus

torch.manual_seed(0)
LENGTHS = (16, 5, 9, 12, 7, 3, 16, 8)
TOKENS = torch.randint(1, 50, (8, 16))
for row, length in enumerate(LENGTHS):
    TOKENS[row, length:] = 0
LABELS = torch.randint(0, 2, (8,))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Reader(nn.Module):
    """A transformer on tokens; without its mask it attends to padding."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.masked = masked
        self.embed = nn.Embedding(50, 32, padding_idx=0)
        self.place = nn.Parameter(torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 2)

    def forward(self, ids: Tensor) -> Tensor:
        mask = ids == 0 if self.masked else None
        hidden = self.encoder(self.embed(ids) + self.place, src_key_padding_mask=mask)
        return self.head(hidden[:, 0] if self.masked else hidden.mean(1))


class ByHand(nn.Module):
    """Causal attention of two heads: as a softmax, or fused."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused, self.project = fused, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        samples, steps, _ = x.shape
        q, k, v = self.project(x).reshape(samples, steps, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.fused:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(steps, steps).triu(1).bool()
            out = (q @ k.transpose(-1, -2) / 2).masked_fill(later, -torch.inf).softmax(-1) @ v
        return out.transpose(1, 2).reshape(samples, steps, 8)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1]).squeeze()


class Stamp(nn.Module):
    """Looks at one corner of the picture alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x[:, :, :5, -5:]).relu().mean((2, 3)))


def convolutions(channels: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


PICTURES = torch.randn(24, 3, 12, 12)
CLASSES = torch.randint(0, 3, (24,))

# -- batches --------------------------------------------------------------------------


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


# -- mistakes -------------------------------------------------------------------------


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_samples_shown_are_those_that_were_judged_worst(shuffled: bool) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    x = torch.randn(40, 4)
    x[17] = torch.tensor([9.0, -9, 9, -9])
    with torch.no_grad():
        wrong = model(x).argmin(1)
    loader = DataLoader(TensorDataset(x, wrong), 7, shuffle=shuffled)
    found = torchdoctor.worst_mistakes(model, loader, nn.CrossEntropyLoss(), samples=5, progress=False)
    assert found.wrong == 40 and len(found.worst) == 5
    assert found.group is not None
    for shown, worst in zip(found.group.arrays, found.worst, strict=True):
        assert np.array_equal(shown, x[worst.index].numpy())
    assert "→" in found.group.captions[0] and "%" in found.group.captions[0]
    assert "40 of 40 are wrong" in found.title and found.title in str(found)
    assert "group" not in found.to_dict()
    plots.mistakes(found)


def test_mistakes_without_a_class() -> None:
    model = nn.Linear(5, 1)
    found = torchdoctor.worst_mistakes(model, [(torch.randn(16, 5), torch.randn(16, 1))] * 3, nn.MSELoss(), samples=4)
    assert found.wrong is None and found.title.startswith("The 4 samples of the largest loss")
    maps = [(PICTURES[:8], torch.randint(0, 4, (8, 12, 12)))]
    found = torchdoctor.worst_mistakes(nn.Conv2d(3, 4, 3, padding=1), maps, nn.CrossEntropyLoss(), samples=3)
    assert found.group is not None and "of 144 right" in found.group.captions[0]


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Its first number is the index, the others are drawn anew each time."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(6)
        x[0] = index
        return x, CLASSES[index]


class Blind(nn.Linear):
    """To the index."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.cat([torch.zeros_like(x[:, :1]), x[:, 1:]], 1))


def test_of_a_sample_drawn_twice_the_one_that_was_judged_is_shown() -> None:
    model, sampler = Blind(6, 3), WeightedRandomSampler(torch.ones(12), 60)
    found = torchdoctor.worst_mistakes(model, DataLoader(Augmented(), 5, sampler=sampler), nn.CrossEntropyLoss())
    assert found.group is not None and len(found.group.arrays) == 12 and len({w.index for w in found.worst}) < 12
    for shown, worst in zip(found.group.arrays, found.worst, strict=True):
        x = torch.from_numpy(shown)[None]
        assert int(x[0, 0]) == worst.index
        assert F.cross_entropy(model(x), CLASSES[worst.index][None]).item() == pytest.approx(worst.loss, rel=1e-4)


def test_a_loader_that_draws_otherwise_the_second_time_shows_nothing_else() -> None:
    class Restless(Sampler[int]):
        walks = itertools.count()

        def __iter__(self) -> Iterator[int]:
            return iter(range(12)) if next(Restless.walks) == 0 else iter(range(11, -1, -1))

        def __len__(self) -> int:
            return 12

    found = torchdoctor.worst_mistakes(
        Blind(6, 3), DataLoader(Augmented(), 4, sampler=Restless()), nn.CrossEntropyLoss(), samples=3
    )
    assert found.group is None and found.notes[-1].startswith("3 samples are not shown")


def test_the_index_of_a_subset_is_called_so() -> None:
    part = Subset(TensorDataset(PICTURES, CLASSES), range(20, 4, -1))
    found = torchdoctor.worst_mistakes(convolutions(), DataLoader(part, 5), nn.CrossEntropyLoss(), samples=2)
    assert found.group is not None and "index in the loader's Subset" in str(found)
    for shown, worst in zip(found.group.arrays, found.worst, strict=True):
        assert np.array_equal(shown, part[worst.index][0].numpy())


# -- attention ------------------------------------------------------------------------


def test_attention_by_hand_and_fused_is_the_same_and_causal() -> None:
    model, fused, x = ByHand(False), ByHand(True), torch.randn(3, 6, 8)
    fused.load_state_dict(model.state_dict())
    mine, theirs = (next(iter(torchdoctor.attention_maps(m, x, 2).maps.values())) for m in (model, fused))
    assert mine.shape == (2, 6, 6) and np.allclose(mine, theirs, atol=1e-6)
    assert np.triu(mine, 1).max() == 0 and np.allclose(mine.sum(-1), 1)


def test_multihead_attention_with_and_without_its_padding_mask() -> None:
    masked = torchdoctor.attention_maps(Reader(), (TOKENS, LABELS), 1)
    assert masked.layers == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"] and len(masked.heads) == 8
    assert masked.on_padding == 0 and "padding" not in masked.title
    weights = masked.maps[masked.layers[0]]
    assert weights.shape == (4, 16, 16) and weights[:, :5, 5:].max() == 0
    unmasked = torchdoctor.attention_maps(Reader(False), (TOKENS, LABELS), 1)
    assert unmasked.on_padding is not None and unmasked.on_padding > 0.4
    assert "of the attention falls on padding" in unmasked.title
    assert unmasked.tokens[:5] == [str(t) for t in TOKENS[1, :5].tolist()]
    assert len(plots.attention(unmasked, theme="dark").layout.images) == 8
    one = plots.attention(unmasked, layer=1, head=2)
    assert one.data[0].type == "heatmap" and len(one.layout.xaxis.ticktext) == 16
    assert len(json.dumps(unmasked.to_dict())) < 4000
    with pytest.raises(UsageError, match="heads 0 to 3"):
        unmasked.chart(0, 9)


def test_heads_are_named_by_where_they_look() -> None:
    class Given(nn.Module):
        def __init__(self, logits: Tensor) -> None:
            super().__init__()
            self.logits = nn.Parameter(logits)

        def forward(self, x: Tensor) -> Tensor:
            eye = torch.eye(x.shape[1]).expand(len(x), len(self.logits), -1, -1)
            return F.scaled_dot_product_attention(self.logits.expand(len(x), -1, -1, -1), eye, eye, scale=1.0)

    places = torch.arange(7)
    logits = torch.zeros(5, 7, 7)
    logits[1, :, 0] = 9.0
    logits[2, places, places] = 9.0
    logits[3, places[1:], places[:-1]] = 9.0
    logits[4] = torch.randn(7, 7) * 2
    found = torchdoctor.attention_maps(Given(logits), torch.randn(3, 7, 2))
    patterns = [h.pattern for h in found.heads]
    assert patterns == ["evenly", "one token", "itself", "the one before", None]
    assert found.heads[1].token == 0
    assert found.title == "1 of 5 heads spreads evenly over all keys; 1 of 5 heads looks at position 0 alone"


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_of_hugging_face_is_what_it_says_itself(implementation: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    model = transformers.BertForSequenceClassification(config)
    model.set_attn_implementation(implementation)
    batch = {"input_ids": TOKENS, "attention_mask": TOKENS.ne(0).long(), "labels": LABELS}
    found = torchdoctor.attention_maps(model, batch, 1)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model.eval()(**batch, output_attentions=True).attentions
    for layer, weights in zip(found.layers, own, strict=True):
        assert np.allclose(found.maps[layer], weights[1].numpy(), atol=1e-5)
    assert found.on_padding == pytest.approx(0, abs=1e-6)


def test_windows_are_said() -> None:
    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            parts = x.reshape(3 * len(x), 4, 8)
            return self.attend(parts, parts, parts)[0].reshape(x.shape).mean(1)

    model, x = Windows(), torch.randn(5, 12, 8)
    found = torchdoctor.attention_maps(model, x, 2)
    assert found.maps["attend"].shape == (2, 4, 4) and "several maps a head in attend (3)" in found.notes[0]
    assert torchdoctor.attention_maps(Reader(), TOKENS, 1).notes == []


def test_no_attention_is_said() -> None:
    with pytest.raises(UsageError, match="no attention was seen in Linear"):
        torchdoctor.attention_maps(nn.Linear(3, 3), torch.randn(4, 3))
    with pytest.raises(UsageError, match=r"the batch holds 8 \(0 to 7\)"):
        torchdoctor.attention_maps(Reader(), TOKENS, 8)


# -- saliency -------------------------------------------------------------------------


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


# -- nothing is changed ---------------------------------------------------------------


class InPlace(nn.Module):
    """Normalises what it is given where it lies; and so does its first layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.first, self.model = nn.ReLU(inplace=True), model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.first(x.sub_(1).mul_(3)))


USES: dict[str, Callable[[nn.Module, Any], Any]] = {
    "evaluation": lambda m, b: torchdoctor.evaluate(m, [b], nn.CrossEntropyLoss(), progress=False),
    "mistakes": lambda m, b: torchdoctor.worst_mistakes(m, [b], nn.CrossEntropyLoss(), progress=False),
    "saliency": lambda m, b: torchdoctor.saliency(m, b, sample=2, method="smooth"),
    "integrated": lambda m, b: torchdoctor.saliency(m, b, sample=2, method="integrated", steps=4),
    "called": lambda m, b: torchdoctor.saliency(m, b, sample=2, call=lambda model, batch: model(batch[0].mul_(2))),
    "attention": torchdoctor.attention_maps,
}


@pytest.mark.parametrize("name", USES)
def test_nothing_is_changed(name: str) -> None:
    attends = name == "attention"
    model = InPlace(ByHand(False)) if attends else InPlace(convolutions())
    batch = (torch.randn(8, 6, 8), LABELS) if attends else (PICTURES.clone(), CLASSES.clone())
    given = copy.deepcopy(batch)
    model.train()
    parameters = list(model.parameters())
    parameters[0].grad = torch.ones_like(parameters[0])
    parameters[1].requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    draws = torch.random.get_rng_state(), random.getstate()
    USES[name](model, batch)
    assert all(torch.equal(now, before) for now, before in zip(batch, given, strict=True))
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items())
    assert all(m.training for m in model.modules())
    assert [p.grad is not None for p in parameters] == [True] + [False] * (len(parameters) - 1)
    assert torch.equal(parameters[0].grad, torch.ones_like(parameters[0])) and not parameters[1].requires_grad
    assert torch.equal(torch.random.get_rng_state(), draws[0]) and random.getstate() == draws[1]
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks
