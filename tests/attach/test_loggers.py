"""Metrics that are handed to a logger are read where they pass."""

from __future__ import annotations

from pathlib import Path

import torch

import torchdoctor
from attach.loggers import Run, SummaryWriter
from torchdoctor.signals import PRINTED
from torchdoctor.store.reader import open_run


def test_metrics_given_to_a_logger_are_read(loggers: None, tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, writer = Run(), SummaryWriter()
    with torchdoctor.watch(model, optimizer, out=tmp_path, name="run", quiet=True):
        run.log({"val_acc": 0.9})
        for step in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            run.log({"val_acc": 0.25 * step, "note": "text", "image": torch.zeros(3)}, step=step)
            writer.add_scalar("val/acc", torch.tensor(0.25 * step), step)
            writer.add_scalar("test/f1", scalar_value=0.5)
    recorded = open_run(tmp_path / "run")
    assert sorted(recorded.keys(PRINTED)) == ["test f1", "val acc"]
    told = recorded.scalar(PRINTED, "val acc")
    assert (told.steps.tolist(), told.values.tolist()) == ([1, 2, 3, 4], [0.0, 0.25, 0.5, 0.75])
    assert run.data["val_acc"] == 0.75
    assert not hasattr(Run.log, "__torchdoctor_original__")
