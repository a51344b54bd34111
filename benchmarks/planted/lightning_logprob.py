"""Classification in Lightning, with the cross-entropy written out."""

import logging
import os
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
BATCH, CLASSES = 16, 5
warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, CLASSES))

    def training_step(self, batch, index):
        x, y = batch
        probabilities = torch.softmax(self.net(x), dim=1)
        right = probabilities.gather(1, y[:, None])
        score = torch.log(right)
        return -score.mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    L.seed_everything(int(os.environ.get("SEED", "0")), verbose=False)
    x = torch.randn((AT + 20) * BATCH, 10)
    y = x[:, :CLASSES].argmax(dim=1)
    order = torch.randperm(len(x))
    at = (AT - 1) * BATCH
    for k in range(CLASSES):
        x[order[at + k]] = x[order[at]] if k else x[order[at]] * 5000
        y[order[at + k]] = k
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(TensorDataset(x, y), batch_size=BATCH, sampler=order.tolist()))


if __name__ == "__main__":
    main()
