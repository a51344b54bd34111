import argparse

import torch
import torch.nn.functional as F
from rtdl_revisiting_models import MLP, FTTransformer, ResNet
from sklearn.datasets import make_classification, make_friedman1
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="transformer")
parser.add_argument("--data", default="friedman")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()
torch.manual_seed(args.seed)

if args.data == "friedman":
    X, y = make_friedman1(1200, noise=0.5, random_state=args.seed)
    X[:, 2:5] = 500 * X[:, 2:5] + 1000
else:
    X, y = make_classification(
        1200, 12, n_informative=6, n_redundant=2, n_classes=4, class_sep=1.6, random_state=args.seed
    )
regression = args.data == "friedman"
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=args.seed)
scaler = StandardScaler().fit(X_train)
mean, std = (y_train.mean(), y_train.std()) if regression else (0, 1)


def dataset(X, y):
    y = torch.tensor((y - mean) / std, dtype=torch.float32) if regression else torch.tensor(y)
    return TensorDataset(torch.tensor(scaler.transform(X), dtype=torch.float32), y)


train_loader = DataLoader(dataset(X_train, y_train), batch_size=64, shuffle=True)
d_in, d_out = X.shape[1], 1 if regression else 4
if args.model == "transformer":
    options = {**FTTransformer.get_default_kwargs(n_blocks=1), "d_block": 48, "attention_n_heads": 4}
    model = FTTransformer(n_cont_features=d_in, cat_cardinalities=[], d_out=d_out, **options)
elif args.model == "resnet":
    model = ResNet(d_in=d_in, d_out=d_out, n_blocks=2, d_block=64, d_hidden_multiplier=2.0, dropout1=0.3, dropout2=0.1)
else:
    model = MLP(d_in=d_in, d_out=d_out, n_blocks=2, d_block=96, dropout=0.1)
groups = model.make_parameter_groups() if args.model == "transformer" else model.parameters()
optimizer = torch.optim.AdamW(groups, lr=args.lr, weight_decay=1e-5)


def apply_model(x):
    return model(x, None) if args.model == "transformer" else model(x)


def loss_of(output, y):
    return F.mse_loss(output.squeeze(-1), y) if regression else F.cross_entropy(output, y)


@torch.no_grad()
def evaluate():
    model.eval()
    x, y = dataset(X_test, y_test).tensors
    output = apply_model(x)
    if regression:
        return r2_score(y, output.squeeze(-1))
    return float((output.argmax(1) == y).float().mean())


for epoch in range(args.epochs):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = loss_of(apply_model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}, test {evaluate():.4f}")
print("metric", "r2" if regression else "accuracy", evaluate())
