"""Samples as a model gets them: what is drawn of each kind, and what the title says of two splits."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import numpy as np
import pytest

from torchdoctor import plots
from torchdoctor.errors import UsageError
from torchdoctor.plots.attention_maps import Map, draw_attention
from torchdoctor.plots.palette import RED
from torchdoctor.plots.saliency_maps import draw_saliency
from torchdoctor.plots.sample_kinds import IMAGE, SERIES, TABLE, TOKENS, kind_of, pictures_of, shown_part
from torchdoctor.plots.sample_values import measure_samples
from torchdoctor.plots.samples import POINTS, Group, draw_samples, paint, scale_of, thin

RANDOM = np.random.default_rng(0)
BLUER = np.array([0, 0, 3])[:, None, None]


def pictures(count: int = 9, *shape: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(count, *(shape or (3, 16, 16)))).astype(np.float32))


def decode(uri: str) -> np.ndarray:
    """Of a PNG as we write it: unfiltered, in one part."""
    raw = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert raw[:8] == b"\x89PNG\r\n\x1a\n" and raw[-8:-4] == b"IEND"
    width, height, depth, kind = struct.unpack(">IIBB", raw[16:26])
    assert depth == 8
    start = raw.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", raw[start - 8 : start - 4])
    channels = 3 if kind == 2 else 1
    rows = np.frombuffer(zlib.decompress(raw[start : start + length]), np.uint8).reshape(height, 1 + channels * width)
    return rows[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "drawn"),
    [
        ((1, 8, 8), "f4", IMAGE, [(8, 8)]),
        ((3, 16, 12), "f4", IMAGE, [(16, 12, 3)]),
        ((16, 12, 3), "u1", IMAGE, [(16, 12, 3)]),
        ((4, 16, 12), "f4", IMAGE, [(16, 12, 3)]),
        ((28, 28), "f4", IMAGE, [(28, 28)]),
        ((12, 20, 24), "f4", IMAGE, [(20, 24)] * 9),
        ((32, 33, 34), "f4", IMAGE, [(33, 34)]),
        ((1, 20, 24, 25), "f4", IMAGE, [(24, 25)]),
        ((8, 3, 16, 12), "f4", IMAGE, [(16, 12, 3)] * 4),
        ((50, 3), "f4", SERIES, None),
        ((2, 50), "f4", SERIES, None),
        ((1000,), "f4", SERIES, None),
        ((30,), "i8", TOKENS, None),
        ((30,), "f4", TABLE, None),
        ((), "f4", TABLE, None),
    ],
)
def test_kinds_are_told_by_shape(shape: tuple[int, ...], dtype: str, kind: str, drawn: list[tuple[int, ...]]) -> None:
    sample = np.zeros(shape, dtype)
    assert kind_of(sample) == kind
    if drawn is not None:
        assert [p.shape for p in pictures_of(sample)] == drawn
    chart = draw_samples("batches", "", [Group("training", [sample] * 3, ["a"] * 3)])
    chart.figure("dark")
    json.dumps(chart.to_json())


def test_what_is_left_out_is_said() -> None:
    assert shown_part(np.zeros((32, 33, 34))) == "slice 16 of 32"
    assert shown_part(np.zeros((12, 20, 24))) == "channels 0 to 8 of 12"
    assert shown_part(np.zeros((1, 20, 24, 25))) == "slice 10 of 20"
    assert shown_part(np.zeros((3, 20, 24))) == ""


def test_splits_are_drawn_on_one_scale_so_that_a_difference_shows() -> None:
    train, val = pictures(), [255 * np.abs(p) for p in pictures(seed=1)]
    chart = draw_samples("batches", "", [Group("training", train), Group("validation", val)])
    assert chart.title.startswith("Validation inputs lie in 0.") and "training inputs in -" in chart.title
    shown = [decode(image["source"]).mean() for image in chart.layout["images"]]
    assert len(shown) == 18
    assert max(shown[:9]) < 10 < min(shown[9:])
    assert chart.layout["height"] > 400


def test_alike_splits_get_their_range() -> None:
    chart = draw_samples("batches", "", [Group("training", pictures()), Group("validation", pictures(seed=1))])
    assert chart.title.startswith("Inputs lie in -") and chart.title.endswith("alike in training and validation")


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        (pictures(), pictures(9, 3, 20, 20), "Validation samples are 3 x 20 x 20, training samples 3 x 16 x 16"),
        (pictures(), pictures()[:4], "4 of 4 validation samples looked at are also among the training samples"),
        ([pictures(1)[0]] * 9, pictures(seed=1), "All 9 training samples looked at are the same"),
        (pictures(), [p + BLUER for p in pictures(seed=1)], "Channel 2 is 3 (spread 1.02) on average in val"),
        ([p * np.array([1, 0, 1])[:, None, None] for p in pictures()], None, "Channel 1 is one constant in all 9"),
        (list(RANDOM.normal(size=(9, 4)) * [1, 1, 1e6, 1]), None, "not scaled alike"),
        (list(RANDOM.normal(size=(20, 4))), list(RANDOM.normal([0, 0, 9, 0], size=(20, 4))), "Column 2 is "),
        (
            [np.r_[RANDOM.integers(5, 99, 4), np.zeros(4, int)]] * 2 + [np.arange(1, 9)],
            None,
            "33% of the positions are",
        ),
    ],
)
def test_titles_say_what_differs_or_is_odd(train: list[np.ndarray], val: list[np.ndarray] | None, said: str) -> None:
    groups = [Group("training", train), *([Group("validation", val)] if val is not None else [])]
    assert said in draw_samples("batches", "", groups).title


def test_values_that_are_not_finite_are_counted_and_red() -> None:
    samples = pictures()
    samples[3][0, 2, 5] = np.nan
    chart = draw_samples("batches", "", [Group("training", samples)])
    assert chart.title == "1 of 9 training samples holds NaN or infinity (1 values)"
    pixels = paint(np.moveaxis(samples[3], 0, -1), scale_of(samples))
    assert pixels[2, 5].tolist() == [int(RED[i : i + 2], 16) for i in (1, 3, 5)]
    rows = draw_samples("batches", "", [Group("training", [np.array([1.0, np.nan])] * 3)])
    assert "NaN" in rows.title
    json.dumps(rows.to_json(), allow_nan=False)


def test_a_pulse_between_the_points_that_are_drawn_is_seen() -> None:
    curves = [RANDOM.random((2, 5000)) for _ in range(3)]
    curves[1][1, 1003:1005] = 50.0
    curves[2][0, 1234] = np.nan
    chart = draw_samples("batches", "", [Group("training", curves)])
    drawn = [np.asarray(trace["y"]) for trace in chart.data if trace.get("mode") == "lines" and len(trace["y"]) > 9]
    assert len(drawn) == 6 and all(len(y) <= POINTS + 3 for y in drawn)
    heights = [np.nanmax(y) - np.nanmin(y) for y in drawn]
    assert int(np.argmax(heights)) == 3 and sorted(heights)[-2] < 0.05 * heights[3]
    assert any(trace.get("marker", {}).get("symbol") == "x" for trace in chart.data)


@pytest.mark.parametrize("shape", [(500, 301), (500, 301, 3)])
def test_a_pixel_of_a_large_picture_that_stands_out_stays(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).random(shape)
    picture[217, 100], picture[311, 299], picture[499, 300] = 50.0, -50.0, np.nan
    small = thin(picture)
    assert max(small.shape[:2]) <= 192 and small.ndim == picture.ndim
    assert np.nanmax(small) == 50 and np.nanmin(small) == -50 and np.isnan(small[-1, -1]).all()
    assert np.array_equal(thin(picture[:190, :190]), picture[:190, :190])


def test_what_is_measured_piece_by_piece_is_what_all_of_it_gives() -> None:
    samples = [RANDOM.normal(1e6, 2.0, size=(3, 5, 7)) for _ in range(11)]
    samples[4][1] = np.nan
    seen, whole = measure_samples(samples, IMAGE).values, np.stack(samples)
    assert (seen.mean, seen.spread) == pytest.approx((np.nanmean(whole), np.nanstd(whole)), rel=1e-9)
    assert (seen.low, seen.high) == (np.nanmin(whole), np.nanmax(whole))
    assert (seen.not_finite, seen.holding, seen.samples) == (35, 1, 11)
    assert seen.means == pytest.approx(np.nanmean(whole, axis=(0, 2, 3)))
    assert seen.spreads == pytest.approx(np.nanstd(whole, axis=(0, 2, 3)), rel=1e-9)
    middles = np.nanmean(whole[:, 0], axis=(1, 2))
    assert seen.errors[0] == pytest.approx(middles.std() / np.sqrt(10))
    assert measure_samples([np.full((3, 9), 0.1)] * 5, SERIES).values.spreads.tolist() == [0, 0, 0]


def test_a_large_constant_has_a_scale() -> None:
    low, high = scale_of([np.full(9, 3e38)])
    assert low < 3e38 < high and paint(np.full((2, 2), 3e38), (low, high)).max() in (127, 128)


def test_captions_are_no_markup() -> None:
    nasty = "<a href='javascript:1'>x</a>&lt;"
    for samples in (pictures(2), [np.arange(5)] * 2, [np.zeros(4)] * 2):
        group = Group(nasty, samples, [nasty] * 2, columns=[nasty] * 4, words=[[nasty] * 5] * 2)
        told = json.dumps(draw_samples("mistakes", "t", [group]).to_json())
        assert "<a" not in told and "&lt;a href" in told


def test_masks_stand_beside_their_pictures_on_a_scale_of_their_own() -> None:
    masks = [np.tile([[0, 1]], (16, 8)) for _ in range(2)]
    groups = [Group("training", pictures(2)), Group("training targets", masks, quantity="targets")]
    images = draw_samples("batches", "", groups).layout["images"]
    assert {0, 255} == set(np.unique(decode(images[-1]["source"])))


def test_no_samples_are_no_error() -> None:
    assert draw_samples("batches", "", []).title == "There are no samples to show"


def test_a_saliency_map_is_bright_where_it_is_large() -> None:
    saliency = np.zeros((3, 8, 8))
    saliency[:, :2, :2] = 1.0
    chart = draw_saliency("t", pictures(1, 3, 8, 8)[0], saliency, IMAGE)
    pixels = decode(chart.layout["images"][1]["source"]).sum(-1)
    assert pixels[5, 5] > pixels[-5, -5]
    signed = draw_saliency("t", np.arange(3.0), np.array([0.1, -0.7, 0.2]), TABLE, ["a", "b", "<c>"], is_signed=True)
    assert signed.layout["yaxis"]["ticktext"] == ["b", "&lt;c>", "a"] and signed.data[0]["x"][0] == pytest.approx(-0.7)


def test_heads_are_drawn_by_layer_and_one_alone_with_its_tokens() -> None:
    maps = [Map(f"layer.{i}", head, np.eye(4), "itself") for i in range(2) for head in range(3)]
    chart = draw_attention("t", maps)
    assert len(chart.layout["images"]) == 6 and len(chart.layout["annotations"]) == 2
    one = draw_attention("t", maps[:1], ["a", "b", "<i>", "d"])
    assert one.layout["xaxis"]["ticktext"] == ["a", "b", "&lt;i>", "d"]


def test_figures_of_results_are_found_beside_those_of_runs() -> None:
    assert {"loss", "batches", "mistakes", "attention", "saliency", "lr_range", "landscape"} <= set(dir(plots))
    with pytest.raises(UsageError, match=r"draws what torchdoctor.preview_batches\(...\) gives"):
        plots.batches("run")
    with pytest.raises(AttributeError, match=r"there are loss, .*landscape"):
        _ = plots.batch
