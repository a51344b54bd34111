"""Samples from use against a run's training inputs: what has shifted is named, what has not is left in peace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from torchdoctor.errors import UsageError
from torchdoctor.facts import InputsFact, LoaderFact, SkewFact, TokensFact
from torchdoctor.findings import RuledOut, Severity
from torchdoctor.instruments.serving.shifts import beta_binomial_tail, distance
from torchdoctor.instruments.serving.skew import Skew, compare_samples, with_skew
from torchdoctor.rules import find
from torchdoctor.run import Run, Seen

Draw = Callable[[np.random.Generator, int], np.ndarray]
MEANS, SPREADS = np.arange(6.0), np.array([1.0, 2, 4, 1, 3, 8])


def rows(draw: np.random.Generator, count: int) -> np.ndarray:
    return MEANS + SPREADS * draw.normal(size=(count, 6))


def pictures(draw: np.random.Generator, count: int) -> np.ndarray:
    """Neighbouring pixels are alike, and whole pictures are bright or dark; red is brighter than blue."""
    light = draw.beta(3, 3, size=(count, 1, 1, 1)) * np.array([1.0, 0.7, 0.4])[:, None, None]
    coarse = draw.normal(size=(count, 3, 4, 4)).repeat(3, 2).repeat(3, 3)
    return np.clip(light + 0.12 * coarse, 0, 1)


def trained_on(
    values: np.ndarray, *, batch: int = 32, looks: int = 30, dtype: str = "float32", facts: tuple[Any, ...] = ()
) -> Run:
    """What the recorder would have written of batches drawn from these samples."""
    draw = np.random.default_rng(1)
    dim = 1 if values.ndim in (2, 4, 5) else values.ndim - 1
    seen: list[Seen] = [Seen(0, LoaderFact("train", "train", 10, len(values), batch, 0, True, "TensorDataset"))]
    for step in range(looks):
        at = draw.choice(len(values), min(batch, len(values)), replace=False)
        part = values[at].astype(dtype)
        others = tuple(a for a in range(part.ndim) if a != dim)
        whole = [float(f(part[np.isfinite(part)])) for f in (np.mean, np.std, np.min, np.max)]
        by_feature: list[Any] = [None] * 5
        if part.dtype.kind == "f":
            by_feature = [dim, *(f(part, axis=others).tolist() for f in (np.nanmean, np.nanstd, np.nanmin, np.nanmax))]
        broken = int((~np.isfinite(part)).sum()) if part.dtype.kind == "f" else 0
        fact = InputsFact("train", "input", list(part.shape), dtype, *whole, broken, *by_feature, at[:256].tolist())
        seen.append(Seen(step, fact))
    return Run({}, frozenset(), lambda *_: pytest.fail("no signal is needed"), (*seen, *(Seen(0, f) for f in facts)))


@pytest.fixture(scope="module")
def table() -> Run:
    return trained_on(rows(np.random.default_rng(2), 4000))


@pytest.fixture(scope="module")
def album() -> Run:
    return trained_on(pictures(np.random.default_rng(2), 600))


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(3)


def nasty(draw: np.random.Generator, count: int) -> np.ndarray:
    """Columns as tables have them: heavy tails, rare indicators, counts, outliers."""
    return np.stack(
        [
            draw.normal(size=count),
            np.exp(1.5 * draw.normal(size=count)),
            draw.standard_t(2, size=count),
            (draw.random(count) < 0.01).astype(float),
            (draw.random(count) < 0.1).astype(float),
            draw.poisson(2, count).astype(float),
            draw.normal(size=count) + 50 * (draw.random(count) < 0.02),
            np.ones(count),
        ],
        1,
    )


@pytest.mark.parametrize("make", [rows, nasty, pictures])
@pytest.mark.parametrize(("batch", "looks"), [(8, 40), (32, 3), (64, 40), (300, 1)])
def test_samples_of_the_same_kind_are_left_in_peace(make: Draw, batch: int, looks: int) -> None:
    draw = np.random.default_rng(4)
    run = trained_on(make(draw, 1200), batch=batch, looks=looks)
    found = [compare_samples(run, make(draw, n)) for n in (1, 4, 8, 10, 20, 60, 200, 900) for _ in range(2)]
    assert sum(s.finding is not None for s in found) == 0


def test_a_column_that_moved_and_one_that_is_constant(table: Run, draw: np.random.Generator) -> None:
    samples = rows(draw, 200)
    samples[:, 2] += 4
    samples[:, 4] = 4.0
    found = compare_samples(table, samples)
    assert found.finding is not None
    assert (found.finding.code, found.finding.severity) == ("D016", Severity.WARNING)
    assert [f.name for f in found.shifted] == ["column 4", "column 2"]
    assert "where it is constant" in found.finding.evidence[0].text
    moved = found.shifted[1]
    assert moved.moved == pytest.approx(1, abs=0.2) and moved.ratio == pytest.approx(1, abs=0.2)
    assert moved.distance == pytest.approx(moved.moved**2, rel=0.3)
    assert found.explanation is None


def test_the_distance_in_closed_form() -> None:
    apart = distance(np.array([0.0, 0.5, 0.0]), np.array([1.0, 1.0, np.sqrt(2)]), np.ones(3))
    assert apart == pytest.approx([0, 0.25, 0.25])


def test_chances_against_scipy() -> None:
    expected = [stats.betabinom.sf(k - 1, 50, 2, 99) for k in range(51)]
    assert beta_binomial_tail(50, 100, sides=2) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x * 255, "255 times as large"),
        (lambda x: x / 1000, "1000 times as small"),
        (lambda x: x * 16, "times as large as in training"),
        (lambda x: x[:, [1, 0, 2, 3, 5, 4]], "in another order"),
        (lambda x: (x - MEANS) / SPREADS, "normalised only in use"),
    ],
)
def test_one_change_that_explains_it_is_named(change: Any, said: str, table: Run, draw: np.random.Generator) -> None:
    found = compare_samples(table, change(rows(draw, 150)))
    assert found.finding is not None and found.finding.severity is Severity.ERROR
    assert found.explanation is not None and said in found.explanation["text"]
    assert said in str(found) and found.explanation["fix"] in str(found)


def test_a_missing_normalisation(draw: np.random.Generator) -> None:
    run = trained_on((rows(draw, 2000) - MEANS) / SPREADS)
    found = compare_samples(run, 10 + 5 * rows(draw, 100))
    assert found.explanation is not None and "normalisation is missing" in found.explanation["text"]


IMAGENET = np.array([0.485, 0.456, 0.406])[:, None, None], np.array([0.229, 0.224, 0.225])[:, None, None]


@pytest.mark.parametrize("count", [4, 40])
def test_pictures_that_are_prepared_otherwise(album: Run, draw: np.random.Generator, count: int) -> None:
    made = pictures(draw, count)
    centre, scale = IMAGENET
    normalised = trained_on((pictures(draw, 600) - centre) / scale)
    told = [
        (album, made * 255, "255 times as large"),
        (trained_on(255 * pictures(draw, 600)), made, "255 times as small"),
        (trained_on(2 * pictures(draw, 600) - 1), made, "0 to 1 where training had -1 to 1"),
        (normalised, made, "ImageNet's mean and standard deviation is missing"),
        (normalised, made * 255, "and so is the division by 255"),
    ]
    for run, samples, said in told:
        explanation = compare_samples(run, samples.astype(np.float32)).explanation
        assert explanation is not None and said in explanation["text"]


def test_channels_in_the_opposite_order(album: Run, draw: np.random.Generator) -> None:
    found = compare_samples(album, pictures(draw, 100)[:, ::-1])
    assert found.explanation is not None and "RGB against BGR" in found.explanation["text"]


def test_bytes_against_floats(album: Run, draw: np.random.Generator) -> None:
    found = compare_samples(album, (255 * pictures(draw, 30)).astype(np.uint8))
    assert found.explanation is not None and "255 times" in found.explanation["text"]
    one = compare_samples(album, (255 * pictures(draw, 1)[0]).astype(np.uint8))
    assert one.samples == 1 and one.finding is not None
    assert "values run from 0 to" in one.finding.title and "in training from 0 to 1" in one.finding.title


def test_shapes(album: Run, table: Run, draw: np.random.Generator) -> None:
    made = pictures(draw, 30)
    last = compare_samples(album, np.moveaxis(made, 1, -1))
    assert [m["kind"] for m in last.mismatches] == ["channels"] and not last.shifted
    assert "permute(0, 3, 1, 2)" in last.mismatches[0]["fix"]
    assert compare_samples(album, made.reshape(30, -1)).finding is None
    small = compare_samples(album, made[:, :, ::2, ::2])
    assert small.finding is not None and small.finding.severity is Severity.WARNING
    grey = compare_samples(album, made[:, :1])
    assert grey.finding is not None and grey.finding.severity is Severity.ERROR and grey.features == []
    fewer = compare_samples(table, rows(draw, 30)[:, :5])
    assert fewer.finding is not None and "samples have 5 columns, training had 6" in fewer.finding.title
    assert compare_samples(table, rows(draw, 1)[0]).samples == 1


def test_missing_values(table: Run, draw: np.random.Generator) -> None:
    samples = rows(draw, 100)
    samples[:20, 3] = np.nan
    found = compare_samples(table, samples)
    assert [m["kind"] for m in found.mismatches] == ["missing"] and not found.shifted
    assert "20 of 100 samples" in found.mismatches[0]["text"]
    holes = rows(draw, 2000)
    holes[::5, 3] = np.nan
    found = compare_samples(trained_on(holes), samples)
    assert found.finding is None and any("missing values" in what for what in found.not_compared)


def test_a_missing_value_that_may_be_chance_is_a_note(table: Run, draw: np.random.Generator) -> None:
    samples = rows(draw, 500)
    samples[7, 3] = np.nan
    found = compare_samples(table, samples)
    assert found.finding is None and found.mismatches == []
    assert any("1 of 500 samples holds missing or infinite values, training had none" in n for n in found.notes)
    assert compare_samples(table, rows(draw, 500)).notes == []


def test_few_samples_are_not_said_to_fit(table: Run, draw: np.random.Generator) -> None:
    inside = MEANS + 0.1 * SPREADS * draw.normal(size=(3, 6))
    few = compare_samples(table, inside)
    assert few.finding is None and few.too_few == 8
    assert str(few).startswith("No skew found: too few samples to compare means and spreads, which takes 8; they lie")
    assert "too few" in few.plot().layout.title.text and "fits" not in str(few)
    one = inside[:1] + 50 * SPREADS * (np.arange(6) == 2)
    assert "not all lie within the range of training (column 2)" in str(compare_samples(table, one))
    assert "(1 sample from use" in str(compare_samples(table, inside[:1]))
    assert compare_samples(table, rows(draw, 8)).too_few is None


def test_values_never_seen_in_a_column_that_was_constant(draw: np.random.Generator) -> None:
    run = trained_on(np.concatenate([rows(draw, 2000), np.ones((2000, 1))], 1))
    samples = np.concatenate([rows(draw, 60), (draw.random((60, 1)) < 0.5) * 1.0], 1)
    found = compare_samples(run, samples)
    assert [f.name for f in found.shifted] == ["column 6"]
    assert "outside of the range" in found.finding.evidence[0].text  # type: ignore[union-attr]


def test_a_mild_shift_of_one_of_many_is_an_info() -> None:
    draw = np.random.default_rng(6)
    run = trained_on(draw.normal(size=(4000, 40)))
    samples = draw.normal(size=(400, 40))
    samples[:, 7] += 0.7
    found = compare_samples(run, samples)
    assert found.finding is not None and found.finding.severity is Severity.INFO
    assert found.finding.title == "1 of 40 columns in use are not like those of training"


def test_of_many_features_every_so_many(draw: np.random.Generator) -> None:
    run = trained_on(draw.normal(size=(500, 600)))
    kept = ("feature_mean", "feature_std", "feature_low", "feature_high")
    looks = [f.to_dict() for f in run.facts(InputsFact)]
    facts = [Seen(0, InputsFact(**(f | {k: f[k][::3] for k in kept}))) for f in looks]
    samples = draw.normal(size=(100, 600))
    samples[:, 9] += 5
    found = compare_samples(Run({}, frozenset(), run.load, facts), samples)
    assert len(found.features) == 200 and [f.name for f in found.shifted] == ["column 9"]
    assert any("one in 3 is recorded" in what for what in found.not_compared)


def texts(draw: np.random.Generator, count: int, order: np.ndarray) -> np.ndarray:
    share = 1 / np.arange(1, 501)
    return order[draw.choice(500, size=(count, 40), p=share / share.sum())]


def test_token_ids(draw: np.random.Generator) -> None:
    order = np.arange(500)
    held = texts(draw, 800, order)
    counts = TokensFact("train", "", 800, np.bincount(held.reshape(-1) % 64, minlength=64).tolist())
    run = trained_on(held, dtype="int64", facts=(counts,))
    same = compare_samples(run, texts(draw, 100, order))
    assert same.finding is None and same.tokens is not None
    other = compare_samples(run, texts(draw, 100, draw.permutation(500)))
    assert other.finding is not None and "token ids" in other.finding.title
    above = compare_samples(run, texts(draw, 100, order) + 400)
    assert [m["kind"] for m in above.mismatches] == ["ids"]
    below = compare_samples(run, texts(draw, 100, order) - 2)
    assert "go down to -2" in below.mismatches[0]["text"]
    floats = compare_samples(run, draw.normal(size=(50, 40)))
    assert [m["kind"] for m in floats.mismatches] == ["type"]
    assert compare_samples(run, texts(draw, 100, order).astype(float)).finding is None
    few = compare_samples(run, texts(draw, 5, order))
    assert few.finding is None and any("how often tokens occur" in what for what in few.not_compared)
    with pytest.raises(UsageError, match="no features to draw"):
        same.plot()


def test_files_of_every_kind(tmp_path: Path, table: Run, draw: np.random.Generator) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    from safetensors.numpy import save_file

    samples = rows(draw, 50)
    names = list("abcdef")
    frame = pa.table({n: samples[:, i] for i, n in enumerate(names)} | {"city": ["x"] * 50})
    np.save(tmp_path / "s.npy", samples)
    np.savez(tmp_path / "s.npz", inputs=samples, other=samples[:, 0])
    torch.save(torch.tensor(samples), tmp_path / "s.pt")
    torch.save({"x": torch.tensor(samples).bfloat16(), "y": torch.zeros(50)}, tmp_path / "d.pt")
    torch.save((torch.tensor(samples), torch.zeros(50)), tmp_path / "t.pt")
    save_file({"x": samples}, tmp_path / "s.safetensors")
    pa.csv.write_csv(frame, tmp_path / "s.csv")
    pa.parquet.write_table(frame, tmp_path / "s.parquet")
    np.savetxt(tmp_path / "bare.csv", samples, delimiter=",")
    for file in tmp_path.iterdir():
        found = compare_samples(table, file)
        assert (found.samples, len(found.features), found.finding) == (50, 6, None), file
        expected = set(names) if file.stem == "s" and file.suffix in (".csv", ".parquet") else {"column 0"}
        assert expected <= {f.name for f in found.features}, file
    assert compare_samples(table, tmp_path / "s.npz", key="inputs").samples == 50
    order = compare_samples(table, tmp_path / "s.csv", columns=["b", "a", "c", "d", "e", "f"])
    assert "a" in {f.name for f in order.features}
    for held in (torch.tensor(samples), samples.tolist(), list(torch.tensor(samples)), {"x": samples}):
        assert compare_samples(table, held).finding is None


def _nothing(name: str, key: str) -> Any:
    raise KeyError(name)


class _Evil:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


def test_files_that_cannot_be_read_are_told(
    tmp_path: Path, table: Run, draw: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "id.csv").write_text("id,a,b,c,d,e,f\n" + "1,2,3,4,5,6,7\n" * 9)
    (tmp_path / "words.csv").write_text("a,b\nx,y\n")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "notes.txt").write_text("1 2 3")
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    np.save(tmp_path / "objects.npy", np.array([_Evil()], object), allow_pickle=True)
    torch.save(_Evil(), tmp_path / "evil.pt")
    np.save(tmp_path / "empty.npy", np.zeros((0, 6)))
    for name, said in (
        ("id.csv", r"7 columns of numbers \(id, a, b, c, d, e, f\), the run was trained on 6"),
        ("words.csv", "no column of numbers"),
        ("cut.npy", "cannot be read as .npy"),
        ("notes.txt", "samples come as"),
        ("missing.npy", "there is no file"),
        ("two.npz", "say which with --key"),
        ("objects.npy", "cannot be read"),
        ("evil.pt", "cannot be read"),
        ("empty.npy", "holds no sample"),
    ):
        with pytest.raises(UsageError, match=said):
            compare_samples(table, tmp_path / name)
    assert "executed" not in capsys.readouterr().out
    assert compare_samples(table, tmp_path / "id.csv", drop=["id"]).samples == 9
    with pytest.raises(UsageError, match="has no column 'z'"):
        compare_samples(table, tmp_path / "id.csv", columns=["z"])
    with pytest.raises(UsageError, match="no 'z'"):
        compare_samples(table, tmp_path / "two.npz", key="z")
    with pytest.raises(UsageError, match="no columns with names"):
        compare_samples(table, rows(draw, 5), drop=["a"])
    with pytest.raises(UsageError, match="arrays of numbers"):
        compare_samples(table, np.array(["a", "b"]))
    with pytest.raises(UsageError, match="limit is 0"):
        compare_samples(table, rows(draw, 5), limit=0)


def test_a_run_without_looks_is_told(draw: np.random.Generator) -> None:
    bare = Run({}, frozenset(), _nothing, (Seen(0, TokensFact("train", "", 0, [])),))
    with pytest.raises(UsageError, match="holds no look at training inputs"):
        compare_samples(bare, rows(draw, 5))


def test_many_samples_are_thinned_and_told(table: Run, draw: np.random.Generator) -> None:
    found = compare_samples(table, rows(draw, 1000), limit=100)
    assert found.samples == 100 and "one in 10" in found.notes[0]


def test_the_rule_sees_it_in_the_run(table: Run, draw: np.random.Generator) -> None:
    loaded = find("D016")
    assert loaded is not None and loaded.rule.missing(table) == (SkewFact.kind,)
    good, bad = compare_samples(table, rows(draw, 100)), compare_samples(table, rows(draw, 100) + 100)
    assert [type(said) for said in loaded.detect(with_skew(table, good))] == [RuledOut]
    assert [said.name for said in loaded.detect(with_skew(table, bad))] == ["training-serving-skew"]
    assert list(loaded.detect(table)) == []


def test_words_and_picture(table: Run, draw: np.random.Generator) -> None:
    good, samples = compare_samples(table, rows(draw, 300)), rows(draw, 300)
    samples[:, 1] += 9
    bad = compare_samples(table, samples)
    assert str(good).startswith("No skew found: none of 6 columns")
    assert str(bad).startswith("WARNING  training-serving-skew (D016)  1 of 6 columns")
    assert "not compared: histograms" in str(good)
    assert good.plot().layout.title.text == "None of 6 columns has shifted beyond chance"
    assert bad.plot().layout.title.text == "1 of 6 columns have shifted: column 1"
    plain = bad.to_dict()
    assert plain["finding"]["code"] == "D016" and "fact" not in plain and plain["features"][0]["shifted"] is True
    assert isinstance(bad, Skew) and "<pre>" in bad._repr_html_()
