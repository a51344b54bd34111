"""Where heads look, by hand, fused, and as Hugging Face says itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchdoctor
from seen import LABELS, TOKENS, ByHand, Reader
from torchdoctor import plots
from torchdoctor.errors import UsageError


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


class Given(nn.Module):
    """Attention by these numbers."""

    def __init__(self, logits: Tensor, causal: bool = False) -> None:
        super().__init__()
        self.logits, self.causal = nn.Parameter(logits), causal

    def forward(self, x: Tensor) -> Tensor:
        eye = torch.eye(x.shape[1]).expand(len(x), len(self.logits), -1, -1)
        queries = self.logits.expand(len(x), -1, -1, -1)
        return F.scaled_dot_product_attention(queries, eye, eye, scale=1.0, is_causal=self.causal)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_so_sure_that_nothing_is_left_for_others_have_no_entropy(causal: bool) -> None:
    """Weights that are too small for the format are zero, as masked ones are."""
    logits = torch.zeros(3, 7, 7)
    logits[0, :, 0] = logits[1, :, 0] = 1e4
    logits[2, 2:, 1] = logits[2, :2, 0] = 1e4
    found = torchdoctor.attention_maps(Given(logits, causal), torch.randn(3, 7, 2))
    assert [h.entropy for h in found.heads] == [0.0] * 3
    assert [(h.pattern, h.token) for h in found.heads] == [("one token", 0), ("one token", 0), ("one token", 1)]
    assert found.title == "All 3 heads look at one position alone, most often at 0"


def test_heads_are_named_by_where_they_look() -> None:
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
