"""Kinds of short signals through a 1-D convolutional encoder; the last batch of every epoch has a single signal."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(3, (count,), generator=generator)
        time = torch.linspace(0, 6.28, 40)
        phase = 6.28 * torch.rand(count, 1, generator=generator)
        wave = torch.sin((self.kind + 1).unsqueeze(1) * time + phase)
        self.wave = wave + 0.4 * torch.randn(count, 40, generator=generator)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        return self.wave[i].unsqueeze(0), self.kind[i]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 16, 7, stride=2)
        self.pool = nn.AdaptiveMaxPool1d(1)
        self.norm = nn.BatchNorm1d(16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.norm(self.pool(torch.relu(self.conv(x))).squeeze(2)))


seed = int(os.environ.get("SEED", "0"))
torch.manual_seed(seed)
train = DataLoader(Signals(961, seed), batch_size=32, shuffle=True)
val = DataLoader(Signals(200, seed + 1), batch_size=50)
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(6):
    model.train()
    for wave, kind in train:
        optimizer.zero_grad()
        loss = criterion(model(wave), kind)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(epoch, loss.item(), sum(criterion(model(w), k).item() for w, k in val) / len(val))
