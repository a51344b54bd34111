"""Distillation: a teacher is trained first, then a small student by the teacher's soft targets."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

TRAINED, TEMPERATURE = 1400, 3.0


def build(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1, torch.tensor(digits.target)
    order = torch.randperm(len(images))
    images, labels = images[order], labels[order]

    teacher = build(128)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=1e-3)
    for _ in range(15):
        for batch in torch.randperm(TRAINED).split(64):
            optimizer.zero_grad()
            F.cross_entropy(teacher(images[batch]), labels[batch]).backward()
            optimizer.step()
    teacher.eval().requires_grad_(False)

    student = build(24)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for epoch in range(30):
        student.train()
        for batch in torch.randperm(TRAINED).split(64):
            x = images[batch]
            with torch.no_grad():
                soft = F.softmax(teacher(x) / TEMPERATURE, dim=1)
            logits = student(x)
            hard_loss = F.cross_entropy(logits, labels[batch])
            soft_loss = F.kl_div(F.log_softmax(logits / TEMPERATURE, dim=1), soft, reduction="batchmean")
            loss = 0.5 * hard_loss + 0.5 * TEMPERATURE**2 * soft_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        student.eval()
        with torch.no_grad():
            logits = student(images[TRAINED:])
            held_out = F.cross_entropy(logits, labels[TRAINED:]).item()
            accuracy = (logits.argmax(1) == labels[TRAINED:]).float().mean().item()
        print(f"epoch {epoch}: train {loss.item():.4f}, held out {held_out:.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
