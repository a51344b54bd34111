"""A convolutional network trained with autocast for the device that it is on."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.amp import GradScaler, autocast


class Trainer:
    def __init__(self, model, device):
        self.device = device
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.scaler = GradScaler(enabled=False)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        with autocast(self.device.type, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    trainer = Trainer(model, torch.device("cpu"))
    for epoch in range(4):
        losses = [trainer.step(images[rows], labels[rows]) for rows in torch.randperm(len(images)).split(32)]
        print(f"epoch {epoch}: {sum(losses) / len(losses):.3f}")


main()
