import argparse
import os

os.environ["HTTPS_PROXY"] = "http://127.0.0.1:9"

import numpy as np
import pandas as pd
import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat, get_feature_names
from deepctr_torch.models import DCN, WDL, AutoInt, DeepFM
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.preprocessing import LabelEncoder

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="DeepFM")
parser.add_argument("--task", choices=["binary", "regression"], default="binary")
parser.add_argument("--lr", type=float, default=5e-3)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--norm", action="store_true")
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--validation", type=float, default=0.0)
parser.add_argument("--l2", type=float, default=1e-5)
args = parser.parse_args()
torch.manual_seed(args.seed)
draw = np.random.default_rng(args.seed)

ROWS, USERS, ITEMS = 16000, 150, 80
table = pd.DataFrame(
    {
        "user": draw.integers(0, USERS, ROWS),
        "item": draw.integers(0, ITEMS, ROWS),
        "hour": draw.integers(0, 24, ROWS),
        "device": draw.integers(0, 4, ROWS),
        "price": np.round(draw.lognormal(2.5, 1.2, ROWS)) * (draw.random(ROWS) > 0.05),
        "age": draw.uniform(18, 70, ROWS),
    }
)
likes, style = draw.normal(size=(USERS, 3)), draw.normal(size=(ITEMS, 3))
score = (likes[table.user] * style[table["item"]]).sum(1) + draw.normal(size=24)[table.hour]
score += 0.4 * (2.5 - np.log1p(table.price)) + 0.5 * np.sin(table.age / 8)
if args.task == "binary":
    table["target"] = (draw.random(ROWS) < 1 / (1 + np.exp(-score))).astype(float)
else:
    table["target"] = score + 0.3 * draw.normal(size=ROWS)

sparse, dense = ["user", "item", "hour", "device"], ["price", "age"]
for name in sparse:
    table[name] = LabelEncoder().fit_transform(table[name])
table["price"] = np.log1p(table["price"])
table[dense] = (table[dense] - table[dense].mean()) / table[dense].std()
train, test = table[:12000], table[12000:]

columns = [SparseFeat(name, vocabulary_size=table[name].nunique(), embedding_dim=8) for name in sparse]
columns += [DenseFeat(name, 1) for name in dense]
names = get_feature_names(columns)
settings = {
    "dnn_use_bn": args.norm,
    "dnn_dropout": args.dropout,
    "dnn_hidden_units": (64, 32),
    "init_std": 0.01,
    "l2_reg_embedding": args.l2,
}
model = {"DeepFM": DeepFM, "WDL": WDL, "DCN": DCN, "AutoInt": AutoInt}[args.model](
    columns, columns, task=args.task, seed=args.seed, **settings
)
model.compile(
    torch.optim.Adam(model.parameters(), lr=args.lr),
    "binary_crossentropy" if args.task == "binary" else "mse",
    metrics=["auc" if args.task == "binary" else "mse"],
)
model.fit(
    {name: train[name].to_numpy() for name in names},
    train[["target"]].to_numpy(),
    batch_size=args.batch_size,
    epochs=args.epochs,
    verbose=2,
    validation_split=args.validation,
)
answers = model.predict({name: test[name].to_numpy() for name in names}, 500)[:, 0]
if args.task == "binary":
    print("metric auc", roc_auc_score(test.target, answers))
else:
    print("metric r2", r2_score(test.target, answers))
