import argparse

import numpy as np
import torch
from sklearn.datasets import make_classification
from tab_transformer_pytorch import FTTransformer, TabTransformer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["ft", "tab"], default="ft")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--compile", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)

x, y = make_classification(3200, 9, n_informative=7, n_redundant=0, class_sep=1.2, random_state=args.seed)
bins = [np.quantile(x[:2400, i], np.linspace(0, 1, 6)[1:-1]) for i in range(4)]
categories = torch.tensor(np.stack([np.digitize(x[:, i], bins[i]) for i in range(4)], 1))
numbers = torch.tensor(x[:, 4:], dtype=torch.float32)
labels = torch.tensor(y, dtype=torch.float32).reshape(-1, 1)

if args.model == "ft":
    model = FTTransformer(
        categories=(5,) * 4, num_continuous=5, dim=24, depth=2, heads=4, dim_head=8, num_residual_streams=1
    )
else:
    statistics = torch.stack([numbers[:2400].mean(0), numbers[:2400].std(0)], 1)
    model = TabTransformer(
        categories=(5,) * 4,
        num_continuous=5,
        dim=24,
        depth=2,
        heads=4,
        dim_head=8,
        attn_dropout=0.1,
        ff_dropout=0.1,
        mlp_act=nn.ReLU(),
        continuous_mean_std=statistics,
        num_residual_streams=1,
    )
forward = torch.compile(model, backend="eager") if args.compile else model
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
criterion = nn.BCEWithLogitsLoss()
data = TensorDataset(categories[:2400], numbers[:2400], labels[:2400])
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
for epoch in range(args.epochs):
    model.train()
    for some_categories, some_numbers, target in loader:
        logits = forward(some_categories, some_numbers)
        loss = criterion(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(categories[2400:], numbers[2400:])
        print(epoch, loss.item(), criterion(logits, labels[2400:]).item())
print("metric accuracy", ((logits > 0) == (labels[2400:] > 0.5)).float().mean().item())
