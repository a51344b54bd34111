"""Segmentation of discs with a small U-shaped network and an ignored border."""

import os

import torch
from torch import nn

torch.manual_seed(int(os.environ.get("SEED", "0")))


def draw(n, size=16):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cx, cy = 3 + torch.rand(2, n, 1, 1) * 10
    r = 3 + 2 * torch.rand(n, 1, 1)
    dist = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
    mask = (dist < r).long()
    image = mask.float() + 0.5 * torch.randn(n, size, size)
    mask[(dist - r).abs() < 0.3] = 255
    return image.unsqueeze(1), mask


class MiniUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU())
        self.b = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Conv2d(2 * c, 2, 3, padding=1)

    def forward(self, x):
        a = self.a(x)
        return self.out(torch.cat([a, self.up(self.b(a))], 1))


x, m = draw(400)
xv, mv = draw(100)
net = MiniUNet()
ce = nn.CrossEntropyLoss(ignore_index=255)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(7):
    net.train()
    for idx in torch.randperm(400).split(25):
        opt.zero_grad()
        loss = ce(net(x[idx]), m[idx])
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        out = net(xv)
        pred, ok = out.argmax(1), mv != 255
        iou = ((pred == 1) & (mv == 1)).sum() / (((pred == 1) | (mv == 1)) & ok).sum()
    print(f"epoch {epoch} train {loss.item():.4f} val {ce(out, mv):.4f} iou {iou:.3f}")
