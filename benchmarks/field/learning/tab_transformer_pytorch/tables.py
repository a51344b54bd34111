import argparse

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_wine, make_friedman1
from sklearn.model_selection import train_test_split
from tab_transformer_pytorch import FTTransformer
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", choices=["friedman", "wine", "cancer"], default="friedman")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--warmup", type=int, default=50)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--smooth", type=float, default=0.05)
parser.add_argument("--scale", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)

if args.data == "friedman":
    x, y = make_friedman1(1500, n_features=8, noise=0.5, random_state=args.seed)
else:
    x, y = (load_wine if args.data == "wine" else load_breast_cancer)(return_X_y=True)
classes = int(y.max()) + 1 if args.data != "friedman" else 0
x, x_test, y, y_test = train_test_split(x, y, test_size=0.3, random_state=args.seed)
mean, std = (x.mean(0), x.std(0)) if args.scale else (0, 1)
x, x_test = (torch.tensor((part - mean) / std, dtype=torch.float32) for part in (x, x_test))
if classes:
    y, y_test = torch.tensor(y), torch.tensor(y_test)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.smooth)
else:
    center, scale = y.mean(), y.std()
    y, y_test = (torch.tensor((part - center) / scale, dtype=torch.float32).reshape(-1, 1) for part in (y, y_test))
    criterion = nn.MSELoss()

empty = torch.zeros(len(x), 0, dtype=torch.long)
model = FTTransformer(
    categories=(),
    num_continuous=x.shape[1],
    dim=16,
    depth=2,
    heads=2,
    dim_head=8,
    dim_out=max(classes, 1),
    attn_dropout=0.1,
    ff_dropout=0.1,
    num_residual_streams=1,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=args.warmup)
decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps - args.warmup)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], [args.warmup])
order = np.random.RandomState(args.seed)
for step in range(args.steps):
    chosen = torch.as_tensor(order.choice(len(x), 48, replace=False))
    predicted = model(empty[chosen], x[chosen])
    loss = criterion(predicted, y[chosen])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % 100 == 99:
        print(step + 1, loss.item())
model.eval()
with torch.no_grad():
    predicted = model(torch.zeros(len(x_test), 0, dtype=torch.long), x_test)
if classes:
    print("metric accuracy", (predicted.argmax(1) == y_test).float().mean().item())
else:
    print("metric r2", 1 - ((predicted - y_test) ** 2).mean().item() / y_test.var().item())
