import argparse

import numpy as np
import pandas as pd
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import LabelEncoder

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--pretrain", action="store_true")
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()
draw = np.random.default_rng(args.seed)

COUNT = 2400
frame = pd.DataFrame(
    {
        "age": draw.integers(18, 80, COUNT),
        "hours": draw.normal(40, 8, COUNT),
        "city": draw.choice(["Bern", "Graz", "Kiel", "Linz", "Metz", "Pisa"], COUNT),
        "job": draw.choice(["baker", "clerk", "driver", "nurse", "smith"], COUNT),
    }
)
city = frame["city"].map({"Bern": 1.5, "Graz": -1.5, "Kiel": 0.5, "Linz": -0.5, "Metz": 2.0, "Pisa": -2.0})
job = frame["job"].map({"baker": -1.0, "clerk": 1.0, "driver": 0.0, "nurse": 1.5, "smith": -1.5})
score = 0.05 * (frame["age"] - 49) + 0.05 * (frame["hours"] - 40) + 1.5 * city + 1.2 * job
y = (draw.random(COUNT) < 1 / (1 + np.exp(-score))).astype(int)
train, valid, test = np.split(draw.permutation(COUNT), [1500, 1900])

for column in ("city", "job"):
    encoder = LabelEncoder().fit(frame[column])
    frame[column] = encoder.transform(frame[column])
X = frame.to_numpy(dtype=np.float32)
options = {"cat_idxs": [2, 3], "cat_dims": [6, 5], "cat_emb_dim": 2, "seed": args.seed, "verbose": 5}
options["optimizer_params"] = {"lr": args.lr}
fitting = {"batch_size": 128, "virtual_batch_size": 128, "patience": 15}
unsupervised = None
if args.pretrain:
    unsupervised = TabNetPretrainer(**options)
    unsupervised.fit(X[train], eval_set=[X[valid]], max_epochs=8, pretraining_ratio=0.5, **fitting)
model = TabNetClassifier(**options)
model.fit(
    X[train],
    y[train],
    eval_set=[(X[valid], y[valid])],
    eval_metric=["auc"],
    max_epochs=args.epochs,
    from_unsupervised=unsupervised,
    **fitting,
)
print("metric auc", roc_auc_score(y[test], model.predict_proba(X[test])[:, 1]))
