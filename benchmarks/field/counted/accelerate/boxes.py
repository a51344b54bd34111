import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
set_seed(args.seed)
SIZE = 24


def scenes(count):
    centre = 5 + torch.rand(count, 2) * (SIZE - 10)
    extent = 2 + 3 * torch.rand(count, 2)
    low, high = centre - extent, centre + extent
    grid = torch.arange(SIZE) + 0.5
    inside_x = (grid > low[:, :1]) & (grid < high[:, :1])
    inside_y = (grid > low[:, 1:]) & (grid < high[:, 1:])
    kind = torch.randint(0, 2, (count,))
    area = (inside_y[:, :, None] & inside_x[:, None, :]).float()
    stripes = torch.where(kind[:, None, None] == 1, (torch.arange(SIZE) % 2).float() * 2 - 0.5, 1.0)
    image = (area * stripes + 0.3 * torch.randn(count, SIZE, SIZE))[:, None]
    return TensorDataset(image, torch.cat([low, high], 1) / SIZE, kind)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers = []
        for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(288, 64), nn.ReLU())
        self.box, self.kind = nn.Linear(64, 4), nn.Linear(64, 2)

    def forward(self, image):
        features = self.features(image)
        return self.box(features), self.kind(features)


def overlap(first, second):
    low, high = torch.maximum(first[:, :2], second[:, :2]), torch.minimum(first[:, 2:], second[:, 2:])
    common = (high - low).clamp(min=0).prod(1)
    areas = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) for box in (first, second)]
    return common / (areas[0] + areas[1] - common)


accelerator = Accelerator(cpu=True)
model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
train_loader = DataLoader(scenes(1600), batch_size=50, shuffle=True)
test_loader = DataLoader(scenes(400), batch_size=200)
model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)
for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for image, box, kind in train_loader:
        found, logits = model(image)
        loss = 5 * nn.functional.l1_loss(found, box) + nn.functional.cross_entropy(logits, kind)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    accelerator.print(f"epoch {epoch}: {total.item() / len(train_loader):.4f}")

model.eval()
found_right = []
with torch.no_grad():
    for image, box, kind in test_loader:
        found, logits = model(image)
        good = (overlap(found, box) > 0.5) & (logits.argmax(1) == kind)
        found_right.append(accelerator.gather_for_metrics(good))
print("metric detected", float(torch.cat(found_right).float().mean()))
