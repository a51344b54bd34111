import argparse

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()
L.seed_everything(args.seed)


def pictures(count, size=24):
    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    center = torch.randint(6, size - 6, (count, 2, 1, 1))
    radius = torch.randint(3, 6, (count, 1, 1))
    mask = ((row - center[:, 0]) ** 2 + (column - center[:, 1]) ** 2 <= radius**2).float()[:, None]
    return TensorDataset(mask + 0.7 * torch.randn(count, 1, size, size), mask)


class Segmenter(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.middle = nn.Sequential(
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
        )
        self.up = nn.Conv2d(24, 1, 3, padding=1)
        self.loss = nn.BCEWithLogitsLoss()

    def forward(self, x):
        x = self.down(x)
        return self.up(torch.cat([x, self.middle(x)], 1))

    def training_step(self, batch, index):
        x, mask = batch
        loss = self.loss(self(x), mask)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        x, mask = batch
        found = self(x) > 0
        overlap = (found & (mask > 0)).sum() / (found | (mask > 0)).sum().clamp(min=1)
        self.log("valid_overlap", overlap)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


trainer = L.Trainer(
    max_epochs=8,
    accelerator="cpu",
    accumulate_grad_batches=args.accumulate,
    logger=False,
    enable_progress_bar=False,
    enable_checkpointing=False,
)
trainer.fit(
    Segmenter(),
    DataLoader(pictures(640), batch_size=32, shuffle=True),
    DataLoader(pictures(200), batch_size=200),
)
print("metric overlap", trainer.callback_metrics["valid_overlap"].item())
