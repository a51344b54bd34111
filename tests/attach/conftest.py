"""What several tests of attaching stand on."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from attach.loggers import Run, SummaryWriter
from torchdoctor.attach.ceiling import Ceiling
from torchdoctor.facts import HealthFact


@pytest.fixture
def usual_ceiling(enough_time: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it, for tests whose costs are set and not measured."""
    monkeypatch.setattr(Ceiling, "once", HealthFact.UNNOTICED_SECONDS)


@pytest.fixture
def loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("wandb.sdk.wandb_run", Run), ("torch.utils.tensorboard.writer", SummaryWriter)):
        module = ModuleType(name)
        setattr(module, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, name, module)
