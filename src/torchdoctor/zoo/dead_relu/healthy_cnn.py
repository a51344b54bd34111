"""A small convolutional net tells two textures from noise: its biases start around zero."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class TextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32, 3)
        for conv in (self.conv1, self.conv2):
            nn.init.uniform_(conv.bias, -0.1, 0.1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


def make_textures(n, generator):
    kind = torch.randint(3, (n,), generator=generator)
    image = 0.7 * torch.randn(n, 1, 12, 12, generator=generator)
    wave = torch.sin(torch.arange(12) * 1.6)
    image[kind == 1] += wave[None, None, :, None]
    image[kind == 2] += wave[None, None, None, :]
    return image, kind


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def fit(self, images, kinds, epochs, batch_size=64):
        for epoch in range(epochs):
            losses = []
            for rows in torch.randperm(len(images)).split(batch_size):
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(images[rows]), kinds[rows])
                loss.backward()
                self.optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch} loss {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    torch.manual_seed(int(os.environ.get("SEED", "4")))
    images, kinds = make_textures(1536, torch.Generator().manual_seed(4))
    Trainer(TextureNet(), lr=0.05).fit(images, kinds, epochs=8)
