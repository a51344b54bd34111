from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program, loader
from torchdoctor import check
from torchdoctor.findings import Severity

NAME = "memorise"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed and outcome.figures["memorised"]


class Cut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder"])
def test_a_loss_without_a_graph(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, Cut())
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"
    assert outcome.severity is Severity.ERROR


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "multilabel"])
def test_the_same_input_with_different_labels(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = next(iter(program.train))
    program.train = loader(x[:1].expand_as(x).clone(), y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis in ("inputs-and-labels-unrelated", "constant-inputs")


@pytest.mark.parametrize("kind", ["regression", "autoencoder"])
def test_an_output_that_cannot_be_negative(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, nn.ReLU())
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "misplaced-activation"


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_softmax_before_the_loss(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, nn.Softmax(-1))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "softmax-before-cross-entropy"


def test_a_linear_probe_is_meant() -> None:
    program = HEALTHY["mlp"]()
    for part in list(program.model)[:-1]:  # type: ignore[call-overload]
        part.requires_grad_(False)
    outcome = program.outcome(NAME)
    assert outcome.passed is not False or outcome.severity is Severity.INFO


def test_a_model_that_is_too_small_is_worth_a_note() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    model = nn.Linear(4, 1)
    program = Program(model, loader(x, torch.randn(64, 1)), nn.MSELoss(), optimizer=torch.optim.SGD(model.parameters()))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "capacity-too-low" and outcome.severity is Severity.INFO


def test_a_loss_whose_floor_nobody_knows() -> None:
    program = HEALTHY["autoencoder"]()
    program.loss_fn = lambda outputs, target: (outputs - target).abs().pow(1.5).mean() + 0.01
    outcome = program.outcome(NAME)
    assert outcome.passed and "not known" in outcome.text


def test_the_finding_before_is_named() -> None:
    program = HEALTHY["mlp"]()
    program.model = nn.Sequential(program.model, Cut())
    made = check(program.model, program.train, F.cross_entropy, only=["gradients-reach", NAME], progress=False)
    assert "as gradients-reach says" in made.checked[-1].outcome.text


def test_scores_that_are_bounded_hold_the_loss_up() -> None:
    """Cosines: the loss of the right answers is far from zero, and no cause is to be named."""

    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.centres = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return 3 * F.linear(F.normalize(self.body(x), dim=1), F.normalize(self.centres.weight, dim=1))

    torch.manual_seed(0)
    program = Program(Cosines(), loader(torch.randn(160, 12), torch.arange(160) % 3), nn.CrossEntropyLoss())
    outcome = program.outcome(NAME)
    assert outcome.passed is not False, outcome.text


class Variational(nn.Module):
    """Whose divergence weighs so much that the code collapses."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
        self.picture = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))

    def loss(self, x: Tensor) -> Tensor:
        return F.mse_loss(self(x), x) + 10 * self.divergence

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.code(x).chunk(2, 1)
        self.divergence = (-0.5 * (1 + spread - mean.square() - spread.exp())).mean()
        return self.picture(mean + torch.randn_like(mean) * (spread / 2).exp())


@pytest.mark.parametrize("before", [(), ("input-dependence",)])
def test_a_code_that_collapses_in_the_trial_is_no_fault_of_the_model(before: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    data, model = loader(torch.randn(320, 12)), Variational()
    collapsed = 0
    for seed in range(4):
        torch.manual_seed(seed)
        made = check(
            model,
            data,
            step_fn=lambda model, batch: model.loss(batch[0]),
            only=[*before, NAME],
            progress=False,
        )
        outcome = made.checked[-1].outcome
        assert outcome.passed is not False or outcome.severity is Severity.INFO, outcome.text
        collapsed += outcome.passed is False and "after training on one batch" in outcome.text
    assert collapsed


@pytest.mark.parametrize("rate", [None, 0.5])
def test_targets_that_are_not_scaled_are_told_once(rate: float | None) -> None:
    """What comes of them is as grave as they are, and nobody is told to train at a rate of one, or of a millionth."""
    program = HEALTHY["regression"]()
    torch.manual_seed(0)
    x = torch.randn(320, 6)
    program.train, program.val = loader(x, 2e5 + 5e4 * x[:, :1]), None
    program.optimizer = (
        torch.optim.Adam(program.model.parameters())
        if rate is None
        else torch.optim.SGD(program.model.parameters(), rate)
    )
    names = ["label-values", "loss-falls", NAME, "useful-rate"]
    made = check(program.model, program.train, program.loss_fn, optimizer=program.optimizer, only=names, progress=False)
    told = {c.check.name: c.outcome for c in made.checked}
    assert told["label-values"].diagnosis == "unnormalized-inputs"
    assert told["useful-rate"].passed is None and "as label-values says" in told["useful-rate"].text
    assert told[NAME].severity is told["label-values"].severity and "as label-values says" in told[NAME].text
    assert "lr=" not in str([c.outcome.fix for c in made.failures])
    assert made.bottleneck is not None and "is the data" in made.bottleneck
    causes = {f.name: f.consequence_of for f in made.findings()}
    assert causes.pop("unnormalized-inputs") is None
    assert causes == ({"learning-rate-too-high": "unnormalized-inputs"} if rate else {})


def test_a_deep_stack_that_collapses_is_a_warning() -> None:
    torch.manual_seed(0)
    blocks = [m for _ in range(30) for m in (nn.Linear(16, 16), nn.ReLU())]
    program = HEALTHY["mlp"]()
    program.model = nn.Sequential(nn.Linear(12, 16), *blocks, nn.Linear(16, 4))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is not Severity.INFO, outcome.text
