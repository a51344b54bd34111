"""Distillation of a teacher's stored predictions into a small student."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, CLASSES = 24, 8
STEPS = AT + 20


class Distiller:
    def __init__(self, student, optimizer):
        self.student = student
        self.optimizer = optimizer

    def divergence(self, teacher, student):
        ratio = teacher / student
        gap = torch.log(ratio)
        return (teacher * gap).sum(dim=1).mean()

    def train_step(self, inputs, teacher):
        self.optimizer.zero_grad()
        student = torch.softmax(self.student(inputs), dim=1)
        loss = self.divergence(teacher, student)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, loader):
        for step, (inputs, teacher) in enumerate(loader, 1):
            loss = self.train_step(inputs, teacher)
            if step % 50 == 0:
                print(f"step {step} loss {loss:.4f}")


inputs = torch.randn(STEPS * BATCH, 20)
teacher = torch.softmax(inputs @ torch.randn(20, CLASSES) * 0.5, dim=1)
order = torch.randperm(len(inputs))
teacher[order[(AT - 1) * BATCH + 11]] = nn.functional.one_hot(torch.tensor(3), CLASSES).float()

student = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, CLASSES))
loader = DataLoader(TensorDataset(inputs, teacher), batch_size=BATCH, sampler=order.tolist())
Distiller(student, torch.optim.AdamW(student.parameters(), lr=1e-3)).fit(loader)
