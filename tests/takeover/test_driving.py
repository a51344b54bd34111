"""The loop of an unmodified script, in any style, as a function from a batch to its loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processes import run_python

BEGINNING = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 12)
y = x[:, :4].argmax(1)
train = DataLoader(TensorDataset(x[:512], y[:512]), 16, shuffle=True)
val = DataLoader(TensorDataset(x[512:], y[512:]), 16)


def net():
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
"""

PLAIN = """
model = net()
opt = torch.optim.Adam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
for epoch in range(20):
    model.train()
    for a, b in train:
        opt.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        opt.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        print(sum(F.cross_entropy(model(a), b).item() for a, b in val))
"""

TRAINER = """
class Trainer:
    def __init__(self, epochs):
        self.epochs, self.model = epochs, net()
        self.opt = torch.optim.SGD(self.model.parameters(), 0.1)
        self.scaler = torch.amp.GradScaler("cpu")

    def fit(self):
        for self.epoch in range(self.epochs):
            batches = iter(train)
            while True:
                try:
                    a, b = next(batches)
                except StopIteration:
                    break
                self.scaler.scale(F.cross_entropy(self.model(a), b)).backward()
                self.scaler.step(self.opt)
                self.scaler.update()
                self.opt.zero_grad()


Trainer(20).fit()
"""

ACCUMULATED = """
from accelerate import Accelerator

accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model = net()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
model, opt, train = accelerator.prepare(model, opt, train)
for epoch in range(20):
    for a, b in train:
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(a), b))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
"""

CLOSURE = """
model = net()
opt = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4)
for epoch in range(20):
    for a, b in train:
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            return loss

        opt.step(closure)
"""

LIGHTNING = """
import lightning as L


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net()

    def training_step(self, batch, i):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, i):
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


if __name__ == "__main__":
    trainer = L.Trainer(
        max_epochs=20, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Net(), train, val)
"""

HUGGING_FACE = """
from transformers import Trainer, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, xs, labels=None):
        scores = self.net(xs)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


data = [{"xs": a, "labels": b} for a, b in zip(x, y)]
arguments = TrainingArguments(
    "out", per_device_train_batch_size=16, num_train_epochs=20, report_to=[], eval_strategy="epoch",
    save_strategy="no", disable_tqdm=True, gradient_accumulation_steps=2, use_cpu=True,
)
Trainer(Net(), arguments, train_dataset=data[:512], eval_dataset=data[512:]).train()
"""


def drive(body: str, folder: Path, when: str = "late") -> dict[str, Any]:
    (folder / "train.py").write_text(BEGINNING + body)
    done = run_python(str(Path(__file__).with_name("driven.py")), when, "train.py", cwd=folder)
    told = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert told, done.stdout + done.stderr
    return dict(json.loads(told[-1].partition(" ")[2]))


@pytest.mark.parametrize(
    ("body", "accumulation"),
    [(PLAIN, 1), (TRAINER, 1), (ACCUMULATED, 2), (CLOSURE, 1), (LIGHTNING, 1), (HUGGING_FACE, 2)],
    ids=["plain", "trainer-class", "accelerate", "closure", "lightning", "hugging-face"],
)
def test_the_same_batch_gives_the_same_loss_and_can_be_learned(body: str, accumulation: int, tmp_path: Path) -> None:
    told = drive(body, tmp_path)
    assert "error" not in told
    first, second, *again = told["losses"]
    assert [first, second] == again and first != second
    assert 1.0 < first < 2.0  # near ln 4: whole, and of the weights that the script began with
    assert told["fitted"][1] < told["fitted"][0]
    assert told["rates"]
    assert (told["epochs"], told["accumulation"]) == (20, accumulation)
    assert told["train"] == 16


SHORT = HUGGING_FACE.replace("num_train_epochs=20", "num_train_epochs=4").replace(
    "self.net(xs)", "F.dropout(self.net(xs), 0.2, self.training)"
)


def test_a_short_trainer_goes_on_and_what_it_draws_between_epochs_does_not_count(tmp_path: Path) -> None:
    told = drive(SHORT, tmp_path)
    assert "error" not in told and told["epochs"] == 4
    assert told["from_one_seed"] == 1


TWICE = LIGHTNING.replace("max_epochs=20", "max_epochs=20, accumulate_grad_batches=2")


@pytest.mark.parametrize(
    ("body", "accumulation"), [(ACCUMULATED, 2), (TWICE, 2), (HUGGING_FACE, 2)], ids=["accelerate", "lightning", "hf"]
)
def test_a_loop_that_is_taken_over_at_once_is_known_as_well(body: str, accumulation: int, tmp_path: Path) -> None:
    """One that fetches ahead would give the loss of another batch."""
    told = drive(body, tmp_path, "early")
    first, second, *again = told["losses"]
    assert [first, second] == again and first != second
    assert 1.0 < first < 2.0
    assert told["accumulation"] == accumulation


SLICED = """
model = net()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(500):
    rows = torch.randint(0, 640, (16,))
    opt.zero_grad()
    F.cross_entropy(model(x[rows]), y[rows]).backward()
    opt.step()
"""

