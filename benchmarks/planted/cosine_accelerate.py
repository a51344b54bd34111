"""Matching queries to documents by cosine similarity, with Accelerate."""

import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH = 16


def cosine(a, b):
    dot = (a * b).sum(dim=1)
    lengths = a.pow(2).sum(dim=1).sqrt() * b.pow(2).sum(dim=1).sqrt()
    return dot / lengths


def main():
    accelerator = Accelerator(cpu=True)
    rows = (AT + 20) * BATCH
    queries, documents = torch.randn(rows, 12), torch.randn(rows, 12)
    relevance = torch.tanh((queries * documents).mean(dim=1))
    order = torch.randperm(rows)
    documents[order[(AT - 1) * BATCH + 10]] = 0.0
    tower = nn.Sequential(nn.Linear(12, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False))
    optimizer = torch.optim.AdamW(tower.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(queries, documents, relevance), BATCH, sampler=order.tolist())
    tower, optimizer, loader = accelerator.prepare(tower, optimizer, loader)
    for step, (query, document, target) in enumerate(loader, 1):
        optimizer.zero_grad()
        similarity = cosine(tower(query), tower(document))
        loss = nn.functional.mse_loss(similarity, target)
        accelerator.backward(loss)
        optimizer.step()
        if step % 50 == 0:
            accelerator.print(step, loss.item())


if __name__ == "__main__":
    main()
