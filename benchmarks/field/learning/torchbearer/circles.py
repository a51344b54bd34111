import argparse

import torch
import torchbearer
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchbearer import Trial
from torchbearer.callbacks import Best, ExponentialLR

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--loss", choices=["dice", "entropy"], default="dice")
parser.add_argument("--empty", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()
torch.manual_seed(args.seed)


class Circles(Dataset):
    def __init__(self, count, size=24):
        rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        row, column = 5 + (size - 10) * torch.rand(2, count, 1, 1)
        radius = 2.5 + 3 * torch.rand(count, 1, 1)
        shown = torch.rand(count, 1, 1) > args.empty
        mask = ((rows - row) ** 2 + (columns - column) ** 2 < radius**2) & shown
        self.masks = mask.float().unsqueeze(1)
        self.images = (self.masks + 0.6 * torch.randn(count, 1, size, size)).clamp(-1, 2)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]


def dice(predicted, target):
    predicted = torch.sigmoid(predicted)
    shared = (predicted * target).sum((1, 2, 3))
    total = predicted.sum((1, 2, 3)) + target.sum((1, 2, 3))
    return 1 - ((2 * shared + 1) / (total + 1)).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.output = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x):
        x = self.down(x)
        return self.output(torch.cat([x, self.up(self.middle(x))], 1))


model = Net()
criterion = dice if args.loss == "dice" else nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
train = DataLoader(Circles(800), batch_size=32, shuffle=True)
held = Circles(200)
best = Best("best.pt", monitor="val_loss", save_model_params_only=True)
trial = Trial(model, optimizer, criterion, metrics=["loss"], callbacks=[best, ExponentialLR(0.9)], verbose=0)
trial.with_generators(train, DataLoader(held, batch_size=100), DataLoader(held, batch_size=100))
trial.run(args.epochs)
model.load_state_dict(torch.load("best.pt"))
predicted = trial.predict(data_key=torchbearer.TEST_DATA) > 0
truth = held.masks > 0.5
overlap = (predicted & truth).sum() / (predicted | truth).sum()
print("metric overlap", overlap.item())
