import argparse

import numpy as np
import torch
from pyod.models.auto_encoder import AutoEncoder
from pyod.models.deep_svdd import DeepSVDD
from pyod.models.vae import VAE
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="ae")
parser.add_argument("--data", default="sheet")
parser.add_argument("--digit", type=int, default=1)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=25)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)
draw = np.random.default_rng(args.seed)

if args.data == "digits":
    X, kind = load_digits(return_X_y=True)
    X = X + 0.1 * draw.normal(size=X.shape)
    X_train, X_inlier = train_test_split(X[kind == args.digit], test_size=0.4, random_state=args.seed)
    X_outlier = X[kind == 8][: len(X_inlier)]
else:
    first, second = draw.normal(size=(3, 12)), draw.normal(size=(12, 20))
    X = np.tanh(draw.normal(size=(2400, 3)) @ first) @ second + 0.05 * draw.normal(size=(2400, 20))
    X = 10 * X + 50
    X_train, X_inlier = X[:1800], X[1800:]
    X_outlier = np.column_stack([draw.permutation(column) for column in X_inlier.T])
X_test = np.concatenate([X_inlier, X_outlier])
y_test = np.repeat([0, 1], [len(X_inlier), len(X_outlier)])

if args.model == "ae":
    model = AutoEncoder(lr=args.lr, epoch_num=args.epochs, batch_size=32, random_state=args.seed)
elif args.model == "vae":
    model = VAE(lr=args.lr, epoch_num=args.epochs, batch_size=32, latent_dim=4, random_state=args.seed)
else:
    model = DeepSVDD(n_features=X.shape[1], epochs=args.epochs, batch_size=32, random_state=args.seed)
model.fit(X_train)
print("\nmetric auc", roc_auc_score(y_test, model.decision_function(X_test)))
