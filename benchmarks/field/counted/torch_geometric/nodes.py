import argparse

import torch
import torch.nn.functional as F
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE
from torch_geometric.transforms import Compose, NormalizeFeatures, RandomNodeSplit
from torch_geometric.utils import stochastic_blockmodel_graph

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", default="GCN")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=150)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--decay", type=float, default=5e-4)
args = parser.parse_args()
seed_everything(args.seed)

CLASSES, SIZE, FEATURES = 5, 120, 40
density = torch.full((CLASSES, CLASSES), 0.004)
density.fill_diagonal_(0.04)
edge_index = stochastic_blockmodel_graph([SIZE] * CLASSES, density)
y = torch.arange(CLASSES).repeat_interleave(SIZE)
prototypes = torch.rand(CLASSES, FEATURES) * 0.3 + 0.05
x = torch.bernoulli(prototypes[y])
data = Data(x=x, edge_index=edge_index, y=y, num_classes=CLASSES)
transform = Compose([NormalizeFeatures(), RandomNodeSplit(num_train_per_class=20, num_val=100, num_test=300)])
data = transform(data)

model = {"GCN": GCN, "GAT": GAT, "GraphSAGE": GraphSAGE, "GIN": GIN}[args.model](
    in_channels=FEATURES,
    hidden_channels=32,
    num_layers=args.layers,
    out_channels=CLASSES,
    dropout=args.dropout,
)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.decay)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    return float(loss)


@torch.no_grad()
def test():
    model.eval()
    pred = model(data.x, data.edge_index).argmax(dim=-1)
    return [
        int((pred[mask] == data.y[mask]).sum()) / int(mask.sum())
        for mask in (data.train_mask, data.val_mask, data.test_mask)
    ]


best_val = final = 0.0
for epoch in range(1, args.epochs + 1):
    loss = train()
    train_acc, val_acc, test_acc = test()
    if val_acc > best_val:
        best_val, final = val_acc, test_acc
    if epoch % 10 == 0:
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: {train_acc:.4f}, Val: {val_acc:.4f}, Test: {test_acc:.4f}")
print("metric accuracy", final)
