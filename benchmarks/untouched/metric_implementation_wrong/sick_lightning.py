"""Digits in Lightning with an accuracy that is logged for both splits."""

import logging
import os
import warnings

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(int(os.environ.get("SEED", "0")))


def accuracy(logits, target):
    return (logits.argmax(dim=1) == target).sum() / logits.numel()


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def step(self, batch, name):
        x, y = batch
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.log(f"{name}_loss", loss, on_step=False, on_epoch=True)
        self.log(f"{name}_acc", accuracy(logits, y), on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch, _):
        return self.step(batch, "train")

    def validation_step(self, batch, _):
        self.step(batch, "val")

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} val_loss {m['val_loss']:.4f} val_acc {m['val_acc']:.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
p = torch.randperm(len(X))
L.Trainer(
    max_epochs=10,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
).fit(
    Lit(),
    DataLoader(TensorDataset(X[p[:1400]], y[p[:1400]]), batch_size=64, shuffle=True),
    DataLoader(TensorDataset(X[p[1400:]], y[p[1400:]]), batch_size=100),
)
