"""What is found in the loops of others: Lightning, Hugging Face, Accelerate. Each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchdoctor import signals
from torchdoctor.facts import LoaderFact, ModesFact, PredictionsFact
from torchdoctor.run import Run
from torchdoctor.store.reader import open_run

LIGHTNING = """
import warnings, logging
warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch, lightning as L, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 5))
    def training_step(self, batch, i):
        return F.cross_entropy(self.net(batch[0]), batch[1])
    def validation_step(self, batch, i):
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)
L.seed_everything(0, verbose=False)
X = torch.randn(256, 20); y = X[:, :5].argmax(1)
trainer = L.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, gradient_clip_val=1.0, accelerator="cpu")
trainer.fit(Classifier(), DataLoader(TensorDataset(X[:192], y[:192]), 16, shuffle=True),
            DataLoader(TensorDataset(X[192:], y[192:]), 16))
"""

HUGGING_FACE = """
import warnings; warnings.filterwarnings("ignore")
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1,
    num_attention_heads=2, intermediate_size=32, num_labels=5, max_position_embeddings=16))
class Data(torch.utils.data.Dataset):
    def __init__(self, n):
        self.x = torch.randint(3, 50, (n, 8), generator=torch.Generator().manual_seed(n))
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return {"input_ids": self.x[i], "labels": self.x[i][0] % 5}
arguments = TrainingArguments(sys.argv[1], num_train_epochs=3, per_device_train_batch_size=8,
    gradient_accumulation_steps=2, eval_strategy="epoch", report_to=[], save_strategy="no", use_cpu=True,
    disable_tqdm=True, learning_rate=1e-3)
Trainer(model, arguments, train_dataset=Data(192), eval_dataset=Data(64)).train()
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2); torch.manual_seed(0)
X = torch.randn(256, 20); y = X[:, :5].argmax(1)
model = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
train = DataLoader(TensorDataset(X[:192], y[:192]), 8, shuffle=True)
val = DataLoader(TensorDataset(X[192:], y[192:]), 16)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
model, optimizer, train, val, schedule = accelerator.prepare(model, optimizer, train, val, schedule)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    model.train()
    for a, b in train:
        with accelerator.accumulate(model):
            loss = criterion(model(a), b)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(); schedule.step(); optimizer.zero_grad()
    model.eval()
    with torch.inference_mode():
        for a, b in val:
            criterion(model(a), b)
"""


def record(source: str, folder: Path) -> Run:
    script = folder / "train.py"
    script.write_text(source)
    out = folder / "runs"
    command = [sys.executable, "-m", "torchdoctor", "run", "--quiet", "--out", str(out), "--name", "one"]
    done = subprocess.run(
        [*command, str(script), str(folder / "work")],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return open_run(out / "one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "updates"),
    [(LIGHTNING, 36), (HUGGING_FACE, 36), (ACCELERATE, 36)],
    ids=["lightning", "transformers", "accelerate"],
)
def test_the_loop_is_found(source: str, updates: int, tmp_path: Path) -> None:
    run = record(source, tmp_path)
    assert run.phase is not None
    assert run.phase.updates == updates
    assert run.phase.passes_unknown == 0
    assert len(run.scalar(signals.LOSS_TRAIN)) == updates
    validation = run.scalar(signals.LOSS_VALIDATION)
    assert validation.steps.tolist()[-3:] == [12, 24, 36]
    assert validation.values[-1] < validation.values[-3]
    assert (run.scalar(signals.GRADIENTS_CLEARED).values == 1).all()
    assert len(run.scalar(signals.CLIP_NORM)) >= updates
    phases = {f.phase for f in run.facts(LoaderFact)}
    assert phases == {"train", "validation"}
    modes = {(m.phase, m.training, m.grad_enabled) for m in run.facts(ModesFact)}
    assert modes == {("train", True, True), ("validation", False, False)}
    samples = [f.samples for f in run.facts(PredictionsFact) if f.phase == "validation"]
    assert samples[-3:] == [64] * 3  # Lightning's sanity check before them sees two batches
    assert all(p.order is not None for n, p in run.parameters.items() if "pooler" not in n)
