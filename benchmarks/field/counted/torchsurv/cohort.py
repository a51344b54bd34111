import argparse

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchsurv.loss import cox, weibull
from torchsurv.metrics.cindex import ConcordanceIndex

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--loss", default="cox")
parser.add_argument("--ties", default="efron")
parser.add_argument("--risk", default="linear")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--censoring", type=float, default=10.0)
args = parser.parse_args()
torch.manual_seed(args.seed)
draw = np.random.default_rng(args.seed)

COUNT = 1600
age, dose = draw.normal(60, 10, COUNT), draw.gamma(2.0, 150.0, COUNT)
marker, weight = draw.lognormal(0.0, 0.5, COUNT), draw.normal(80, 12, COUNT)
other = draw.normal(size=(COUNT, 4))
X = np.column_stack([age, dose, marker, weight, other])
z = (X - X.mean(0)) / X.std(0)
risk = 0.8 * z[:, 0] - 0.6 * z[:, 1] + 0.7 * z[:, 4]
if args.risk == "curved":
    risk = 1.2 * np.abs(z[:, 0]) - 0.8 * z[:, 1] * np.sign(z[:, 4]) + 0.5 * z[:, 2]
event_time = 5 * (-np.log(draw.random(COUNT)) / np.exp(risk)) ** 0.7
censoring = draw.exponential(args.censoring, COUNT)
time = np.minimum(event_time, censoring) + 0.05
event = event_time <= censoring

parts = train_test_split(X, event, time, test_size=0.3, random_state=args.seed)
X_train, X_test, event_train, event_test, time_train, time_test = parts
scaler = StandardScaler().fit(X_train)


def dataset(X, event, time):
    features = torch.tensor(scaler.transform(X), dtype=torch.float32)
    return TensorDataset(features, torch.tensor(event), torch.tensor(time, dtype=torch.float32))


train_loader = DataLoader(dataset(X_train, event_train, time_train), batch_size=args.batch_size, shuffle=True)
test_x, test_event, test_time = dataset(X_test, event_test, time_test).tensors

outputs = 1 if args.loss == "cox" else 2
model = nn.Sequential(
    nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, outputs)
)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def loss_of(output, event, time):
    if args.loss == "cox":
        return cox.neg_partial_log_likelihood(output, event, time, ties_method=args.ties, reduction="mean")
    return weibull.neg_log_likelihood_weibull(output, event, time, reduction="mean")


for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for x, event, time in train_loader:
        optimizer.zero_grad()
        loss = loss_of(model(x), event, time)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    if epoch % 5 == 0:
        print(f"Epoch: {epoch:03d}, Training loss: {total / len(train_loader):.3f}")

model.eval()
with torch.no_grad():
    output = model(test_x)
    estimate = output if args.loss == "cox" else weibull.log_hazard(output, test_time)
print("metric cindex", float(ConcordanceIndex()(estimate, test_event, test_time)))
