"""A ring in the plane, told from its surroundings by bare matrices and a sigmoid written by hand."""

import math
import os

import torch


def sigmoid(z):
    return 1 / (1 + torch.exp(-z))


def layer(inputs, outputs, scale):
    weight = (scale * torch.randn(inputs, outputs)).requires_grad_()
    return weight, torch.zeros(outputs, requires_grad=True)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    radius, angle = 3 * torch.rand(1200), 2 * math.pi * torch.rand(1200)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    inside = ((radius > 1) & (radius < 2)).float().unsqueeze(1)
    layers = [layer(2, 24, 1.0), layer(24, 24, 0.2), layer(24, 1, 0.2)]
    optimizer = torch.optim.RMSprop([tensor for pair in layers for tensor in pair], lr=5e-3)
    for step in range(1000):
        chosen = torch.randperm(1200)[:128]
        out = points[chosen]
        for weight, bias in layers:
            out = sigmoid(out @ weight + bias)
        target = inside[chosen]
        loss = -(target * torch.log(out + 1e-7) + (1 - target) * torch.log(1 - out + 1e-7)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(step, round(loss.item(), 3))


main()
