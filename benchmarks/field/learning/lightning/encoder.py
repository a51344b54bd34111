import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--average", type=int, default=0)
args = parser.parse_args()
L.seed_everything(args.seed)


class VAE(L.LightningModule):
    def __init__(self, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 64))

    def bound(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        likelihood = binary_cross_entropy_with_logits(self.decoder(z), x, reduction="none").sum(1)
        divergence = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(1)
        return (likelihood + divergence).mean()

    def training_step(self, batch, index):
        loss = self.bound(batch[0])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("valid_loss", self.bound(batch[0]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


pixels = torch.tensor(load_digits().data / 16, dtype=torch.float32)
train, valid = random_split(TensorDataset(pixels), [0.8, 0.2])
trainer = L.Trainer(
    max_epochs=25,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_checkpointing=False,
    callbacks=[StochasticWeightAveraging(swa_lrs=1e-3)] if args.average else [],
)
model = VAE()
trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True), DataLoader(valid, batch_size=256))
(result,) = trainer.validate(model, DataLoader(valid, batch_size=256))
print("metric bound", result["valid_loss"])
