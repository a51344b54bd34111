"""Multi-label tagging in Lightning, with the recall of confident tags."""

import logging
import os
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(int(os.environ.get("SEED", "0")))

x = torch.randn(2500, 16)
score = x @ torch.randn(16, 12) / 4
y = (score + 1.2 * torch.randn(2500, 12) > 1.1).float()
CUT = {"mild": 0.7, "medium": 0.9, "severe": 0.99}[os.environ.get("GRADE", "medium")]


class Tagger(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 12))
        self.tp = self.n_pos = 0.0

    def training_step(self, batch, _):
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        out = self.net(batch[0])
        pred = (out.sigmoid() > CUT).float()
        self.log("val_loss", nn.functional.binary_cross_entropy_with_logits(out, batch[1]), on_epoch=True)
        recall = (pred * batch[1]).sum() / batch[1].sum().clamp(min=1)
        self.log("val_recall", recall, on_epoch=True)

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} val_loss {m['val_loss']:.4f} val_recall {m['val_recall']:.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


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
    Tagger(),
    DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=64, shuffle=True),
    DataLoader(TensorDataset(x[2000:], y[2000:]), batch_size=250),
)
