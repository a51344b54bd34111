import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["dense", "convolutional"], default="dense")
parser.add_argument("--schedule", choices=["none", "cycle"], default="none")
parser.add_argument("--precision", default="32-true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--epochs", type=int, default=15)
args = parser.parse_args()
L.seed_everything(args.seed)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        if args.model == "dense":
            layers = [nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.1), nn.Linear(96, 10)]
        else:
            layers = [nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3), nn.ReLU()]
            layers += [nn.Flatten(), nn.Linear(24 * 16, 10)]
        self.layers = nn.Sequential(*layers)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def evaluate(self, batch, stage):
        x, y = batch
        output = self(x)
        self.log(f"{stage}_loss", self.loss(output, y))
        self.log(f"{stage}_accuracy", (output.argmax(1) == y).float().mean())

    def validation_step(self, batch, index):
        self.evaluate(batch, "valid")

    def test_step(self, batch, index):
        self.evaluate(batch, "test")

    def configure_optimizers(self):
        if args.schedule == "none":
            return torch.optim.Adam(self.parameters(), lr=2e-3)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)
x_train, x_rest, y_train, y_rest = train_test_split(x, y, test_size=0.4, random_state=args.seed)
x_valid, x_test, y_valid, y_test = train_test_split(x_rest, y_rest, test_size=0.5, random_state=args.seed)


def loader(x, y, shuffle=False):
    return DataLoader(TensorDataset(x, y), batch_size=64, shuffle=shuffle, num_workers=args.workers)


trainer = L.Trainer(
    max_epochs=args.epochs,
    accelerator="cpu",
    precision=args.precision,
    logger=False,
    enable_progress_bar=False,
    callbacks=[ModelCheckpoint(monitor="valid_loss"), EarlyStopping("valid_loss", patience=5)],
)
model = Classifier()
trainer.fit(model, loader(x_train, y_train, shuffle=True), loader(x_valid, y_valid))
(result,) = trainer.test(model, loader(x_test, y_test), ckpt_path="best")
print("metric accuracy", result["test_accuracy"])
