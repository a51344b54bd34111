import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
set_seed(args.seed)
RATE, LENGTH, WORDS = 4000, 1600, 6
window = torch.hann_window(128)


class Commands(Dataset):
    def __init__(self, count):
        self.words = torch.randint(0, WORDS, (count,))
        time = torch.arange(LENGTH) / RATE
        start, slope = 300 + 200 * (self.words % 3), 1500.0 * (self.words // 3) - 750
        pitch = start[:, None] * (1 + 0.1 * torch.randn(count, 1)) + slope[:, None] * time
        phase = 2 * torch.pi * torch.cumsum(pitch, 1) / RATE
        loudness = torch.exp(torch.randn(count, 1))
        sound = torch.sin(phase) + 0.5 * torch.sin(2 * phase) + 0.5 * torch.randn(count, LENGTH)
        gap = torch.rand(count, 1) * 0.1
        self.sounds = loudness * sound * (time > gap) * (time < 0.4 - gap)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.sounds[index], self.words[index]


def spectrogram(sounds):
    power = torch.stft(sounds, 128, 64, window=window, return_complex=True).abs() ** 2
    logs = torch.log(power + 1e-6)
    return (logs - logs.mean((1, 2), keepdim=True)) / logs.std((1, 2), keepdim=True)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(65, 32, 3, padding=1), nn.ReLU(), nn.Dropout(0.1))
        self.cell = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, WORDS)

    def forward(self, sounds):
        states, _ = self.cell(self.front(spectrogram(sounds)).transpose(1, 2))
        return self.out(states.mean(1))


accelerator = Accelerator(cpu=True)
train_loader = DataLoader(Commands(960), batch_size=args.batch_size, shuffle=True)
test_loader = DataLoader(Commands(300), batch_size=100)
model = Listener()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for sounds, words in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(sounds), words)
        accelerator.backward(loss)
        optimizer.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        right = torch.cat([model(sounds).argmax(1) == words for sounds, words in test_loader])
    accelerator.print(f"epoch {epoch}: loss {total / len(train_loader):.4f}, accuracy {right.float().mean():.4f}")
print("metric accuracy", float(right.float().mean()))
