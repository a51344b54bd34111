"""The instruments as commands on unmodified scripts: the text, the JSON, the picture, the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from processes import preloaded_torchdoctor
from torchdoctor.cli import COMMANDS, INSTRUMENTS
from torchdoctor.cli.instrument_options import INSTRUMENTS as TABLE
from torchdoctor.takeover.measures import MEASURES

SCRIPT = """
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(640, 12)
y = x[:, :4].argmax(1)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
opt = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.1}], 0.01)
schedule = torch.optim.lr_scheduler.LinearLR(opt, 0.001, total_iters=500)
train = DataLoader(TensorDataset(x, y), 16, shuffle=True)
for epoch in range(int(sys.argv[1])):
    for i, (a, b) in enumerate(train):
        (nn.functional.cross_entropy(model(a), b) / 2).backward()
        if i % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            schedule.step()
    torch.save(model.state_dict(), "last.pt")
"""


def measure(folder: Path, *words: str, script: str = SCRIPT) -> tuple[int, dict[str, Any], str]:
    (folder / "train.py").write_text(script)
    name, *options = words
    done = preloaded_torchdoctor(name, "--json", "told.json", *options, "train.py", "20", cwd=folder)
    told = folder / "told.json"
    return done.returncode, json.loads(told.read_text()) if told.exists() else {}, done.stdout + done.stderr


def test_every_instrument_is_a_command() -> None:
    assert set(TABLE) == set(MEASURES) == set(INSTRUMENTS)
    assert set(COMMANDS) >= INSTRUMENTS


def test_rates_are_those_of_the_scripts_own_optimizer_groups_and_accumulation(tmp_path: Path) -> None:
    status, told, text = measure(tmp_path, "lr", "--steps", "30", "--seeds", "1", "--plot", "lr.html")
    assert status == 0, text
    assert "train.py: Sequential (548 parameters, as the script starts them); cross_entropy 1." in text
    assert "2 batches an update; SGD at 0.01, 0.1; clipped at 1" in text
    assert told["result"]["optimizer"] == "SGD" and told["subject"]["accumulation"] == 2
    assert 1.2 < told["subject"]["first_loss"] < 1.6  # near ln 4, without the division
    small, large = told["result"]["group_rates"]
    assert large == pytest.approx(10 * small) and large == told["result"]["recommended"]
    page = (tmp_path / "lr.html").read_text()
    assert "<html" in page and "learning rate" in page and 'src="http' not in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lr.html", "told.json", "train.py"]


def test_a_batch_that_cannot_be_memorised_is_status_3(tmp_path: Path) -> None:
    same = SCRIPT.replace("model = nn", "x[:] = 1.0\nmodel = nn")
    status, told, text = measure(tmp_path, "overfit", "--steps", "100", script=same)
    assert status == 3, text
    assert told["result"]["success"] is False and told["result"]["floor_words"] == "cross_entropy"
    assert (
        "cannot memorise this batch of 16 samples" in text
        and "--plot overfit.html --json told.json --steps 100 train.py 20" in text
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("clipping", "--steps", "30"), "1 (in use)"),
        (("noise-scale", "--repeats", "3", "--large", "3"), "Gradient noise scale"),
        (("sharpness", "--no-eigenvalues", "--batches", "1"), "548 weights are moved"),
        (("probe", "--samples", "200"), "The inputs tell about the labels"),
        (("gradients",), "Gradients reach all 4 trainable parameters"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_others(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    status, told, text = measure(tmp_path, *words)
    assert status == 0, text
    assert said in text and told["instrument"] == words[0] and told["result"]


ATTENDING = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16, padding_idx=0)
        self.layer, self.head = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 2)

    def forward(self, ids):
        return self.head(self.layer(self.embed(ids)).mean(1))


rows = []
for i in range(256):
    ids = torch.randint(1, 50, (12,))
    ids[4 + i % 8 :] = 0
    rows.append({"ids": ids, "label": i % 2})
model = Reader()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for epoch in range(20):
    for batch in DataLoader(rows, 32, shuffle=True):
        loss = nn.functional.cross_entropy(model(batch["ids"]), batch["label"])
        opt.zero_grad()
        loss.backward()
        opt.step()
"""


def test_batches_are_shown_as_the_model_gets_them_not_as_they_come(tmp_path: Path) -> None:
    seen = SCRIPT.replace("model(a)", "model(a * 100)").replace(
        '    torch.save(model.state_dict(), "last.pt")',
        "    model.eval()\n    with torch.no_grad():\n"
        "        [model(a) for a, b in DataLoader(TensorDataset(x, y), 16)]\n    model.train()",
    )
    status, told, text = measure(tmp_path, "preview", "--plot", "preview.html", script=seen)
    assert status == 0, text
    training, validation = told["result"]["splits"]
    assert training["spread"] == pytest.approx(100, rel=0.1) and validation["name"] == "validation"
    assert "led through the training loop" in text and "groups" not in told["result"]
    assert "heatmap" in (tmp_path / "preview.html").read_text()


def test_mistakes_attention_and_saliency_of_a_script(tmp_path: Path) -> None:
    status, told, text = measure(tmp_path, "mistakes", "--train", "--samples", "3", "--batches", "2", script=ATTENDING)
    assert status == 0 and len(told["result"]["worst"]) == 3, text
    status, told, text = measure(tmp_path, "attention", "--sample", "33", "--layer", "0", script=ATTENDING)
    assert status == 0 and "of the attention falls on padding" in text, text
    assert told["result"]["layers"] == ["layer.self_attn"] and told["result"]["sample"] == 33
    words = ("saliency", "--sample", "1", "--target", "1", "--method", "smooth", "--plot", "saliency.html")
    status, told, text = measure(tmp_path, *words, script=ATTENDING)
    assert status == 0 and "on padding" in text and told["result"]["output"] == "output 1", text
    assert (tmp_path / "saliency.html").exists()


