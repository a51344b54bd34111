"""Evaluations of models and of arrays: the right task, the right figures, the right samples, and no trace left."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as known
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.evaluation import evaluate, evaluate_predictions

COUNT, CLASSES = 120, 4


@pytest.fixture
def data() -> TensorDataset:
    torch.manual_seed(3)
    x = torch.randn(COUNT, 6)
    return TensorDataset(x, (x @ torch.randn(6, CLASSES) + torch.randn(COUNT, CLASSES)).argmax(1))


@pytest.fixture
def model(data: TensorDataset) -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, CLASSES))


def scores_of(model: nn.Module, data: TensorDataset) -> tuple[np.ndarray, np.ndarray]:
    model.eval()
    with torch.no_grad():
        found = model(data.tensors[0]).numpy()
    model.train()
    return found, data.tensors[1].numpy()


def test_the_figures_are_those_of_all_samples(model: nn.Module, data: TensorDataset) -> None:
    logits, label = scores_of(model, data)
    shares = torch.tensor(logits).softmax(1).numpy()
    found = evaluate(model, DataLoader(data, 16), nn.CrossEntropyLoss(), k=5, top=(2,))
    m = {name: e.value for name, e in found.metrics.items()}
    assert found.task == "multiclass" and found.scores == "logits"
    assert m["accuracy"] == pytest.approx((logits.argmax(1) == label).mean())
    assert m["auroc"] == pytest.approx(known.roc_auc_score(label, shares, multi_class="ovr"), abs=1e-6)
    assert m["log_loss"] == m["loss"] == pytest.approx(known.log_loss(label, shares), rel=1e-5)
    assert m["top_2_accuracy"] == pytest.approx(known.top_k_accuracy_score(label, shares, k=2))
    assert "precision_at_5" in m
    assert (found.confusion == known.confusion_matrix(label, logits.argmax(1))).all()
    assert found.baseline == np.bincount(label).max() / COUNT


def test_nothing_is_left_behind(model: nn.Module, data: TensorDataset) -> None:
    model[0].eval()
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(data, 16, shuffle=True, generator=generator)
    before = [t.clone() for t in model.state_dict().values()]
    drawn, own = torch.random.get_rng_state(), generator.get_state()
    evaluate(model, loader, nn.CrossEntropyLoss())
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert torch.equal(drawn, torch.random.get_rng_state()) and torch.equal(own, generator.get_state())
    assert [m.training for m in model] == [False, True, True, True]
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("shuffle", [False, True])
def test_worst_samples_by_their_index_in_the_dataset(model: nn.Module, data: TensorDataset, shuffle: bool) -> None:
    logits, label = scores_of(model, data)
    loss = nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(label), reduction="none").numpy()
    found = evaluate(model, DataLoader(data, 16, shuffle=shuffle), nn.CrossEntropyLoss(), worst=7)
    assert [w.index for w in found.worst] == np.argsort(-loss)[:7].tolist()
    assert [w.loss for w in found.worst] == pytest.approx(np.sort(loss)[::-1][:7])
    assert all(w.target == str(label[w.index]) and w.prediction == str(logits[w.index].argmax()) for w in found.worst)
    assert found.index == "index in the dataset"
    assert any("shuffles" in note for note in found.notes) is shuffle


def test_a_stream_is_counted_in_its_order(model: nn.Module, data: TensorDataset) -> None:
    class Stream(IterableDataset):
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter([data[i] for i in range(COUNT)])

    plain = evaluate(model, DataLoader(data, 16))
    for loader in (DataLoader(Stream(), 16), [data[i : i + 16] for i in range(0, COUNT, 16)]):
        found = evaluate(model, loader)
        assert [w.index for w in found.worst] == [w.index for w in plain.worst]
        assert found.index == "position in the loader's order"


def test_workers_and_samples_one_by_one(model: nn.Module, data: TensorDataset) -> None:
    expected = evaluate(model, DataLoader(data, 16)).metrics["accuracy"]
    assert evaluate(model, DataLoader(data, 16, shuffle=True, num_workers=1)).metrics["accuracy"] == expected
    whole = TensorDataset(data.tensors[0].unflatten(0, (12, 10)), data.tensors[1].unflatten(0, (12, 10)))
    found = evaluate(model, DataLoader(whole, batch_size=None))
    assert found.metrics["accuracy"] == expected and found.index == "position in the loader's order"


@dataclass
class Batch:
    inputs: Tensor
    labels: Tensor
    site: list[str]


class Sited(Dataset):
    def __init__(self, data: TensorDataset) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, i: int) -> dict[str, Any]:
        x, y = self._data[i]
        return {"input": x, "labels": y, "site": "north" if i % 3 else "south", "length": i}


class OnlyInput(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input: Tensor, site: Any = None, length: Any = None) -> Tensor:
        return self.inner(input)


def test_slices_in_any_form(model: nn.Module, data: TensorDataset) -> None:
    site = ["north" if i % 3 else "south" for i in range(COUNT)]
    named = evaluate(OnlyInput(model), DataLoader(Sited(data), 16, shuffle=True), slices="site")
    by_value = evaluate(model, DataLoader(data, 16, shuffle=True), slices={"site": site})
    by_rule = evaluate(model, DataLoader(data, 16), slices={"site": lambda b: ["x"] * len(b[1])})
    assert named.slices == by_value.slices
    assert {s.name: s.samples for s in named.slices} == {"site = north": 80, "site = south": 40}
    assert [s.name for s in by_rule.slices] == ["site = x"] and np.isnan(by_rule.slices[0].chance)
    two = evaluate(OnlyInput(model), DataLoader(Sited(data), 16), slices=["site", "length"], slice_parts=3)
    assert {s.by for s in two.slices} == {"site", "length"} and len(two.slices) == 5


@pytest.mark.parametrize(
    ("slices", "said"),
    [
        ("site", "without names"),
        ({"a": [1, 2, 3]}, "one for each sample of the dataset"),
        ({"a": lambda b: [1]}, "1 value for a batch of 16 samples"),
        ({"a": lambda b: b[0]}, "one value a sample"),
    ],
)
def test_slices_that_do_not_fit(slices: Any, said: str, model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(UsageError, match=said):
        evaluate(model, DataLoader(data, 16), slices=slices)


def test_a_column_that_is_not_there(model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(UsageError, match="'city'; a batch holds input, labels, site, length"):
        evaluate(OnlyInput(model), DataLoader(Sited(data), 16), slices="city")


DRAW = np.random.default_rng(5)
LOGITS, LABELS = DRAW.normal(size=(90, 3)), DRAW.integers(0, 3, 90)
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
SINGLE, YES = DRAW.normal(size=90), DRAW.integers(0, 2, 90)
SEVERAL = DRAW.integers(0, 2, (90, 3))


@pytest.mark.parametrize(
    ("outputs", "targets", "task", "scores"),
    [
        (LOGITS, LABELS, "multiclass", "logits"),
        (SHARES, LABELS, "multiclass", "probabilities"),
        (np.log(SHARES), LABELS, "multiclass", "log-probabilities"),
        (LOGITS, LABELS[:, None], "multiclass", "logits"),
        (LOGITS, np.eye(3)[LABELS], "multiclass", "logits"),
        (LOGITS.argmax(1), LABELS, "multiclass", "decisions"),
        (SINGLE, YES, "binary", "logits"),
        (SINGLE[:, None], YES, "binary", "logits"),
        (SINGLE[:, None], YES[:, None].astype(float), "binary", "logits"),
        (1 / (1 + np.exp(-SINGLE)), YES.astype(bool), "binary", "probabilities"),
        (LOGITS, SEVERAL, "multilabel", "logits"),
        (1 / (1 + np.exp(-LOGITS)), SEVERAL, "multilabel", "probabilities"),
        (SINGLE, DRAW.normal(size=90), "regression", ""),
        (LOGITS, DRAW.normal(size=(90, 3)), "regression", ""),
        (SINGLE[:, None], LABELS, "regression", ""),
        (LOGITS.reshape(10, 9, 3), LABELS.reshape(10, 9), "tokens", "logits"),
        (LOGITS.reshape(10, 9, 3).swapaxes(1, 2), LABELS.reshape(10, 9), "tokens", "logits"),
        (SINGLE.reshape(5, 1, 6, 3), YES.reshape(5, 1, 6, 3), "tokens", "logits"),
    ],
)
def test_the_task_is_found(outputs: Any, targets: Any, task: str, scores: str) -> None:
    found = evaluate_predictions(outputs, targets)
    assert (found.task, found.scores) == (task, scores)
    assert str(found) and found.plot().layout.title.text
    assert found.to_dict()["task"] == task


def test_the_same_scores_in_any_form_give_the_same_figures() -> None:
    found = [evaluate_predictions(o, LABELS) for o in (LOGITS, SHARES, np.log(SHARES), torch.tensor(LOGITS))]
    for name, value in found[0].metrics.items():
        for other in found[1:]:
            assert other.metrics[name].value == pytest.approx(value.value, abs=1e-6)
    tokens = [
        evaluate_predictions(LOGITS.reshape(10, 9, 3), LABELS.reshape(10, 9)),
        evaluate_predictions(LOGITS.reshape(10, 9, 3).swapaxes(1, 2), LABELS.reshape(10, 9), nn.CrossEntropyLoss()),
    ]
    for found_tokens in tokens:
        assert found_tokens.metrics["accuracy"].value == pytest.approx(found[0].metrics["accuracy"].value)


def test_the_loss_function_tells_what_the_values_do_not() -> None:
    low = torch.rand(40)
    yes = (torch.rand(40) < 0.5).float()
    assert evaluate_predictions(low, yes).scores == "probabilities"
    assert evaluate_predictions(low, yes, nn.BCEWithLogitsLoss()).scores == "logits"
    assert evaluate_predictions(low, yes, nn.MSELoss()).task == "regression"
    assert evaluate_predictions(low, yes, task="regression").task == "regression"
    one_hot = torch.eye(3)[torch.tensor(LABELS)]
    assert evaluate_predictions(LOGITS, one_hot, nn.BCEWithLogitsLoss()).task == "multilabel"
    assert "single 1" in evaluate_predictions(LOGITS, one_hot).notes[0]
    assert evaluate_predictions(LOGITS, one_hot, task="multilabel").task == "multilabel"


def test_yes_or_no() -> None:
    found = evaluate_predictions(SINGLE, YES, threshold=0.3, class_names=["ham", "spam"], k=(10, 500))
    share = 1 / (1 + np.exp(-SINGLE))
    assert found.metrics["accuracy"].value == pytest.approx(((share >= 0.3) == YES).mean())
    assert found.metrics["auroc"].value == pytest.approx(known.roc_auc_score(YES, SINGLE))
    assert found.metrics["precision_at_10"].value == YES[np.argsort(-SINGLE)[:10]].mean()
    assert "precision_at_500" not in found.metrics
    assert found.calibration is not None and found.calibration.about == "the probability of spam"


def test_several_labels() -> None:
    found = evaluate_predictions(LOGITS, SEVERAL, class_names=["a", "b", "c"])
    named = LOGITS >= 0
    for average in ("micro", "macro"):
        expected = known.f1_score(SEVERAL, named, average=average)
        assert found.metrics[f"{average}_f1"].value == pytest.approx(expected)
    assert found.metrics["exact_match"].value == pytest.approx(known.accuracy_score(SEVERAL, named))
    assert found.metrics["auroc"].value == pytest.approx(known.roc_auc_score(SEVERAL, LOGITS))
    assert (found.confusion == known.multilabel_confusion_matrix(SEVERAL, named)).all()
    assert "Label" in found.plot("confusion").layout.title.text


def test_several_numbers() -> None:
    target = DRAW.normal([0, 5, 10], size=(90, 3))
    predicted = target + DRAW.normal(size=(90, 3)) * [0.1, 0.5, 1.0]
    found = evaluate_predictions(predicted, target, class_names=["x", "y", "z"])
    assert found.metrics["r2"].value == pytest.approx(known.r2_score(target, predicted))
    assert found.metrics["mae"].value == pytest.approx(known.mean_absolute_error(target, predicted))
    assert [n.name for n in found.numbers] == ["x", "y", "z"]
    assert "output z" in found.notes[0]
    picture = target.repeat(40, axis=1)
    wide = evaluate_predictions(picture + 1, picture)
    assert wide.numbers == () and wide.metrics["rmse"].value == pytest.approx(1)


def test_tokens_leave_padding_out_and_count_by_sample() -> None:
    label = torch.randint(0, 5, (30, 12))
    logits = 4 * nn.functional.one_hot(label, 5).float()
    logits[:10] = logits[:10].roll(1, -1)
    label[:, 8:] = -100
    found = evaluate_predictions(logits, label)
    assert found.task == "tokens" and found.elements == 240
    assert found.metrics["accuracy"].value == pytest.approx(2 / 3)
    low, high = found.metrics["accuracy"].low, found.metrics["accuracy"].high
    assert high - low > 0.25, "30 sequences, not 240 tokens"
    assert any("120 targets are -100" in note for note in found.notes)
    assert {w.index for w in found.worst} == set(range(10))
    other = evaluate_predictions(logits, label.masked_fill(label < 0, 9), ignore_index=9)
    assert other.metrics["accuracy"] == found.metrics["accuracy"]


def test_a_causal_language_model_is_shifted() -> None:
    class Next(nn.Module):
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            return {"logits": 9.0 * nn.functional.one_hot((input_ids + 1) % 7, 7).float()}

    ids = (torch.arange(10) + torch.arange(4)[:, None]) % 7
    batch = {"input_ids": ids, "labels": ids.clone()}
    found = evaluate(Next(), [batch])
    assert found.metrics["accuracy"].value == 1.0 and found.elements == 36
    assert evaluate(Next(), [batch], shift=False).metrics["accuracy"].value == 0.0


def test_models_that_give_more_and_steps_of_ones_own(model: nn.Module, data: TensorDataset) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.inner(x), x

    expected = evaluate(model, DataLoader(data, 16)).metrics["accuracy"]
    assert evaluate(Two(), DataLoader(data, 16)).metrics["accuracy"] == expected
    assert evaluate(Two(), DataLoader(data, 16), output_fn=lambda o: o[0]).metrics["accuracy"] == expected
    batches = [SimpleNamespace(x=x, y=y) for x, y in DataLoader(data, 16)]
    found = evaluate(model, batches, step_fn=lambda m, b: m(b.x).sum(), target_fn=lambda b: b.y)
    assert found.metrics["accuracy"] == expected
    with pytest.raises(UsageError, match="target_fn"):
        evaluate(model, batches, step_fn=lambda m, b: m(b.x).sum())


def test_losses_by_sample_by_batch_and_wrong_ones(model: nn.Module, data: TensorDataset) -> None:
    loader, cross = DataLoader(data, 16), nn.functional.cross_entropy
    plain = evaluate(model, loader, nn.CrossEntropyLoss())
    for loss_fn in (cross, nn.CrossEntropyLoss(reduction="none"), lambda o, t: cross(o, t)):
        found = evaluate(model, loader, loss_fn)
        assert found.metrics["loss"].value == pytest.approx(plain.metrics["loss"].value, rel=1e-5)
    assert plain.loss_name == "CrossEntropyLoss" and found.loss_name == "cross-entropy"
    assert found.metrics["loss"].how == "" and plain.metrics["loss"].how == "normal"
    with pytest.raises(UsageError, match=r"shape \(3,\)"):
        evaluate(model, loader, lambda o, t: torch.zeros(3))
    with pytest.raises(UsageError, match="not a tensor"):
        evaluate(model, loader, lambda o, t: 3.0)
    weighted = evaluate(model, loader, nn.CrossEntropyLoss(torch.tensor([1.0, 2, 3, 4])))
    assert any("weighs classes" in note for note in weighted.notes)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"task": "clustering"}, "known are multiclass"),
        ({"scores": "odds"}, "known are logits"),
        ({"class_names": ["a", "b"]}, "2 names, and there are 4 classes"),
        ({"level": 95}, "a share such as 0.95"),
        ({"binning": "log"}, "equal width"),
        ({"bins": 0}, "at least one"),
        ({"k": 0}, "from 1 on"),
        ({"task": "binary"}, "one score or two"),
        ({"task": "regression"}, "a prediction for each target"),
    ],
)
def test_wrong_wishes(wrong: dict[str, Any], said: str, model: nn.Module, data: TensorDataset) -> None:
    with pytest.raises(UsageError, match=said):
        evaluate(model, DataLoader(data, 16), **wrong)


def test_loaders_and_values_that_cannot_be_judged(model: nn.Module, data: TensorDataset) -> None:
    x, y = data.tensors
    with pytest.raises(UsageError, match="gives no batch"):
        evaluate(model, DataLoader(TensorDataset(x, y), 1000, drop_last=True))
    with pytest.raises(UsageError, match="is an iterator"):
        evaluate(model, iter([(x, y)]))
    with pytest.raises(UsageError, match="labels go from 1 to 4, the outputs have 4 classes"):
        evaluate(model, [(x, y + 1)])
    with pytest.raises(UsageError, match="every target is -100"):
        evaluate(model, [(x, torch.full_like(y, -100))])
    with pytest.raises(UsageError, match="every output is NaN"):
        evaluate(model, [(x * float("nan"), y)])
    with pytest.raises(UsageError, match="are empty"):
        evaluate_predictions([], [])
    with pytest.raises(UsageError, match="first dimension"):
        evaluate_predictions(np.zeros((3, 2)), np.zeros(4))


def test_bad_outputs_are_left_out_and_told(model: nn.Module, data: TensorDataset) -> None:
    x, y = data.tensors[0].clone(), data.tensors[1]
    x[5] = float("nan")
    found = evaluate(model, DataLoader(TensorDataset(x, y), 16), slices={"half": [i // 60 for i in range(COUNT)]})
    assert found.samples == COUNT - 1
    assert "1 prediction is left out" in found.notes[0]


def test_the_batches_looked_at_may_be_limited(model: nn.Module, data: TensorDataset) -> None:
    found = evaluate(model, DataLoader(data, 16), batches=3)
    assert found.samples == 48 and "first 3 batches" in found.notes[0]
    assert evaluate(model, DataLoader(data, 16), batches=1).notes == ["only the first batch was looked at"]


def test_many_scores_are_thinned_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchdoctor.instruments.evaluating import predictions

    monkeypatch.setattr(predictions, "NUMBERS_KEPT", 400)
    logits = torch.randn(600, 4)
    found = evaluate_predictions(logits, (logits + torch.randn(600, 4)).argmax(1))
    whole = found.metrics["accuracy"]
    assert found.samples == 600 and whole.high - whole.low < 0.1
    assert any("of so many rows of scores one in" in note for note in found.notes)


def test_what_matters_most_is_drawn_and_said() -> None:
    draw = np.random.default_rng(0)
    site = draw.choice(["n", "s"], 600)
    logits = 3 * draw.normal(size=(600, 3))
    label = np.where(site == "s", draw.integers(0, 3, 600), logits.argmax(1))
    weak = evaluate_predictions(logits, label, slices={"site": site})
    assert "first of all site = s" in weak.plot().layout.title.text
    assert str(weak).splitlines()[1].startswith("  worse than the rest beyond chance: site = s")
    over = evaluate_predictions(3 * logits, (logits + draw.gumbel(size=(600, 3))).argmax(1))
    assert "overconfident" in over.plot().layout.title.text and "divide the logits by" in str(over)
    assert over.plot("confusion").layout.title.text.startswith("Most often class")
    for kind, said in (("slices", "no slices"), ("residuals", "no residuals"), ("pie", "known are")):
        with pytest.raises(UsageError, match=said):
            over.plot(kind)
    with pytest.raises(UsageError, match="numbers are not classes"):
        evaluate_predictions(SINGLE, SINGLE).plot("confusion")
    assert "<pre>" in over._repr_html_()
