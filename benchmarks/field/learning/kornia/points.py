import argparse

import torch
from kornia.augmentation import RandomGaussianNoise
from kornia.geometry.subpix import render_gaussian2d, spatial_expectation2d, spatial_softmax2d
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--heatmap", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(args.seed)


def draw(count, size=20):
    points = 3 + (size - 6) * torch.rand(count, 1, 2)
    spread = torch.full((count, 2), 1.2)
    images = torch.stack([render_gaussian2d(p[0], s, (size, size), False) for p, s in zip(points, spread, strict=True)])
    images = images.unsqueeze(1)
    return images / images.amax((2, 3), keepdim=True), points


images, points = draw(800)
held_images, held_points = draw(200)
noise = RandomGaussianNoise(std=0.15, p=1.0)
held_images = held_images + 0.15 * torch.randn_like(held_images)
net = nn.Sequential(
    nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 1)
)


def locate(x):
    heat = spatial_softmax2d(net(x), temperature=torch.tensor(100.0))
    return spatial_expectation2d(heat, normalized_coordinates=False), heat


optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(images, points), batch_size=32, shuffle=True)
for epoch in range(args.epochs):
    for x, y in loader:
        predicted, heat = locate(noise(x))
        loss = nn.functional.smooth_l1_loss(predicted, y)
        if args.heatmap:
            ideal = torch.stack([render_gaussian2d(p[0], torch.ones(2), (20, 20), False) for p in y]).unsqueeze(1)
            loss = loss + args.heatmap * ((heat - ideal) ** 2).sum((2, 3)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
with torch.no_grad():
    print("metric distance", (locate(held_images)[0] - held_points).norm(dim=-1).mean().item())
