import argparse

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--precision", default="no")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--clip", type=float, default=1.0)
args = parser.parse_args()
set_seed(args.seed)

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed)


class Images(Dataset):
    def __init__(self, pixels, labels, moves=False):
        self.pixels = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)
        self.labels, self.moves = torch.tensor(labels), moves

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.pixels[index]
        if self.moves:
            image = torch.roll(image, np.random.randint(-1, 2), -1)
        return image, self.labels[index]


train_loader = DataLoader(
    Images(X_train, y_train, True), batch_size=args.batch_size, shuffle=True, num_workers=args.workers
)
test_loader = DataLoader(Images(X_test, y_test), batch_size=150)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 10),
)
if args.compile:
    model = torch.compile(model, backend="aot_eager")
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate, mixed_precision=args.precision)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=2 * args.lr, epochs=args.epochs, steps_per_epoch=-(-len(train_loader) // args.accumulate)
)
model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, test_loader, scheduler
)


def evaluate():
    model.eval()
    right = total = 0
    for inputs, targets in test_loader:
        with torch.no_grad():
            predictions = model(inputs).argmax(dim=-1)
        predictions, targets = accelerator.gather_for_metrics((predictions, targets))
        right += (predictions == targets).sum().item()
        total += len(targets)
    return right / total


for epoch in range(args.epochs):
    model.train()
    for inputs, targets in train_loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    accelerator.print(f"epoch {epoch}: {100 * evaluate():.2f}")
print("metric accuracy", evaluate())
