"""Inputs that tell about their labels, and inputs that do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.instruments.probing.data import Evidence, Task, read_evidence
from torchdoctor.instruments.probing.learners import PENALTIES, ridge

FAST = {"permutations": 199, "progress": False}


def table(count: int = 300, width: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


def targets_of(kind: str, x: np.ndarray, noise: float = 0.3) -> np.ndarray:
    y = x[:, :3] + noise * np.random.default_rng(1).normal(size=(len(x), 3))
    return {"classes": y.argmax(1), "labels": (y > 0).astype(float), "numbers": y[:, 0], "several": y}[kind]


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers", "several"])
def test_a_relation_is_found_and_its_loss_is_too(kind: str) -> None:
    x = table()
    y = targets_of(kind, x)
    found = torchdoctor.linear_probe(x, y, **FAST)
    assert found.related and found.linear.p_value == pytest.approx(1 / 200)
    assert found.linear.score > found.linear.chance + 0.2
    assert "tell about the labels" in str(found)
    broken = torchdoctor.linear_probe(x, y[np.random.default_rng(2).permutation(len(y))], **FAST)
    assert not broken.related and "No relation" in str(broken)
    assert broken.linear.score == pytest.approx(broken.linear.chance, abs=0.12)


def test_ridge_leaves_folds_out_as_fitting_without_them_would() -> None:
    x, y = table(60, 5), table(60, 1, 3)
    evidence = read_evidence(x, y, "numbers", None, 100, np.random.default_rng(0))
    folds = np.arange(60) % 4
    score = ridge(evidence, np.arange(60)[None], folds)
    features, best = evidence.inputs, (-np.inf, np.zeros(0))
    for penalty in PENALTIES:
        predictions = np.zeros(60)
        for fold in range(4):
            fit = folds != fold
            mean, at = evidence.targets[fit].mean(), features[fit] - features[fit].mean(0)
            weights = np.linalg.solve(at.T @ at + penalty * 5 * np.eye(5), at.T @ (evidence.targets[fit, 0] - mean))
            predictions[~fit] = (features[~fit] - features[fit].mean(0)) @ weights + mean
        explained = 1 - np.square(evidence.targets[:, 0] - predictions).sum() / np.square(evidence.targets).sum()
        best = max(best, (explained, predictions), key=lambda pair: pair[0])
    assert score.statistic == pytest.approx(best[0], abs=1e-4)
    assert score.predictions[:, 0] == pytest.approx(best[1], abs=1e-4)


def test_p_values_are_even_where_there_is_nothing() -> None:
    found = [
        torchdoctor.linear_probe(table(60, 5, seed), table(60, 1, 100 + seed)[:, 0], **FAST, seed=seed)
        for seed in range(40)
    ]
    values = np.array([p.p_value for f in found for p in f.probes])
    assert 0.35 < values.mean() < 0.65 and (values <= 0.05).mean() < 0.15


def test_what_is_not_linear_is_found_by_neighbours() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    found = torchdoctor.linear_probe(x, (x[:, 0] * x[:, 1] > 0).astype(int), **FAST)
    assert found.related and found.linear.p_value > 0.005 and found.nearest.score > 0.85
    assert "not linearly" in str(found)


def test_parity_is_missed_and_that_is_said() -> None:
    x = np.random.default_rng(1).integers(0, 2, (300, 20)).astype(float)
    found = torchdoctor.linear_probe(x, x.sum(1).astype(int) % 2, **FAST)
    assert not found.related and "neither linear nor smooth" in str(found)


def test_scores_in_closed_form() -> None:
    task = Task("labels", np.array([[0.0], [1.0], [1.0], [0.0]]))
    assert task.score(np.array([[0.1], [0.9], [0.4], [0.6]])) == pytest.approx(0.75)
    assert Task("numbers", np.array([[0.0], [2.0]])).score(np.array([[1.0], [1.0]])) == 0.0
    assert Task("classes", np.array([0, 1, 1])).majority == pytest.approx(2 / 3)


def test_loaders_datasets_batches_and_pictures() -> None:
    x = torch.from_numpy(table(200, 3 * 40 * 40)).float().reshape(200, 3, 40, 40)
    y = (x.mean((1, 2, 3)) > 0).long()
    data = TensorDataset(x, y)
    loader = DataLoader(data, 32, shuffle=True, generator=torch.Generator().manual_seed(0))
    before, drawn = loader.generator.get_state(), torch.random.get_rng_state()
    for given in (loader, data, (x, y), {"pixels": x, "labels": y}):
        found = torchdoctor.linear_probe(given, **FAST)
        assert found.task == "classes" and found.samples == 200 and found.features == 3 * 32 * 32
        assert any("averaged down" in note for note in found.notes)
    assert torch.equal(before, loader.generator.get_state()) and torch.equal(drawn, torch.random.get_rng_state())


def test_tokens_are_counted() -> None:
    tokens = torch.randint(0, 1000, (300, 12), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(300) % 2
    tokens[:, 5] = torch.where(labels == 1, 7, tokens[:, 5])
    tokens = tokens.gather(1, torch.rand(300, 12, generator=torch.Generator().manual_seed(1)).argsort(1))
    assert torchdoctor.linear_probe({"input_ids": tokens, "labels": labels}, **FAST).related


def test_gaps_and_constant_columns_are_left_out() -> None:
    x = table()
    x[3, 2], x[:, 5] = np.nan, 1.0
    found = torchdoctor.linear_probe(x, targets_of("classes", table()), **FAST)
    assert found.related and found.samples == 299 and found.features == 7
    assert any("1 sample with NaN" in note for note in found.notes)


def test_words_picture_and_dictionary() -> None:
    x = table()
    found = torchdoctor.linear_probe(x, targets_of("classes", x), **FAST, samples=100)
    assert found.samples == 100
    assert "stands out from" in found.plot().layout.title.text
    assert found.to_dict()["probes"][0]["name"] == "linear (ridge)"
    again = torchdoctor.linear_probe(x, targets_of("classes", x), **FAST, samples=100)
    assert again.linear.statistic == found.linear.statistic


class Stream(IterableDataset):
    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter([(torch.ones(2), 1)])


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ((DataLoader([]),), {}, "gives no batch"),
        ((table(),), {}, "inputs alone"),
        (((torch.ones(30, 2),),), {}, "no label"),
        ((table(), np.zeros(299)), {}, "do not belong together"),
        ((table(10), np.arange(10)), {}, "too few"),
        ((np.ones((50, 3)), np.arange(50)), {}, "same for every sample"),
        ((table(), np.ones(300)), {}, "nothing to tell"),
        ((torch.randn(50, 4), torch.randint(0, 9, (50, 4))), {}, "one target a sample"),
        ((table(), np.ones(300)), {"permutations": 10}, "at least"),
        ((table(), np.ones(300)), {"task": "guess"}, "not known"),
        ((Stream(),), {}, "stream of samples"),
        ((table(), ["a"] * 300), {}, "no array of numbers"),
        (([{"a": torch.ones(4, 2), "b": torch.ones(4)}],), {}, r"none of these is known.*linear_probe\(X, y\)"),
        ((None,), {}, "but None"),
    ],
)
def test_what_cannot_be_is_said(given: tuple[object, ...], options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        torchdoctor.linear_probe(*given, **({"permutations": 199} | options))  # type: ignore[arg-type]


def test_evidence_is_standardised() -> None:
    evidence = read_evidence(table() * 50 + 3, np.arange(300) % 3, "auto", None, 1000, np.random.default_rng(0))
    assert isinstance(evidence, Evidence) and evidence.task.kind == "classes"
    assert evidence.inputs.mean(0) == pytest.approx(0, abs=1e-9) and evidence.inputs.std(0) == pytest.approx(1)
    assert evidence.targets.mean(0) == pytest.approx(0, abs=1e-12)
