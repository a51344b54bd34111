import argparse
import logging

import lightning.pytorch as pl
import numpy as np
import torch
from ncps.torch import LTC, CfC
from ncps.wirings import AutoNCP
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--task", default="digits")
parser.add_argument("--cell", choices=["cfc", "wired", "ltc"], default="cfc")
parser.add_argument("--mode", default="default")
parser.add_argument("--mixed", action="store_true")
parser.add_argument("--units", type=int, default=32)
parser.add_argument("--unfolds", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.005)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--clip", type=float, default=1.0)
args = parser.parse_args()
pl.seed_everything(args.seed)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def digits():
    X, y = load_digits(return_X_y=True)
    return torch.tensor(X / 16, dtype=torch.float32).view(-1, 8, 8), torch.tensor(y)


def irregular(count=1200, length=20):
    gaps = 0.1 + torch.rand(count, length) ** 2
    kind = torch.randint(0, 3, (count,))
    pace = torch.tensor([1.0, 1.8, 3.2])[kind][:, None]
    signal = torch.sin(pace * gaps.cumsum(1) + 6.28 * torch.rand(count, 1)) * (0.5 + torch.rand(count, 1))
    signal = (signal + 0.1 * torch.randn(count, length)) * (torch.rand(count, 1) > 0.02)
    signal = (signal - signal.mean(1, keepdim=True)) / (signal.std(1, keepdim=True) + 1e-6)
    return torch.stack([signal, gaps], -1), kind


def pendulum(count=400, length=24):
    angle, speed = 2 * torch.rand(count) - 1, torch.randn(count)
    states = []
    for _ in range(length + 1):
        states.append(torch.stack([angle, speed], -1))
        speed = speed - 0.3 * torch.sin(angle) * 2
        angle = angle + 0.3 * speed * 0.5
    states = torch.stack(states, 1)
    return states[:, :-1] + 0.02 * torch.randn(count, length, 2), states[:, 1:] - states[:, :-1]


def waves(count=200, length=24):
    phase = 3 * np.pi * torch.rand(count, 1) + torch.linspace(0, 3 * np.pi, length)
    return torch.stack([torch.sin(phase), torch.cos(phase)], -1), torch.sin(2 * phase)[..., None]


make = {"digits": digits, "irregular": irregular, "pendulum": pendulum, "waves": waves}[args.task]
inputs, targets = make()
data = TensorDataset(inputs, targets)
train, test = random_split(data, [0.75, 0.25])
classes = int(targets.max()) + 1 if targets.dtype == torch.int64 else 0
features = inputs.shape[-1] - (args.task == "irregular")
outputs = classes or targets.shape[-1]


class Learner(pl.LightningModule):
    def __init__(self):
        super().__init__()
        settings = {"batch_first": True, "return_sequences": not classes, "mixed_memory": args.mixed}
        if args.cell == "ltc":
            self.model = LTC(features, AutoNCP(args.units, outputs), ode_unfolds=args.unfolds, **settings)
        elif args.cell == "wired":
            self.model = CfC(features, AutoNCP(args.units, outputs), mode=args.mode, **settings)
        else:
            settings.update(proj_size=outputs, backbone_units=48, mode=args.mode)
            self.model = CfC(features, args.units, **settings)

    def forward(self, x):
        if args.task == "irregular":
            return self.model(x[..., :1], timespans=x[..., 1:].expand(-1, -1, args.units))[0]
        return self.model(x)[0]

    def loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y) if classes else nn.functional.mse_loss(self(x), y)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.model.parameters(), lr=args.lr)


learner = Learner()
trainer = pl.Trainer(
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    max_epochs=args.epochs,
    gradient_clip_val=args.clip,
    num_sanity_val_steps=0,
)
train_loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
test_loader = DataLoader(test, batch_size=150)
trainer.fit(learner, train_loader, test_loader)
learner.eval()
x, y = test[:]
with torch.no_grad():
    answers = learner(x)
if classes:
    print("metric accuracy", float((answers.argmax(-1) == y).float().mean()))
else:
    print("metric unexplained", float(((answers - y) ** 2).mean() / y.var()))
