import argparse

import torch
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.nn import GAE, VGAE, GCNConv
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import stochastic_blockmodel_graph

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--variational", action="store_true")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=120)
args = parser.parse_args()
seed_everything(args.seed)

GROUPS, SIZE = 8, 40
density = torch.full((GROUPS, GROUPS), 0.004)
density.fill_diagonal_(0.25)
edge_index = stochastic_blockmodel_graph([SIZE] * GROUPS, density)
group = torch.arange(GROUPS).repeat_interleave(SIZE)
x = torch.nn.functional.one_hot(group, GROUPS).float() + torch.randn(GROUPS * SIZE, GROUPS)
data = Data(x=x, edge_index=edge_index)
split = RandomLinkSplit(
    num_val=0.05, num_test=0.15, is_undirected=True, split_labels=True, add_negative_train_samples=False
)
train_data, val_data, test_data = split(data)


class Encoder(torch.nn.Module):
    def __init__(self, hidden=32, out=16):
        super().__init__()
        self.first = GCNConv(GROUPS, hidden)
        self.mean = GCNConv(hidden, out)
        self.logstd = GCNConv(hidden, out) if args.variational else None

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        mean = self.mean(x, edge_index)
        return (mean, self.logstd(x, edge_index)) if args.variational else mean


model = VGAE(Encoder()) if args.variational else GAE(Encoder())
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def train():
    model.train()
    optimizer.zero_grad()
    z = model.encode(train_data.x, train_data.edge_index)
    loss = model.recon_loss(z, train_data.pos_edge_label_index)
    if args.variational:
        loss = loss + model.kl_loss() / train_data.num_nodes
    loss.backward()
    optimizer.step()
    return float(loss)


@torch.no_grad()
def test(part):
    model.eval()
    z = model.encode(train_data.x, train_data.edge_index)
    return model.test(z, part.pos_edge_label_index, part.neg_edge_label_index)


for epoch in range(1, args.epochs + 1):
    loss = train()
    if epoch % 20 == 0:
        auc, ap = test(val_data)
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, AUC: {auc:.4f}, AP: {ap:.4f}")
print("metric auc", test(test_data)[0])
