import argparse

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Precision, Recall
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=25)
args = parser.parse_args()
torch.manual_seed(args.seed)

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=args.seed, stratify=y)
scaler = StandardScaler().fit(X_train)


def loader(X, y, **options):
    X = torch.tensor(scaler.transform(X), dtype=torch.float32)
    y = torch.tensor(y, dtype=torch.float32).unsqueeze(1)
    return DataLoader(TensorDataset(X, y), batch_size=32, **options)


train_loader, test_loader = loader(X_train, y_train, shuffle=True), loader(X_test, y_test)
model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
loss_fn = nn.BCEWithLogitsLoss()


def to_labels(output):
    logits, y = output
    return (logits > 0).long(), y.long()


metrics = {"precision": Precision(to_labels), "recall": Recall(to_labels), "accuracy": Accuracy(to_labels)}
trainer = create_supervised_trainer(model, optimizer, loss_fn)
evaluator = create_supervised_evaluator(model, metrics=metrics)


@trainer.on(Events.EPOCH_COMPLETED(every=5))
def evaluate(engine):
    state = evaluator.run(test_loader)
    print(engine.state.epoch, state.metrics)


trainer.run(train_loader, max_epochs=args.epochs)
print("metric accuracy", evaluator.run(test_loader).metrics["accuracy"])