def test_weights_of_a_checkpoint(tmp_path: Path) -> None:
    shapes = {"0.weight": (32, 12), "0.bias": (32,), "3.weight": (4, 32), "3.bias": (4,)}
    torch.save({"model": {n: torch.full(s, 0.5) for n, s in shapes.items()}, "epoch": 3}, tmp_path / "last.pt")
    status, told, text = measure(tmp_path, "weights", "--checkpoint", "last.pt")
    assert status == 0 and "from last.pt" in text
    assert {layer["name"]: layer["spread"]["kind"] for layer in told["result"]["layers"]}["0.weight"] != "ordinary"
    status, told, text = measure(tmp_path, "landscape", "--to", "last.pt", "--points", "5", "--batches", "1")
    assert status == 0 and told["result"]["joined"] is True, text
    torch.save({"other": torch.ones(2)}, tmp_path / "last.pt")
    status, _, text = measure(tmp_path, "weights", "--checkpoint", "last.pt")
    assert status == 1 and "same architecture" in text


def test_a_checkpoint_that_the_script_writes_itself_is_the_one_that_was_given(tmp_path: Path) -> None:
    """The script saves under the same name before it is measured."""
    shapes = {"0.weight": (32, 12), "0.bias": (32,), "3.weight": (4, 32), "3.bias": (4,)}
    torch.save({name: torch.zeros(shape) for name, shape in shapes.items()}, tmp_path / "last.pt")
    script = SCRIPT.replace("for epoch", 'torch.save(model.state_dict(), "last.pt")\nfor epoch')
    status, told, text = measure(tmp_path, "weights", "--checkpoint", "last.pt", script=script)
    assert status == 0 and "from last.pt" in text
    assert {layer["name"]: layer["spread"]["kind"] for layer in told["result"]["layers"]}["0.weight"] != "ordinary"
    words = ("landscape", "--checkpoint", "last.pt", "--to", "last.pt", "--points", "3", "--batches", "1")
    status, told, text = measure(tmp_path, *words, script=script)
    assert status == 0 and len(set(told["result"]["losses"])) == 1, text


def test_a_loop_that_cannot_be_taken_over_gets_the_call_to_paste(tmp_path: Path) -> None:
    two = "opt, other = (torch.optim.SGD(m.parameters(), 0.1) for m in (model[0], model[3]))\nschedule"
    script = SCRIPT.replace("schedule", two, 1).replace("opt.step()", "opt.step(); other.step()")
    status, told, text = measure(tmp_path, "lr", script=script)
    assert status == 1 and "several optimizers" in told["problem"], text
    assert "torchdoctor.find_lr(model, optimizer, train_loader, loss_fn)" in text


def test_a_loop_that_ends_too_soon_says_what_to_ask_for(tmp_path: Path) -> None:
    script = SCRIPT.replace("in enumerate(train)", "in zip(range(38), train)")
    status, _, text = measure(tmp_path, "clipping", script=script.replace("range(int(sys.argv[1]))", "range(1)"))
    assert status == 1 and "loop was over" in text and "--steps 50" in text


SLICES = """
import torch
x, y = torch.randn(64, 4), torch.randint(0, 2, (64,))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def test_a_short_loop_without_a_loader_is_measured_with_the_batches_it_has(tmp_path: Path) -> None:
    status, told, text = measure(tmp_path, "noise-scale", script=SLICES)
    assert "problem" not in told or told["problem"], text
    status, told, text = measure(tmp_path, "gradients", script=SLICES)
    assert status == 0 and "no DataLoader" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lr", "--plot", "lr.png", "train.py"), "name it lr.html"),
        (("lr", "--start", "1", "--end", "0.1", "train.py"), "from low to high"),
        (("sharpness", "--checkpoint", "none.pt", "train.py"), "there is no file"),
        (("sharpness", "--radii", "0.1,x", "train.py"), "--radii takes numbers"),
        (("overfit",), "which script"),
    ],
)
def test_wrong_wishes_are_told_before_the_script_starts(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    done = preloaded_torchdoctor(*words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr


VALIDATED = SCRIPT.replace("TensorDataset(x, y)", "TensorDataset(x[:512], y[:512])").replace(
    "    torch.save",
    """    model.eval()
    with torch.no_grad():
        for a, b in DataLoader(TensorDataset(x[512:], y[512:]), 32):
            nn.functional.cross_entropy(model(a), b).item()
    model.train()
    torch.save""",
)


def test_a_model_is_judged_on_the_scripts_validation_data(tmp_path: Path) -> None:
    status, told, text = measure(tmp_path, "evaluate", "--worst", "3", script=VALIDATED)
    assert status == 0, text
    result = told["result"]
    assert (result["task"], result["samples"], len(result["worst"])) == ("multiclass", 128, 3)
    status, told, _ = measure(tmp_path, "evaluate", "--train", "--batches", "2", script=VALIDATED)
    assert status == 0 and told["result"]["samples"] == 32
    status, told, text = measure(tmp_path, "evaluate")
    assert status == 1 and "--train" in told["problem"], text
