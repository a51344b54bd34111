import argparse

import kornia
import kornia.augmentation as K
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--loss", choices=["dice", "focal", "tversky"], default="dice")
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
torch.manual_seed(args.seed)


def draw(count, size=24):
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    row, column = 7 + 10 * torch.rand(2, count, 1, 1)
    tall, wide = 2 + 4 * torch.rand(2, count, 1, 1)
    inside = ((rows - row) / tall) ** 2 + ((columns - column) / wide) ** 2 < 1
    masks = inside.float().unsqueeze(1)
    return masks * 0.8 + 0.4 * torch.randn(count, 1, size, size), masks


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.output = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x):
        x = self.down(x)
        return self.output(torch.cat([x, self.up(self.middle(x))], 1))


criteria = {
    "dice": kornia.losses.DiceLoss(),
    "focal": kornia.losses.FocalLoss(alpha=0.5, gamma=2.0, reduction="mean"),
    "tversky": kornia.losses.TverskyLoss(alpha=0.5, beta=0.5),
}
augment = K.AugmentationSequential(
    K.RandomHorizontalFlip(p=0.5),
    K.RandomVerticalFlip(p=0.5),
    K.RandomAffine(degrees=30.0, translate=(0.1, 0.1), p=0.7),
    data_keys=["input", "mask"],
)
images, masks = draw(480)
held_images, held_masks = draw(200)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = criteria[args.loss]
for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for chosen in torch.randperm(len(images)).split(32):
        with torch.no_grad():
            x, y = augment(images[chosen], masks[chosen])
        optimizer.zero_grad()
        loss = criterion(model(x), y.round().long().squeeze(1))
        loss.backward()
        optimizer.step()
        total += loss.item() / 15
    print(epoch, total)
model.eval()
with torch.no_grad():
    predicted, truth = model(held_images).argmax(1), held_masks.squeeze(1).long()
    scores = kornia.metrics.mean_iou(predicted, truth, 2)[:, 1]
print("metric overlap", scores.mean().item())
