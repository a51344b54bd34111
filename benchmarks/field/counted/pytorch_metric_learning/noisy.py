import argparse

import numpy as np
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--loss", default="triplet")
parser.add_argument("--miner", default="similarity")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--proxy-lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--size", type=int, default=16)
args = parser.parse_args()
torch.manual_seed(args.seed)

X, y = load_digits(return_X_y=True)
noise = np.random.default_rng(args.seed).normal(0, 1, (len(X), 100))
X = torch.tensor(np.concatenate([X / 8 - 1, noise], 1), dtype=torch.float32)
X_train, X_test, y_train, y_test = train_test_split(
    X, torch.tensor(y), test_size=0.3, random_state=args.seed, stratify=y
)
train_loader = DataLoader(TensorDataset(X_train, y_train), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(164, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, args.size))
optimizers = [torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)]
if args.loss == "triplet":
    loss_func = losses.TripletMarginLoss(margin=0.2)
elif args.loss == "contrastive":
    loss_func = losses.ContrastiveLoss(pos_margin=1, neg_margin=0, distance=CosineSimilarity())
elif args.loss == "ntxent":
    loss_func = losses.NTXentLoss(temperature=0.2)
elif args.loss == "supcon":
    loss_func = losses.SupConLoss(temperature=0.1)
else:
    kind = {"proxy": losses.ProxyNCALoss, "arcface": losses.ArcFaceLoss}[args.loss]
    loss_func = kind(num_classes=10, embedding_size=args.size)
    optimizers.append(torch.optim.SGD(loss_func.parameters(), lr=args.proxy_lr))
miner = {
    "similarity": miners.MultiSimilarityMiner(),
    "hard": miners.BatchHardMiner(),
    "none": None,
}[args.miner]


def train(epoch):
    model.train()
    for i, (data, labels) in enumerate(train_loader):
        for optimizer in optimizers:
            optimizer.zero_grad()
        embeddings = model(data)
        tuples = miner(embeddings, labels) if miner else None
        loss = loss_func(embeddings, labels, tuples)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if i % 10 == 0:
            print(f"Epoch {epoch} Iteration {i}: Loss = {loss.item():.4f}")


@torch.no_grad()
def embed(X):
    model.eval()
    return model(X)


for epoch in range(args.epochs):
    train(epoch)
calculator = AccuracyCalculator(
    include=("precision_at_1",), k=1, knn_func=CustomKNN(LpDistance()), device=torch.device("cpu")
)
result = calculator.get_accuracy(embed(X_test), y_test, embed(X_train), y_train)
print("metric precision", result["precision_at_1"])
