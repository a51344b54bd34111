import argparse

import numpy as np
import torch
import torchtuples as tt
from pycox.evaluation import EvalSurv
from pycox.models import PMF, CoxCC, CoxPH, CoxTime, DeepHitSingle, LogisticHazard
from pycox.models.cox_time import MLPVanillaCoxTime
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="coxph")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--censoring", type=float, default=12.0)
args = parser.parse_args()
np.random.seed(args.seed)
torch.manual_seed(args.seed)
draw = np.random.default_rng(args.seed)

COUNT = 2000
X = np.column_stack([draw.normal(60, 10, COUNT), draw.gamma(2, 150, COUNT), draw.normal(size=(COUNT, 5))])
z = (X - X.mean(0)) / X.std(0)
risk = 0.9 * z[:, 0] - 0.7 * z[:, 1] + 0.6 * z[:, 2] * z[:, 3]
event_time = 6 * (-np.log(draw.random(COUNT)) / np.exp(risk)) ** 0.8
censoring = draw.exponential(args.censoring, COUNT)
time = (np.minimum(event_time, censoring) + 0.05).astype("float32")
event = (event_time <= censoring).astype("float32")

scaler = StandardScaler().fit(X[:1300])
X = scaler.transform(X).astype("float32")
train, valid, test = slice(0, 1300), slice(1300, 1600), slice(1600, None)
y_train, y_valid = (time[train], event[train]), (time[valid], event[valid])
shape = {"num_nodes": [32, 32], "batch_norm": True, "dropout": 0.1}
optimizer = tt.optim.Adam(args.lr)

if args.model in ("coxph", "coxcc"):
    net = tt.practical.MLPVanilla(X.shape[1], out_features=1, output_bias=False, **shape)
    model = (CoxPH if args.model == "coxph" else CoxCC)(net, optimizer)
elif args.model == "coxtime":
    labtrans = CoxTime.label_transform()
    y_train, y_valid = labtrans.fit_transform(*y_train), labtrans.transform(*y_valid)
    model = CoxTime(MLPVanillaCoxTime(X.shape[1], **shape), optimizer, labtrans=labtrans)
else:
    kind = {"hazard": LogisticHazard, "pmf": PMF, "deephit": DeepHitSingle}[args.model]
    labtrans = kind.label_transform(12)
    y_train, y_valid = labtrans.fit_transform(*y_train), labtrans.transform(*y_valid)
    net = tt.practical.MLPVanilla(X.shape[1], out_features=labtrans.out_features, **shape)
    options = {"alpha": 0.2, "sigma": 0.1} if args.model == "deephit" else {}
    model = kind(net, optimizer, duration_index=labtrans.cuts, **options)

callbacks = [tt.callbacks.EarlyStopping(patience=10)]
model.fit(X[train], y_train, args.batch_size, args.epochs, callbacks, verbose=True, val_data=(X[valid], y_valid))
if args.model in ("coxph", "coxcc", "coxtime"):
    model.compute_baseline_hazards()
    surv = model.predict_surv_df(X[test])
else:
    surv = model.interpolate(10).predict_surv_df(X[test])
print("metric cindex", EvalSurv(surv, time[test], event[test], censor_surv="km").concordance_td())
