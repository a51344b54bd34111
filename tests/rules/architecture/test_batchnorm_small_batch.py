"""Batch statistics over a few samples."""

from __future__ import annotations

import math

import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import LoaderFact
from torchdoctor.findings import RuledOut, Severity

NAME = "batchnorm-small-batch"


def norms(samples: float, noise: float) -> RunBuilder:
    builder = RunBuilder(100).optimizer("SGD", lr=0.1).parameters({"bn.weight": (32,)}, "BatchNorm1d")
    return builder.matrix(signals.NORM_SAMPLES, {"bn": samples}).matrix(signals.NORM_NOISE, {"bn": noise})


@pytest.mark.parametrize(
    ("samples", "noise", "severity"),
    [
        (2, 0.002, Severity.INFO),
        (2, math.nan, Severity.WARNING),
        (2, 0.4, Severity.WARNING),
        (4, 0.17, Severity.WARNING),
        (4, 0.01, Severity.INFO),
    ],
)
def test_few_samples(samples: float, noise: float, severity: Severity) -> None:
    (said,) = findings(norms(samples, noise).build(), NAME)
    assert said.severity is severity and said.fix.code == "model.bn = nn.GroupNorm(8, 32)"


def test_batches_of_a_usual_size_rule_it_out() -> None:
    assert [type(s) for s in norms(16, 0.2).detect(NAME)] == [RuledOut]


def test_a_run_without_normalisation_says_nothing() -> None:
    assert not RunBuilder(20).optimizer().detect(NAME)


def test_torch_refuses_the_last_batch() -> None:
    loader = LoaderFact("train", "train", 31, 961, 32, 0, True, "Signals")
    message = "Expected more than 1 value per channel when training, got input size torch.Size([1, 16])"
    builder = RunBuilder(30).optimizer().fact(loader).info(exception={"type": "ValueError", "message": message})
    (said,) = findings(builder.build(), NAME)
    assert said.severity is Severity.ERROR and "drop_last=True" in str(said.fix.code)
