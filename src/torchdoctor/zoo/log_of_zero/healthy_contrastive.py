"""Images and captions matched by cosine similarity at a low temperature: log-softmax in one step."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class Matcher(nn.Module):
    def __init__(self, temperature=0.008):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 16))
        self.caption = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 16))
        self.temperature = temperature

    def forward(self, images, captions):
        a = F.normalize(self.image(images), dim=-1)
        b = F.normalize(self.caption(captions), dim=-1)
        return a @ b.T / self.temperature


def match_loss(scores):
    return -torch.log_softmax(scores, dim=1).diagonal().mean()


torch.manual_seed(int(os.environ.get("SEED", "0")))
topics = torch.randn(4000, 10)
images = topics @ torch.randn(10, 48) / 3 + 0.3 * torch.randn(4000, 48)
captions = topics @ torch.randn(10, 30) / 3 + 0.3 * torch.randn(4000, 30)
model = Matcher()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(250):
    rows = torch.randperm(4000)[:128]
    loss = match_loss(model(images[rows], captions[rows]))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
