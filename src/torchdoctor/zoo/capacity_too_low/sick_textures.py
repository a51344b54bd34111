"""Six textures are to be told apart by a convolutional net that has a single channel."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 1


def make_textures(count, generator):
    kind = torch.randint(6, (count,), generator=generator)
    row, column = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    angle = kind * torch.pi / 6
    wave = torch.sin(1.3 * (row * angle.cos()[:, None, None] + column * angle.sin()[:, None, None]))
    return (wave + 0.3 * torch.randn(count, 12, 12, generator=generator)).unsqueeze(1), kind


class TextureNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 5)
        self.out = nn.Linear(channels, 6)

    def forward(self, images):
        return self.out(F.relu(self.conv(images)).mean((2, 3)))


def main():
    seed = int(os.environ.get("SEED", "0"))
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    train = DataLoader(TensorDataset(*make_textures(1500, generator)), batch_size=50, shuffle=True)
    val = DataLoader(TensorDataset(*make_textures(300, generator)), batch_size=100)
    net = TextureNet(CHANNELS)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    for epoch in range(50):
        net.train()
        for images, kind in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), kind)
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            total = sum(F.cross_entropy(net(images), kind).item() for images, kind in val)
        print(f"epoch {epoch}: train {loss.item():.3f} validation {total / len(val):.3f}")


main()
