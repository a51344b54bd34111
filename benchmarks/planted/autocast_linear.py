"""Image-like classification with a wide layer under autocast to float16."""

import os

import torch
import torch.nn.functional as F
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 4)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(torch.relu(hidden))


class Trainer:
    def __init__(self, model, batch=16):
        self.model, self.batch = model, batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(self, x, y):
        with torch.autocast(device_type="cpu", dtype=torch.float16):
            return F.cross_entropy(self.model(x).float(), y)

    def run(self, x, y):
        for step, rows in enumerate(torch.arange(len(x)).split(self.batch)):
            self.optimizer.zero_grad()
            loss = self.loss(x[rows], y[rows])
            loss.backward()
            self.optimizer.step()
            if step % 50 == 0:
                print(step, loss.item())


images = torch.rand((AT + 20) * 16, 64)
labels = (images[:, :4]).argmax(dim=1)
images[(AT - 1) * 16 + 8] = 60000.0 * torch.where(torch.rand(64) > 0.5, 1.0, -1.0)
Trainer(Net()).run(images, labels)
