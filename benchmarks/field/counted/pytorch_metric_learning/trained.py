import argparse
import logging

import numpy as np
import torch
from pytorch_metric_learning import losses, miners, samplers, trainers
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--classifier", action="store_true")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)
logging.getLogger().setLevel(logging.INFO)

X, y = load_digits(return_X_y=True)
noise = np.random.default_rng(args.seed).normal(0, 1, (len(X), 100))
X = torch.tensor(np.concatenate([X / 8 - 1, noise], 1), dtype=torch.float32)
X_train, X_test, y_train, y_test = train_test_split(
    X, torch.tensor(y), test_size=0.3, random_state=args.seed, stratify=y
)
nets = {
    "trunk": nn.Sequential(nn.Linear(164, 128), nn.ReLU(), nn.Dropout(0.2)),
    "embedder": nn.Linear(128, 24),
}
loss_funcs = {"metric_loss": losses.MultiSimilarityLoss(alpha=2, beta=20, base=0.5)}
if args.classifier:
    nets["classifier"] = nn.Linear(24, 10)
    loss_funcs["classifier_loss"] = nn.CrossEntropyLoss()
optimizers = {f"{name}_optimizer": torch.optim.Adam(net.parameters(), lr=args.lr) for name, net in nets.items()}
sampler = samplers.MPerClassSampler(y_train.tolist(), m=6, length_before_new_iter=len(y_train))
kind = trainers.TrainWithClassifier if args.classifier else trainers.MetricLossOnly
trainer = kind(
    nets,
    optimizers,
    60,
    loss_funcs,
    TensorDataset(X_train, y_train),
    data_device=torch.device("cpu"),
    mining_funcs={"tuple_miner": miners.MultiSimilarityMiner(epsilon=0.1)},
    sampler=sampler,
    dataloader_num_workers=args.workers,
)
trainer.train(num_epochs=args.epochs)


@torch.no_grad()
def embed(X):
    for net in nets.values():
        net.eval()
    return nets["embedder"](nets["trunk"](X))


calculator = AccuracyCalculator(
    include=("precision_at_1",), k=1, knn_func=CustomKNN(LpDistance()), device=torch.device("cpu")
)
result = calculator.get_accuracy(embed(X_test), y_test, embed(X_train), y_train)
print("\nmetric precision", result["precision_at_1"])
