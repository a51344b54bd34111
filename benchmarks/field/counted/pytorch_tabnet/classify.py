import argparse

import numpy as np
import torch
from pytorch_tabnet.tab_model import TabNetClassifier
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", default="digits")
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--virtual-batch-size", type=int, default=64)
parser.add_argument("--mask", default="sparsemax")
args = parser.parse_args()
np.random.seed(args.seed)

if args.data == "digits":
    X, y = load_digits(return_X_y=True)
elif args.data == "cancer":
    X, y = load_breast_cancer(return_X_y=True)
else:
    X, y = make_classification(
        1500, 20, n_informative=5, n_redundant=2, n_classes=3, class_sep=1.5, random_state=args.seed
    )
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed, stratify=y)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
X_train, X_valid, y_train, y_valid = train_test_split(X_train, y_train, test_size=0.2, random_state=args.seed)

model = TabNetClassifier(
    n_d=16,
    n_a=16,
    n_steps=3,
    lambda_sparse=1e-4,
    mask_type=args.mask,
    optimizer_fn=torch.optim.Adam,
    optimizer_params={"lr": args.lr},
    scheduler_fn=torch.optim.lr_scheduler.StepLR,
    scheduler_params={"step_size": 20, "gamma": 0.9},
    seed=args.seed,
    verbose=5,
)
model.fit(
    X_train,
    y_train,
    eval_set=[(X_valid, y_valid)],
    eval_metric=["accuracy"],
    max_epochs=args.epochs,
    patience=20,
    batch_size=args.batch_size,
    virtual_batch_size=args.virtual_batch_size,
)
print("metric accuracy", (model.predict(X_test) == y_test).mean())
