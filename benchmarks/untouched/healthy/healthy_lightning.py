"""Digits in Lightning with a cosine schedule."""

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


class DigitModule(L.LightningModule):
    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        out = self.net(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(out, batch[1]))
        self.log("val_acc", (out.argmax(1) == batch[1]).float().mean())

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} val_loss {m['val_loss']:.4f} val_acc {m['val_acc']:.3f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=3e-3)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.epochs)]


X, y = load_digits(return_X_y=True)
X, y = torch.tensor(X / 16).float(), torch.tensor(y)
p = torch.randperm(len(X))
trainer = L.Trainer(
    max_epochs=10,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(
    DigitModule(10),
    DataLoader(TensorDataset(X[p[:1400]], y[p[:1400]]), batch_size=64, shuffle=True),
    DataLoader(TensorDataset(X[p[1400:]], y[p[1400:]]), batch_size=200),
)
