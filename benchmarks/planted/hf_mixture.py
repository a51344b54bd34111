"""A mixture density network in the Hugging Face Trainer."""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainingArguments

AT = int(os.environ.get("AT", "300"))
SEED = int(os.environ.get("SEED", "0"))
BATCH, PARTS = 16, 3


class Curve(Dataset):
    def __init__(self, count, far):
        generator = torch.Generator().manual_seed(SEED)
        self.x = torch.rand(count, 1, generator=generator) * 2 - 1
        self.y = torch.sin(3 * self.x) + 0.1 * torch.randn(count, 1, generator=generator)
        self.y[far] = 60.0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.y[index]}


class Likelihood(nn.Module):
    def forward(self, weight, centre, width, y):
        density = torch.exp(-0.5 * ((y - centre) / width) ** 2) / width
        mixed = (weight * density).sum(dim=1)
        return torch.log(mixed)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.weight, self.centre, self.width = (nn.Linear(32, PARTS) for _ in range(3))
        self.likelihood = Likelihood()

    def forward(self, x, labels=None):
        h = self.body(x)
        weight = torch.softmax(self.weight(h), dim=1)
        width = nn.functional.softplus(self.width(h)) + 0.1
        return {"loss": -self.likelihood(weight, self.centre(h), width, labels).mean()}


class InOrder(Trainer):
    def _get_train_sampler(self, *args):
        return SequentialSampler(self.train_dataset)


def main():
    torch.manual_seed(SEED)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=1e-3,
            seed=SEED,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        curve = Curve((AT + 20) * BATCH, (AT - 1) * BATCH + 9)
        InOrder(Mixture(), settings, train_dataset=curve).train()


if __name__ == "__main__":
    main()
