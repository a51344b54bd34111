from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.attach.options import Options
from torchdoctor.attach.printing import read_metrics
from torchdoctor.errors import UsageError
from torchdoctor.facts import PredictionsFact, SamplesFact
from torchdoctor.signals import PRINTED


def train(steps: int = 3) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 3, (8,))).backward()
        optimizer.step()


def test_scores_labels_and_groups_are_recorded(tmp_path: Path) -> None:
    labels = torch.arange(60) % 3
    scores = 4 * nn.functional.one_hot(labels, 3).float()
    scores[40:] = scores[40:].roll(1, 1)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train()
        doctor.log_predictions(scores, labels, groups=["near"] * 40 + ["far"] * 20)
    run = doctor.run()
    assert run is not None
    (fact,) = [f for f in run.facts(SamplesFact) if f.logged]
    assert fact.correct == 40
    assert {(s["value"], s["correct"], s["samples"]) for s in fact.slices} == {("near", 40, 40), ("far", 0, 20)}
    assert {w["index"] for w in fact.worst} <= set(range(40, 60))
    (counts,) = [f for f in run.facts(PredictionsFact) if f.phase == "validation"]
    assert sum(counts.correct) == 40
    assert any(f.name == "weak-slice" for f in doctor.findings())


@pytest.mark.parametrize(
    ("predictions", "targets", "task"),
    [
        (np.array([0, 1, 2, 1]), np.array([0, 1, 1, 1]), "classes"),
        (np.array([0.1, 0.9, 0.4]), np.array([0, 1, 1]), "classes"),
        (np.array([0.1, 2.9, 0.4]), np.array([0.0, 3.0, 1.0]), "regression"),
    ],
)
def test_other_forms_are_understood(tmp_path: Path, predictions: object, targets: object, task: str) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train()
        doctor.log_predictions(predictions, targets)
    run = doctor.run()
    assert run is not None
    assert [f.task for f in run.facts(SamplesFact) if f.logged] == [task]


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train()
        with pytest.raises(UsageError, match="3 predictions for 2 targets"):
            doctor.log_predictions([1, 2, 3], [1, 2])
        with pytest.raises(UsageError, match="group"):
            doctor.log_predictions([1, 2], [1, 2], groups=["a"])


def test_printed_metrics_are_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchdoctor.doctor.Options", functools.partial(Options, prints=True))
    original = print
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train()
        print("epoch 1: val_loss=0.5, val_acc=91.5%")
    assert print is original
    assert "val_acc=91.5%" in capsys.readouterr().out
    run = doctor.run()
    assert run is not None
    assert run.scalar(PRINTED, "val acc").values.tolist() == pytest.approx([0.915])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("train: loss 0.3 acc 0.9 | val: loss 0.5 acc 0.8", [("train acc", 0.9), ("val acc", 0.8)]),
        ("Test set: Average loss: 0.03, Accuracy: 9903/10000 (99%)", [("test accuracy", 0.9903)]),
        ("{'val_loss': 0.5, 'top5_acc': 0.9}", [("val top5 acc", 0.9)]),
        ("epoch 3 loss 0.2", []),
    ],
)
def test_metrics_are_read_from_text(text: str, read: list[tuple[str, float]]) -> None:
    assert list(read_metrics(text)) == read
