import argparse

import numpy as np
from pytorch_tabnet.tab_model import TabNetRegressor
from sklearn.datasets import make_friedman1
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--features", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--epochs", type=int, default=40)
args = parser.parse_args()
np.random.seed(args.seed)

X, y = make_friedman1(1500, n_features=args.features, noise=0.5, random_state=args.seed)
y = 10000 * y
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed)
X_train, X_valid, y_train, y_valid = train_test_split(X_train, y_train, test_size=0.2, random_state=args.seed)
scaler = StandardScaler().fit(y_train[:, None])

model = TabNetRegressor(n_d=8, n_a=8, n_steps=3, optimizer_params={"lr": args.lr}, seed=args.seed, verbose=5)
model.fit(
    X_train,
    scaler.transform(y_train[:, None]),
    eval_set=[(X_valid, scaler.transform(y_valid[:, None]))],
    eval_metric=["rmse"],
    max_epochs=args.epochs,
    patience=20,
    batch_size=64,
    virtual_batch_size=64,
)
predicted = scaler.inverse_transform(model.predict(X_test))
print("metric r2", r2_score(y_test, predicted))
