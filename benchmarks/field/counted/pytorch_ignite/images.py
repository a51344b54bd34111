import argparse

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import LRScheduler
from ignite.metrics import Accuracy, Loss
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="cnn")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--optimizer", default="Adam")
parser.add_argument("--gamma", type=float, default=1.0)
args = parser.parse_args()
torch.manual_seed(args.seed)


def make_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def make_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))


X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed, stratify=y)


def dataset(X, y):
    images = torch.tensor(X / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    return TensorDataset(images, torch.tensor(y))


train_loader = DataLoader(dataset(X_train, y_train), batch_size=args.batch_size, shuffle=True)
val_loader = DataLoader(dataset(X_test, y_test), batch_size=256)

model = make_cnn() if args.model == "cnn" else make_mlp()
optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=args.lr)
criterion = nn.CrossEntropyLoss()

trainer = create_supervised_trainer(model, optimizer, criterion)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(criterion)})
scheduler = LRScheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, args.gamma))
trainer.add_event_handler(Events.EPOCH_COMPLETED, scheduler)


@trainer.on(Events.EPOCH_COMPLETED)
def log_validation(engine):
    evaluator.run(val_loader)
    print(engine.state.epoch, evaluator.state.metrics)


trainer.run(train_loader, max_epochs=args.epochs)
print("metric accuracy", evaluator.state.metrics["accuracy"])
