import argparse

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.handlers import EarlyStopping, ModelCheckpoint, ProgressBar
from ignite.metrics import MeanSquaredError, RunningAverage
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", default="friedman")
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--weight-decay", type=float, default=0.0)
args = parser.parse_args()
torch.manual_seed(args.seed)

if args.data == "friedman":
    X, y = make_friedman1(1200, noise=0.5, random_state=args.seed)
else:
    X, y = load_diabetes(return_X_y=True)
X_train, X_val, y_train, y_val = train_test_split(X, y, test_size=0.25, random_state=args.seed)
inputs = StandardScaler().fit(X_train)
targets = StandardScaler().fit(y_train[:, None])


def dataset(X, y):
    X = torch.tensor(inputs.transform(X), dtype=torch.float32)
    y = torch.tensor(targets.transform(y[:, None]), dtype=torch.float32)
    return TensorDataset(X, y)


train_loader = DataLoader(dataset(X_train, y_train), batch_size=32, shuffle=True)
val_loader = DataLoader(dataset(X_val, y_val), batch_size=128)

model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
loss_fn = nn.MSELoss()


def update(engine, batch):
    model.train()
    x, y = batch
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


trainer = Engine(update)
evaluator = create_supervised_evaluator(model, metrics={"mse": MeanSquaredError()})
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "loss")
ProgressBar().attach(trainer, ["loss"])
score = lambda engine: -engine.state.metrics["mse"]  # noqa: E731
best = ModelCheckpoint("models", n_saved=1, score_function=score, score_name="mse", require_empty=False)
evaluator.add_event_handler(Events.COMPLETED, best, {"model": model})
evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(patience=10, score_function=score, trainer=trainer))
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: evaluator.run(val_loader))
trainer.run(train_loader, max_epochs=args.epochs)

model.load_state_dict(torch.load(best.last_checkpoint))
evaluator.run(val_loader)
print("metric mse", evaluator.state.metrics["mse"])
