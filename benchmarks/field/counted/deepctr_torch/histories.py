import argparse
import os

os.environ["HTTPS_PROXY"] = "http://127.0.0.1:9"

import numpy as np
import torch
from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat
from deepctr_torch.models import DIN
from deepctr_torch.models.multitask import MMOE
from sklearn.metrics import roc_auc_score

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["DIN", "MMOE"], default="DIN")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch-size", type=int, default=256)
args = parser.parse_args()
torch.manual_seed(args.seed)
draw = np.random.default_rng(args.seed)

ROWS, USERS, ITEMS, GROUPS, LONGEST = 12000, 100, 60, 6, 6
group_of = np.concatenate([[0], 1 + np.arange(ITEMS) % GROUPS])
favourite = draw.integers(1, GROUPS + 1, (ROWS, 2))
length = draw.integers(2, LONGEST + 1, ROWS)
history = draw.integers(1, ITEMS + 1, (ROWS, LONGEST))
own = (history - 1) // GROUPS * GROUPS + favourite[np.arange(ROWS)[:, None], draw.integers(0, 2, (ROWS, LONGEST))]
history = np.where(draw.random((ROWS, LONGEST)) < 0.8, np.minimum(own, ITEMS), history)
history[np.arange(LONGEST)[None, :] >= length[:, None]] = 0
user, item = draw.integers(0, USERS, ROWS), draw.integers(1, ITEMS + 1, ROWS)
wanted = (group_of[item][:, None] == group_of[history]).sum(1) / length
mood, worth = draw.normal(size=USERS), draw.normal(size=ITEMS + 1)
click = draw.random(ROWS) < 1 / (1 + np.exp(-(8 * wanted - 2.5 + 0.3 * mood[user])))
buy = draw.random(ROWS) < 1 / (1 + np.exp(-(1.5 * worth[item] + mood[user])))

data = {"user": user, "item": item}
columns = [SparseFeat("user", USERS, embedding_dim=8), SparseFeat("item", ITEMS + 1, embedding_dim=8)]
if args.model == "DIN":
    data.update(hist_item=history, seq_length=length)
    hist = SparseFeat("hist_item", ITEMS + 1, embedding_dim=8, embedding_name="item")
    columns.append(VarLenSparseFeat(hist, LONGEST, length_name="seq_length"))
    model = DIN(columns, ["item"], dnn_hidden_units=(64, 32), init_std=0.05, seed=args.seed)
    target, loss = click.astype(float), "binary_crossentropy"
else:
    data["group"] = group_of[item]
    columns.append(SparseFeat("group", GROUPS + 1, embedding_dim=8))
    settings = {"expert_dnn_hidden_units": (32,), "tower_dnn_hidden_units": (16,), "gate_dnn_hidden_units": (16,)}
    tasks = {"task_types": ["binary", "binary"], "task_names": ["like", "buy"]}
    model = MMOE(columns, **tasks, **settings, init_std=0.05, seed=args.seed)
    like = draw.random(ROWS) < 1 / (1 + np.exp(-(2 * worth[item] - mood[user])))
    target, loss = np.column_stack([like, buy]).astype(float), ["binary_crossentropy"] * 2
model.compile(torch.optim.Adam(model.parameters(), lr=args.lr), loss)
train = {name: values[:9000] for name, values in data.items()}
model.fit(train, target[:9000], batch_size=args.batch_size, epochs=args.epochs, verbose=2)
answers = model.predict({name: values[9000:] for name, values in data.items()}, 500)
print("metric auc", roc_auc_score(target[9000:], answers if args.model == "MMOE" else answers[:, 0]))
