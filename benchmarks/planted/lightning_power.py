"""Loudness regression in Lightning, with a compressive power law on the energies."""

import logging
import os
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
BATCH = 16
warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Loudness(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(12))
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, spectrum):
        energy = (spectrum * self.gain).abs()
        compressed = energy**0.3
        return self.net(compressed)

    def training_step(self, batch, index):
        spectrum, loudness = batch
        return nn.functional.mse_loss(self(spectrum), loudness)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(int(os.environ.get("SEED", "0")), verbose=False)
    spectra = torch.rand((AT + 20) * BATCH, 12) + 0.05
    loudness = spectra.mean(dim=1, keepdim=True).sqrt()
    order = torch.randperm(len(spectra))
    spectra[order[(AT - 1) * BATCH + 3], 7] = 0.0
    loader = DataLoader(TensorDataset(spectra, loudness), batch_size=BATCH, sampler=order.tolist())
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Loudness(), loader)


if __name__ == "__main__":
    main()
