"""A spam-like yes or no decision on bags of words, written as a script: the sigmoid is in the loss only."""

import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "11")))
words, documents = 200, 1200
weights = torch.randn(words) * (torch.rand(words) < 0.2)
counts = torch.poisson(torch.full((documents, words), 0.3))
spam = (counts @ weights + 0.5 * torch.randn(documents) > 0).float()

model = nn.Sequential(nn.Linear(words, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(300):
    rows = torch.randint(documents, (64,))
    output = model(counts[rows]).view(-1)
    loss = F.binary_cross_entropy_with_logits(output, spam[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 0:
        print(f"step {step}: loss {loss.item():.3f}")
