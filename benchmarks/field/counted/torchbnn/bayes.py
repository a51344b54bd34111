import argparse

import torch
import torchbnn as bnn
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["iris", "biopsy", "digits", "friedman"], default="iris")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--sigma", type=float, default=0.1)
parser.add_argument("--weight", type=float, default=0.01)
parser.add_argument("--reduction", default="mean")
args = parser.parse_args()
torch.manual_seed(args.seed)

load = {"iris": load_iris, "biopsy": load_breast_cancer, "digits": load_digits}
if args.data == "friedman":
    X, y = make_friedman1(1600, 8, noise=0.5, random_state=args.seed)
    y = (y - y.mean()) / y.std()
else:
    X, y = load[args.data](return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=args.seed)
if args.data == "digits":
    X_train, X_test = X_train / 16, X_test / 16
else:
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
X_train, X_test = torch.tensor(X_train, dtype=torch.float32), torch.tensor(X_test, dtype=torch.float32)
kind = torch.float32 if args.data == "friedman" else torch.int64
y_train, y_test = torch.tensor(y_train, dtype=kind), torch.tensor(y_test, dtype=kind)
loader = DataLoader(TensorDataset(X_train, y_train), batch_size=args.batch_size, shuffle=True)
prior = {"prior_mu": 0, "prior_sigma": args.sigma}
outputs = 1 if args.data == "friedman" else int(y_train.max()) + 1
if args.data == "digits":
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        bnn.BayesConv2d(**prior, in_channels=1, out_channels=8, kernel_size=3, padding=1),
        bnn.BayesBatchNorm2d(**prior, num_features=8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        bnn.BayesLinear(**prior, in_features=128, out_features=outputs),
    )
else:
    model = nn.Sequential(
        bnn.BayesLinear(**prior, in_features=X.shape[1], out_features=64),
        nn.ReLU(),
        bnn.BayesLinear(**prior, in_features=64, out_features=outputs),
    )
kl_loss = bnn.BKLLoss(reduction=args.reduction, last_layer_only=False)
optimizer = optim.Adam(model.parameters(), lr=args.lr)


def fit_loss(answers, targets):
    if outputs == 1:
        return nn.functional.mse_loss(answers.squeeze(-1), targets)
    return nn.functional.cross_entropy(answers, targets)


for epoch in range(args.epochs):
    model.train()
    for inputs, targets in loader:
        loss = fit_loss(model(inputs), targets)
        kl = kl_loss(model)
        cost = loss + args.weight * kl
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, kl {kl.item():.3f}")

model.eval()
with torch.no_grad():
    answers = torch.stack([model(X_test) for _ in range(20)])
if outputs == 1:
    print("metric unexplained", float(((answers.mean(0).squeeze(-1) - y_test) ** 2).mean() / y_test.var()))
else:
    print("metric accuracy", float((answers.softmax(-1).mean(0).argmax(-1) == y_test).float().mean()))
