from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "label-values"
CLASSES = ("mlp", "cnn", "rnn", "decoder")


def tensors(program: Program) -> tuple[Tensor, Tensor]:
    x, y = program.train.dataset.tensors
    return x.clone(), y.clone()


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


@pytest.mark.parametrize("kind", CLASSES)
def test_labels_counted_from_one(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    program.train = loader(x, y + 1)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "invalid-labels" and outcome.severity is Severity.ERROR
    assert outcome.fix is not None and outcome.fix.listing == "y = y - 1"


@pytest.mark.parametrize("kind", CLASSES)
def test_minus_one_for_no_label(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    y.view(len(y), -1)[::7, 0] = -1
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "invalid-labels" and "-1" in outcome.text
    assert outcome.fix is not None and "ignore_index=-1" in (outcome.fix.listing or "")


@pytest.mark.parametrize("reduction", ["mean", "sum", "by hand"])
@pytest.mark.parametrize("kind", CLASSES)
def test_all_labels_are_ignored(kind: str, reduction: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    program.train = loader(x, torch.full_like(y, -100))

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        scores = scores.reshape(-1, scores.shape[-1])
        if reduction == "by hand":
            total = nn.functional.cross_entropy(scores, target.flatten(), reduction="sum")
            return total / (target != -100).sum().clamp(min=1)
        return nn.functional.cross_entropy(scores, target.flatten(), reduction=reduction)

    program.loss_fn = loss
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "invalid-labels" and outcome.severity is Severity.ERROR
    assert "ignore_index" in outcome.text


@pytest.mark.parametrize("kind", CLASSES)
def test_a_few_labels_that_count_are_enough(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    kept = y.flatten()[:2].clone()
    y.fill_(-100)
    y.view(-1)[:2] = kept
    program.train = loader(x, y, shuffle=False)
    program.loss_fn = lambda out, y: nn.functional.cross_entropy(
        out.reshape(-1, out.shape[-1]), y.flatten(), reduction="sum"
    )
    assert program.outcome(NAME).diagnosis != "invalid-labels"


def test_labels_are_those_of_the_loss_of_classes() -> None:
    """Boxes between 0 and 1 go into another loss first; as whole numbers they would all be class 0."""
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    boxes = torch.rand(len(y), 4)

    def step(model: nn.Module, batch: Any) -> Tensor:
        scores = model(batch[0])
        return nn.functional.smooth_l1_loss(scores, batch[1]) + nn.functional.cross_entropy(scores, batch[2])

    program.train, program.loss_fn, program.more = loader(x, boxes, y), None, {"step_fn": step}
    outcome = program.outcome(NAME)
    assert outcome.passed and "of 4 classes" in outcome.text, outcome.text


def test_ignored_labels_are_understood() -> None:
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    y[::7] = -1
    program.train, program.loss_fn = loader(x, y), nn.CrossEntropyLoss(ignore_index=-1)
    assert program.outcome(NAME).passed


def test_a_label_that_only_one_far_sample_has() -> None:
    program = HEALTHY["mlp"]()
    x, y = torch.randn(4000, 12), torch.randint(0, 4, (4000,))
    y[3900] = 4
    program.train = loader(x, y, shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "invalid-labels" and "Label 4" in outcome.text


def test_a_label_that_only_validation_has() -> None:
    program = HEALTHY["mlp"]()
    x, y = program.val.dataset.tensors
    program.val = loader(x, torch.where(torch.arange(len(y)) == len(y) - 1, 9, y), shuffle=False)
    assert program.outcome(NAME).diagnosis == "invalid-labels"


def test_binary_labels_of_minus_one_and_one() -> None:
    program = HEALTHY["multilabel"]()
    x, y = tensors(program)
    program.train = loader(x, 2 * y - 1)
    assert program.outcome(NAME).diagnosis == "invalid-labels"


@pytest.mark.parametrize("cast", [torch.int32, torch.float32])
def test_labels_of_the_wrong_type(cast: torch.dtype) -> None:
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    program.train = loader(x, y.to(cast))
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "invalid-labels", outcome.text


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_a_target_that_is_missing(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    y[5] = math.nan
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "nan-in-targets" and outcome.severity is Severity.ERROR


def test_missing_targets_that_are_masked() -> None:
    def masked(outputs: Tensor, y: Tensor) -> Tensor:
        keep = torch.isfinite(y)
        return nn.functional.mse_loss(outputs[keep], y[keep])

    program = HEALTHY["regression"]()
    x, y = tensors(program)
    y[::5] = math.nan
    program.train, program.loss_fn = loader(x, y), masked
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "nan-in-targets" and outcome.severity is Severity.INFO


@pytest.mark.parametrize(("scale", "severity"), [(2000.0, Severity.WARNING), (60.0, Severity.INFO)])
def test_targets_that_are_not_scaled(scale: float, severity: Severity) -> None:
    program = HEALTHY["regression"]()
    x, y = tensors(program)
    program.train = loader(x, y / y.std() * scale)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "unnormalized-inputs" and outcome.severity is severity


def test_a_head_that_starts_at_the_level_of_its_targets() -> None:
    program = HEALTHY["regression"]()
    x, y = tensors(program)
    program.model[2].bias.data.fill_(500.0)  # type: ignore[index,union-attr,operator]
    program.train = loader(x, y + 500)
    assert program.outcome(NAME).passed


def test_constant_targets() -> None:
    program = HEALTHY["regression"]()
    x, y = tensors(program)
    program.train = loader(x, torch.full_like(y, 3.0))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "all targets" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn"])
def test_one_class_only(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    program.train = loader(x, torch.ones_like(y))
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "class-imbalance" and outcome.severity is Severity.ERROR


def test_sorted_labels_are_not_one_class() -> None:
    program = HEALTHY["mlp"]()
    x, y = torch.randn(2000, 12), torch.arange(2000) // 500
    program.train = loader(x, y, shuffle=False)
    assert program.outcome(NAME).passed


def rare(program: Program, share: float) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    x = torch.randn(2000, *program.train.dataset.tensors[0].shape[1:])
    return x, (torch.rand(2000) < share).long()


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_class_that_is_nearly_all(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = rare(program, 0.02)
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "class-imbalance" and outcome.severity is Severity.WARNING


def test_a_binary_class_that_is_nearly_all() -> None:
    program = HEALTHY["multilabel"]()
    x, y = rare(program, 0.02)
    program.model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))
    program.train, program.val = loader(x, y.float()[:, None]), None
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "class-imbalance"
    assert outcome.fix is not None and "pos_weight" in (outcome.fix.listing or "")


@pytest.mark.parametrize("how", ["weights", "sampler", "mild"])
def test_imbalance_that_is_made_up_for(how: str) -> None:
    program = HEALTHY["mlp"]()
    x, y = rare(program, 0.15 if how == "mild" else 0.02)
    program.train = loader(x, y)
    if how == "weights":
        program.loss_fn = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 49.0, 1.0, 1.0]))
    if how == "sampler":
        weights = torch.where(y == 1, 49.0, 1.0)
        program.train = DataLoader(TensorDataset(x, y), 16, sampler=WeightedRandomSampler(weights.tolist(), 2000))
    assert program.outcome(NAME).passed


def test_a_label_among_many_that_is_never_positive() -> None:
    program = HEALTHY["multilabel"]()
    x, y = tensors(program)
    y[:, 1] = 0
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "class-imbalance" and "label 1 of 3 is never positive" in outcome.text


class Rows:
    """A dataset as Hugging Face's are: columns by name, items as dictionaries of plain values."""

    column_names = ("x", "label")

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x.tolist(), y.tolist()
        self.column_names = ["x", "label"]  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._x if key == "x" else self._y
        return {"x": torch.tensor(self._x[key]), "label": self._y[key]}


@pytest.mark.parametrize("how", ["subset", "rows", "list", "dict batches"])
def test_other_kinds_of_data(how: str) -> None:
    program = HEALTHY["mlp"]()
    x, y = torch.randn(600, 12), torch.randint(0, 4, (600,))
    far = y.clone()
    far[500] = 7
    for labels, good in ((y, True), (far, False)):
        data: Any = TensorDataset(x, labels)
        if how == "subset":
            data = Subset(data, list(range(100, 600)))
        elif how == "rows":
            data = Rows(x, labels)
        program.train = DataLoader(data, 16)
        if how == "list":
            program.train = list(program.train)[-12:]
        elif how == "dict batches":
            program.train = [{"x": a, "labels": b} for a, b in program.train][-12:]
        outcome = program.outcome(NAME)
        assert outcome.passed if good else outcome.diagnosis == "invalid-labels", outcome.text


def test_a_step_of_the_users_own() -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        logits = model(batch[0])
        return -logits.log_softmax(1).gather(1, batch[1][:, None]).mean()

    program = HEALTHY["mlp"]()
    program.loss_fn, program.more = None, {"step_fn": step}
    assert program.outcome(NAME).passed is not False


def test_what_an_autoencoder_rebuilds_are_no_labels() -> None:
    """A pixel that is black in all pictures is no label that lost its samples."""
    torch.manual_seed(0)
    x = torch.rand(400, 12)
    x[:, 0] = 0.0
    model = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 12))
    program = Program(model, loader(x, x), nn.BCEWithLogitsLoss())
    assert program.outcome(NAME).passed is not False


def _mixup(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    x, y = torch.stack([a for a, _ in samples]), nn.functional.one_hot(torch.stack([b for _, b in samples]), 4).float()
    order = torch.randperm(len(x))
    return 0.7 * x + 0.3 * x[order], 0.7 * y + 0.3 * y[order]


def _merged(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.stack([a for a, _ in samples]), torch.stack([b for _, b in samples]) // 2


@pytest.mark.parametrize("collate", [_mixup, _merged])
def test_labels_that_a_collate_fn_makes(collate: Any) -> None:
    """Stored ones say nothing of them."""
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    program.train = loader(x, y * 2 if collate is _merged else y, collate_fn=collate)
    outcome = program.outcome(NAME)
    assert outcome.passed, outcome.text


def test_a_rare_label_out_of_range_behind_a_collate_fn_that_keeps_it() -> None:
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    y[-1] = 7
    kept = lambda samples: (torch.stack([a for a, _ in samples]), torch.stack([b for _, b in samples]))  # noqa: E731
    program.train = loader(x, y, shuffle=False, collate_fn=kept, batch=4)
    assert program.outcome(NAME, quick=True).diagnosis == "invalid-labels"


class Texts(Dataset[Any]):
    """Rows of ids of any length and a label."""

    def __init__(self, count: int, row: Any) -> None:
        torch.manual_seed(0)
        lengths = torch.randint(3, 9, (count,)).tolist()
        self.data = [row(torch.randint(0, 50, (length,)).tolist(), n % 3) for n, length in enumerate(lengths)]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        ids, label = self.data[index].values() if isinstance(self.data[index], dict) else self.data[index]
        return torch.tensor(ids), label


@pytest.mark.parametrize("row", [lambda ids, y: (ids, y), lambda ids, y: [ids, y], lambda ids, y: {"ids": ids, "y": y}])
def test_rows_of_any_length(row: Any) -> None:
    def pad(samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        ids = nn.utils.rnn.pad_sequence([a for a, _ in samples], batch_first=True)
        return ids, torch.tensor([b for _, b in samples])

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(50, 16), nn.Linear(16, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.words(ids).mean(1))

    train, val = (DataLoader(Texts(count, row), 16, collate_fn=pad) for count in (320, 96))
    program = Program(Bag(), train, nn.CrossEntropyLoss(), val)
    outcome = program.outcome(NAME)
    assert outcome.passed and "320 training labels of 3 classes" in outcome.text
    assert program.outcome("validation-alike").passed


@pytest.mark.parametrize("weighed", ["focal", "by hand", "not"])
def test_rare_positives_that_are_weighed_by_hand(weighed: str) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(1600, 12), (torch.arange(1600) % 42 == 0).float()

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        function = nn.functional.binary_cross_entropy_with_logits
        if weighed == "not":
            return function(scores[:, 0], target)
        each = function(scores[:, 0], target, reduction="none")
        weight = (1 - torch.exp(-each)) ** 2 if weighed == "focal" else torch.where(target == 1, 40.0, 1.0)
        return (weight * each).mean()

    outcome = Program(nn.Linear(12, 1), loader(x, y), loss).outcome(NAME)
    assert outcome.diagnosis == "class-imbalance"
    assert outcome.severity is (Severity.WARNING if weighed == "not" else Severity.INFO)
    assert ("nothing makes up for it" in outcome.text) is (weighed == "not")


def test_targets_of_the_inputs_shape_that_hold_nan() -> None:
    torch.manual_seed(0)
    x = torch.randn(160, 1, 32)
    y = torch.randn(160, 1, 32)
    y[::17] = float("nan")
    outcome = Program(nn.Conv1d(1, 1, 1), loader(x, y), nn.MSELoss()).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "nan-in-targets"


def padded(program: Program, longest: int = 12) -> Program:
    """The decoder's sequences with zeros from a random length on."""
    x, y = tensors(program)
    lengths = torch.randint(1, longest // 2, (len(y), 1))
    y[torch.arange(y.shape[1]) >= lengths] = 0
    program.train = loader(x, y)
    return program


def test_padding_that_counts_as_targets() -> None:
    outcome = padded(HEALTHY["decoder"]()).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.WARNING and "padding" in outcome.text
    assert outcome.figures["share"] > 0.5 and outcome.fix is not None
    assert "ignore_index=0" in (outcome.fix.listing or "")


@pytest.mark.parametrize("how", ["ignored", "masked", "weighted"])
def test_padding_that_is_left_out(how: str) -> None:
    program = padded(HEALTHY["decoder"]())

    def loss(scores: Tensor, target: Tensor) -> Tensor:
        scores, target = scores.flatten(0, 1), target.flatten()
        if how == "ignored":
            return nn.functional.cross_entropy(scores, target, ignore_index=0)
        if how == "weighted":
            weight = torch.ones(scores.shape[1])
            weight[0] = 0
            return nn.functional.cross_entropy(scores, target, weight=weight)
        each = nn.functional.cross_entropy(scores, target, reduction="none")
        return (each * (target != 0)).sum() / (target != 0).sum()

    program.loss_fn = loss
    outcome = program.outcome(NAME)
    assert outcome.passed and ("not examined" in outcome.text) is (how != "ignored")


def test_the_most_frequent_class_of_positions_is_named() -> None:
    assert "% of them class" in HEALTHY["decoder"]().outcome(NAME).text
