"""A text-like classifier on bags of words, batches cut from an order drawn anew in every epoch."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "2")))
TOPICS, WORDS, PER_TOPIC = 6, 120, 250
profiles = torch.softmax(1.2 * torch.randn(TOPICS, WORDS), dim=1)
documents, topics = [], []
for topic in range(TOPICS):
    counts = torch.stack(
        [torch.bincount(torch.multinomial(profiles[topic], 25, True), minlength=WORDS) for _ in range(PER_TOPIC)]
    )
    documents.append(counts.float().sqrt())
    topics.append(torch.full((PER_TOPIC,), topic))
X, y = torch.cat(documents), torch.cat(topics)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(WORDS, 48)
        self.output = nn.Linear(48, TOPICS)

    def forward(self, x):
        return self.output(torch.relu(self.hidden(x)))


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
size = 25
for epoch in range(6):
    order = torch.randperm(len(X))
    total = 0.0
    for start in range(0, len(X), size):
        rows = order[start : start + size]
        loss = nn.functional.cross_entropy(model(X[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, round(total * size / len(X), 4))
