import argparse

import torch
import torchbearer
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchbearer import Trial
from torchbearer.callbacks import CosineAnnealingLR, EarlyStopping, GradientNormClipping

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["dense", "convolutional"], default="convolutional")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--lr", type=float, default=0.003)
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = load_digits(return_X_y=True)
x = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
y = torch.tensor(y)
x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, random_state=args.seed)
x, x_val, y, y_val = train_test_split(x, y, test_size=0.15, random_state=args.seed)


def loader(x, y, shuffle=False):
    return DataLoader(TensorDataset(x, y), batch_size=args.batch, shuffle=shuffle)


if args.model == "dense":
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
else:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
callbacks = [
    CosineAnnealingLR(args.epochs, step_on_batch=False),
    GradientNormClipping(5.0, 2),
    EarlyStopping(monitor="val_loss", patience=5),
]
trial = Trial(model, optimizer, nn.CrossEntropyLoss(), metrics=["acc", "loss"], callbacks=callbacks, verbose=0)
trial.with_generators(loader(x, y, True), loader(x_val, y_val), loader(x_test, y_test))
for record in trial.run(args.epochs):
    print({key: round(float(value), 4) for key, value in record.items() if "running" not in key})
result = trial.evaluate(data_key=torchbearer.TEST_DATA)
print("metric accuracy", result["test_acc"])
