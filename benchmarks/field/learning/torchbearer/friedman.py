import argparse

import torch
import torchbearer
from sklearn.datasets import make_friedman1
from torch import nn
from torchbearer import Trial
from torchbearer.bases import standard_closure
from torchbearer.callbacks import L2WeightDecay, StepLR

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--optimizer", choices=["Adam", "RMSprop", "LBFGS"], default="Adam")
parser.add_argument("--decay", type=float, default=1e-5)
parser.add_argument("--epochs", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = make_friedman1(1200, noise=0.5, random_state=args.seed)
x = torch.tensor(2 * x - 1, dtype=torch.float32)
y = torch.tensor((y - y[:900].mean()) / y[:900].std(), dtype=torch.float32).reshape(-1, 1)
model = nn.Sequential(nn.Linear(10, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
lr = {"Adam": 0.01, "RMSprop": 0.002, "LBFGS": 0.5}[args.optimizer]
optimizer = getattr(torch.optim, args.optimizer)(
    model.parameters(), lr=lr, **({"max_iter": 5} if args.optimizer == "LBFGS" else {})
)
callbacks = [L2WeightDecay(args.decay)]
if args.optimizer != "LBFGS":
    callbacks.append(StepLR(step_size=25, gamma=0.3))
batch = 900 if args.optimizer == "LBFGS" else 128
trial = Trial(model, optimizer, nn.MSELoss(), metrics=["loss", "mse"], callbacks=callbacks, verbose=0)
trial.with_train_data(x[:900], y[:900], batch_size=batch, shuffle=True, num_workers=0)
trial.with_val_data(x[900:], y[900:], batch_size=300, shuffle=False, num_workers=0)
forward = standard_closure()


def closure(state):
    forward(state)
    return state[torchbearer.LOSS]


trial.with_closure(closure)
for record in trial.run(args.epochs):
    print({key: round(float(value), 4) for key, value in record.items() if "running" not in key})
predicted = trial.with_test_data(x[900:], batch_size=300, num_workers=0).predict(data_key=torchbearer.TEST_DATA)
print("metric r2", 1 - ((predicted - y[900:]) ** 2).mean().item() / y[900:].var().item())
