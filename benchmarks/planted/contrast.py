"""A small convolutional network on contrast-normalised images."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

AT = int(os.environ.get("AT", "300"))
SEED = int(os.environ.get("SEED", "0"))
BATCH = 8


class Scans(Dataset):
    def __init__(self, count, blank):
        generator = torch.Generator().manual_seed(SEED)
        self.labels = torch.randint(2, (count,), generator=generator)
        self.images = torch.rand(count, 1, 12, 12, generator=generator)
        self.images[self.labels == 1, :, 3:9, 3:9] += 0.5
        self.images[blank] = 0.5

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.head = nn.Linear(72, 2)

    def forward(self, x):
        centred = x - x.mean(dim=(1, 2, 3), keepdim=True)
        contrast = centred.std(dim=(1, 2, 3), keepdim=True)
        scaled = centred / contrast
        return self.head(self.body(scaled).flatten(1))


torch.manual_seed(SEED)
order = torch.randperm((AT + 20) * BATCH).tolist()
scans = Scans((AT + 20) * BATCH, order[(AT - 1) * BATCH + 5])
loader = DataLoader(scans, batch_size=BATCH, sampler=order, num_workers=2)
model = ConvNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, (images, labels) in enumerate(loader, 1):
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