LOADER_EACH_EPOCH = """
model, data = net(), train.dataset
opt = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(20):
    for a, b in DataLoader(data, 16, shuffle=True):
        opt.zero_grad()
        F.cross_entropy(model(a), b).backward()
        opt.step()
"""

TWO_LOADERS = """
model = net()
opt = torch.optim.Adam(model.parameters(), 1e-3)
more = DataLoader(TensorDataset(x[:512] + 0.1, y[:512]), 16, shuffle=True)
for epoch in range(20):
    for (a, b), (c, d) in zip(train, more):
        opt.zero_grad()
        loss = 0.5 * (F.cross_entropy(model(a), b) + F.cross_entropy(model(c), d))
        loss.backward()
        opt.step()
"""

TWO_MODELS = """
body, head = nn.Sequential(nn.Linear(12, 32), nn.ReLU()), nn.Linear(32, 4)
opt = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-3)
for epoch in range(20):
    for a, b in train:
        opt.zero_grad()
        F.cross_entropy(head(body(a)), b).backward()
        opt.step()
"""


@pytest.mark.parametrize(
    "body",
    [SLICED, LOADER_EACH_EPOCH, TWO_LOADERS, TWO_MODELS],
    ids=["slices", "loader-each-epoch", "two-loaders", "two-models"],
)
def test_loops_that_take_their_batches_in_other_ways(body: str, tmp_path: Path) -> None:
    told = drive(body, tmp_path)
    assert "error" not in told and told["why_not"] is None
    first, second, *again = told["losses"]
    assert [first, second] == again and first != second
    assert 1.0 < first < 2.0
    assert told["fitted"][1] < told["fitted"][0]


def test_a_rate_that_the_loop_warms_up_from_nothing_is_no_rate_of_zero(tmp_path: Path) -> None:
    warmed = SLICED.replace(
        "    opt.zero_grad()", "    opt.param_groups[0]['lr'] = 1e-3 * step / 100\n    opt.zero_grad()"
    )
    told = drive(warmed, tmp_path)
    assert told["fitted"][1] < told["fitted"][0]


EVALUATES_TRAINING_DATA = """
model = net()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(20):
    for step, (a, b) in enumerate(train):
        opt.zero_grad()
        F.cross_entropy(model(a), b).backward()
        opt.step()
        if step % 5 == 4:
            with torch.no_grad():
                print(sum(F.cross_entropy(model(a), b).item() for a, b in train))
"""


def test_a_walk_that_evaluates_on_the_training_data_is_left_to_the_script(tmp_path: Path) -> None:
    told = drive(EVALUATES_TRAINING_DATA, tmp_path)
    assert "error" not in told
    first, second, *again = told["losses"]
    assert [first, second] == again and first != second


CLIPS = """
from torch.nn.utils import clip_grad_norm_

model = net()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(20):
    for a, b in train:
        F.cross_entropy(model(a), b).backward()
        clip_grad_norm_(model.parameters(), 1e-6)
        opt.step()
        for p in model.parameters():
            p.grad = None
"""


def test_what_the_script_does_to_gradients_is_not_done_to_those_of_others(tmp_path: Path) -> None:
    """By names that it imported, it clips what is summed up over several losses."""
    told = drive(CLIPS, tmp_path)
    assert told["summed"] == pytest.approx(told["apart"], rel=1e-4)
    assert told["apart"] > 0.01


COMPILED = """
model = net()
compiled = torch.compile(model)
opt = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(20):
    for a, b in train:
        opt.zero_grad()
        F.cross_entropy(compiled(a), b).backward()
        opt.step()
"""


def test_a_compiled_model_is_driven_without_its_compiler(tmp_path: Path) -> None:
    told = drive(COMPILED, tmp_path)
    assert "error" not in told
    assert told["outputs"] == [16, 4]


def test_loops_that_cannot_be_driven_are_told(tmp_path: Path) -> None:
    body = """
one, two = net(), net()
a_opt, b_opt = torch.optim.Adam(one.parameters()), torch.optim.Adam(two.parameters())
for epoch in range(20):
    for a, b in train:
        for model, opt in ((one, a_opt), (two, b_opt)):
            opt.zero_grad()
            F.cross_entropy(model(a), b).backward()
            opt.step()
"""
    assert "several optimizers" in drive(body, tmp_path)["why_not"]


def test_optimizers_that_step_after_one_backward_are_driven(tmp_path: Path) -> None:
    body = """
model = net()
ones = [torch.optim.Adam(model[0].parameters(), 1e-3), torch.optim.SGD(model[1:].parameters(), 0.1)]
for epoch in range(20):
    for a, b in train:
        loss = F.cross_entropy(model(a), b)
        for o in ones:
            o.zero_grad()
        loss.backward()
        for o in ones:
            o.step()
    with torch.no_grad():
        for a, b in val:
            F.cross_entropy(model(a), b).item()
"""
    told = drive(body, tmp_path)
    assert told["why_not"] is None and "error" not in told
    assert told["accumulation"] == 1 and told["fitted"][1] < told["fitted"][0]
