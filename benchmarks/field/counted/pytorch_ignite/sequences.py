import argparse

import torch
from ignite.engine import Engine, Events
from ignite.handlers import CosineAnnealingScheduler, Timer, create_lr_scheduler_with_warmup
from ignite.metrics import Accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--cell", default="GRU")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--clip", type=float, default=1.0)
args = parser.parse_args()
torch.manual_seed(args.seed)

VOCABULARY, LENGTH = 12, 16


def make(count):
    tokens = torch.randint(2, VOCABULARY, (count, LENGTH))
    wanted = torch.randint(0, 4, (count,))
    place = torch.randint(1, LENGTH - 1, (count, 1))
    tokens.scatter_(1, place, 1)
    tokens.scatter_(1, place + 1, (wanted + 2).unsqueeze(1))
    return TensorDataset(tokens, wanted)


train_loader = DataLoader(make(1600), batch_size=50, shuffle=True)
test_loader = DataLoader(make(500), batch_size=100)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.cell = getattr(nn, args.cell)(16, 32, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, tokens):
        hidden, _ = self.cell(self.embedding(tokens))
        return self.head(hidden.max(1).values)


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
criterion = nn.CrossEntropyLoss()


def train_step(engine, batch):
    model.train()
    optimizer.zero_grad()
    tokens, wanted = batch
    loss = criterion(model(tokens), wanted)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    return loss.item()


def validation_step(engine, batch):
    model.eval()
    with torch.no_grad():
        tokens, wanted = batch
        return model(tokens), wanted


trainer, validator = Engine(train_step), Engine(validation_step)
Accuracy().attach(validator, "accuracy")
steps = args.epochs * len(train_loader)
cosine = CosineAnnealingScheduler(optimizer, "lr", args.lr, args.lr / 20, 2 * steps)
warm = create_lr_scheduler_with_warmup(cosine, warmup_start_value=args.lr / 10, warmup_duration=20)
trainer.add_event_handler(Events.ITERATION_STARTED, warm)
timer = Timer(average=True)
timer.attach(trainer, step=Events.ITERATION_COMPLETED)
trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: validator.run(test_loader))
trainer.run(train_loader, max_epochs=args.epochs)
print("metric accuracy", validator.state.metrics["accuracy"])
