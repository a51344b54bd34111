import argparse

import torch
import torchopt
from sklearn.datasets import load_digits, make_friedman1
from sklearn.model_selection import train_test_split
from torch import nn
from torch.func import functional_call

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["digits", "friedman"], default="digits")
parser.add_argument("--style", choices=["functional", "wrapped", "object"], default="functional")
parser.add_argument("--optimizer", default="adam")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--eps", type=float, default=1e-8)
args = parser.parse_args()
torch.manual_seed(args.seed)

if args.data == "digits":
    X, y = load_digits(return_X_y=True)
    X, y = torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y)
else:
    X, y = make_friedman1(2000, 12, noise=0.5, random_state=args.seed)
    X, y = torch.tensor(2 * X - 1, dtype=torch.float32), torch.tensor((y - y.mean()) / y.std(), dtype=torch.float32)
train, test = train_test_split(torch.arange(len(X)), test_size=0.25, random_state=args.seed)
outputs = 10 if args.data == "digits" else 1
model = nn.Sequential(nn.Linear(X.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def loss_of(output, target):
    if outputs == 1:
        return nn.functional.mse_loss(output.squeeze(-1), target)
    return nn.functional.cross_entropy(output, target)


def batches():
    for _ in range(args.steps):
        rows = train[torch.randint(len(train), (args.batch_size,))]
        yield X[rows], y[rows]


params = dict(model.named_parameters())
if args.style == "object":
    kind = {"adam": torchopt.Adam, "adamw": torchopt.AdamW, "rmsprop": torchopt.RMSProp}[args.optimizer]
    optimizer = kind(model.parameters(), lr=args.lr)
    for step, (inputs, targets) in enumerate(batches()):
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())
else:
    schedule = torchopt.schedule.linear_schedule(args.lr, args.lr / 100, args.steps, 0)
    made = {
        "adam": lambda: torchopt.adam(lr=schedule, eps=args.eps),
        "adamw": lambda: torchopt.adamw(lr=schedule, weight_decay=0.05),
        "sgd": lambda: torchopt.sgd(lr=args.lr, momentum=0.9),
    }[args.optimizer]()
    made = torchopt.chain(torchopt.clip.clip_grad_norm(max_norm=2.0), made)
    params = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    if args.style == "wrapped":
        optimizer = torchopt.FuncOptimizer(made)
    else:
        state = made.init(params)
    for step, (inputs, targets) in enumerate(batches()):
        loss = loss_of(functional_call(model, params, (inputs,)), targets)
        if args.style == "wrapped":
            params = optimizer.step(loss, params)
            params = {name: value.detach().requires_grad_() for name, value in params.items()}
        else:
            grads = torch.autograd.grad(loss, list(params.values()))
            updates, state = made.update(dict(zip(params, grads, strict=True)), state, params=params, inplace=False)
            params = torchopt.apply_updates(params, updates, inplace=False)
            params = {name: value.detach().requires_grad_() for name, value in params.items()}
        if step % 50 == 0:
            print(step, loss.item())

with torch.no_grad():
    answers = functional_call(model, params, (X[test],))
if outputs == 1:
    print("metric unexplained", float(((answers.squeeze(-1) - y[test]) ** 2).mean() / y[test].var()))
else:
    print("metric accuracy", float((answers.argmax(-1) == y[test]).float().mean()))
