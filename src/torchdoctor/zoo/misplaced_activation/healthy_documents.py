"""Topics of short documents from their mean word vector, with ReLU between the hidden layers."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))
WORDS, TOPICS, LENGTH = 300, 6, 20

topic_words = torch.distributions.Dirichlet(torch.full((WORDS,), 0.1)).sample((TOPICS,))
topics = torch.randint(TOPICS, (3000,))
documents = torch.multinomial(topic_words[topics], LENGTH, replacement=True)


class TopicNet(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 32, mode="mean")
        self.first = nn.Linear(32, 64)
        self.act = act
        self.second = nn.Linear(64, 64)
        self.out = nn.Linear(64, TOPICS)

    def forward(self, tokens):
        x = self.act(self.first(self.words(tokens)))
        x = torch.relu(self.second(x))
        return self.out(x)


net = TopicNet(act=nn.ReLU())
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(6):
    net.train()
    for i in range(0, 2500, 50):
        opt.zero_grad()
        loss = loss_fn(net(documents[i : i + 50]), topics[i : i + 50])
        loss.backward()
        opt.step()
    net.eval()
    with torch.inference_mode():
        val = loss_fn(net(documents[2500:]), topics[2500:]).item()
    print(epoch, round(loss.item(), 3), round(val, 3))
