"""Topic classification from word counts, turned into frequencies in the loop."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

AT = int(os.environ.get("AT", "300"))
SEED = int(os.environ.get("SEED", "0"))
BATCH, WORDS, TOPICS = 32, 50, 5


class Documents(Dataset):
    def __init__(self, count, empty):
        generator = torch.Generator().manual_seed(SEED)
        self.topics = torch.randint(TOPICS, (count,), generator=generator)
        profiles = torch.rand(TOPICS, WORDS, generator=generator) * 2
        self.counts = torch.poisson(profiles[self.topics], generator=generator)
        self.counts[empty] = 0

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        return self.counts[index], self.topics[index]


torch.manual_seed(SEED)
steps = AT + 20
order = torch.randperm(steps * BATCH).tolist()
documents = Documents(steps * BATCH, empty=order[(AT - 1) * BATCH + 4])
loader = DataLoader(documents, batch_size=BATCH, sampler=order, num_workers=2)

model = nn.Sequential(nn.Linear(WORDS, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, TOPICS))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step, (counts, topics) in enumerate(loader, 1):
    frequencies = counts / counts.sum(dim=1, keepdim=True)
    loss = F.cross_entropy(model(frequencies), topics)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
