"""A Lightning module on digits that logs its validation accuracy."""

import os

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        logits = self.net(x)
        self.log("val_loss", nn.functional.cross_entropy(logits, y))
        self.log("val_acc", (logits.argmax(1) == y).sum() / len(x), batch_size=len(x))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    lightning.seed_everything(int(os.environ.get("SEED", "0")), verbose=False)
    x, y = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(x / 8 - 1, dtype=torch.float32), torch.tensor(y))
    train, val = torch.utils.data.random_split(data, [1413, 384])
    trainer = lightning.Trainer(
        max_epochs=8, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(Digits(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=128))
    print({name: float(value) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
