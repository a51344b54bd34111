import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, GraphConv, global_add_pool, global_mean_pool
from torch_geometric.utils import erdos_renyi_graph, to_undirected

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--task", default="class")
parser.add_argument("--conv", default="gin")
parser.add_argument("--lr", type=float, default=0.005)
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--batch-size", type=int, default=32)
args = parser.parse_args()
seed_everything(args.seed)


def ring(size):
    nodes = torch.arange(size)
    return to_undirected(torch.stack([nodes, (nodes + 1) % size]))


def make_graph():
    size = int(torch.randint(8, 16, (1,)))
    kinds = torch.randint(0, 4, (size,))
    x = F.one_hot(kinds, 4).float()
    if args.task == "class":
        y = torch.randint(0, 2, (1,))
        edge_index = ring(size)
        if y:
            chords = torch.randint(0, size, (2, 3))
            edge_index = to_undirected(torch.cat([edge_index, chords], 1), num_nodes=size)
    else:
        edge_index = torch.cat([ring(size), erdos_renyi_graph(size, 0.1)], 1)
        weights = torch.tensor([0.5, -1.0, 1.5, 0.2])
        source, target = edge_index
        y = (weights[kinds[source]] * weights[kinds[target]]).sum().view(1) / 4
    return Data(x=x, edge_index=edge_index, y=y)


graphs = [make_graph() for _ in range(900)]
train_loader = DataLoader(graphs[:700], batch_size=args.batch_size, shuffle=True)
test_loader = DataLoader(graphs[700:], batch_size=100)


class Net(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.convs = nn.ModuleList()
        for inputs in (4, hidden, hidden):
            if args.conv == "gin":
                layers = nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, hidden)
                self.convs.append(GINConv(nn.Sequential(*layers), train_eps=True))
            else:
                self.convs.append(GraphConv(inputs, hidden))
        outputs = 2 if args.task == "class" else 1
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, data):
        x = data.x
        for conv in self.convs:
            x = F.relu(conv(x, data.edge_index))
        pool = global_mean_pool if args.task == "class" else global_add_pool
        out = self.head(pool(x, data.batch))
        return out if args.task == "class" else out.view(-1)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def loss_of(out, y):
    return F.cross_entropy(out, y) if args.task == "class" else F.mse_loss(out, y)


def train():
    model.train()
    total = 0.0
    for data in train_loader:
        optimizer.zero_grad()
        loss = loss_of(model(data), data.y)
        loss.backward()
        optimizer.step()
        total += float(loss) * data.num_graphs
    return total / len(train_loader.dataset)


@torch.no_grad()
def test():
    model.eval()
    total = 0.0
    for data in test_loader:
        out = model(data)
        total += float((out.argmax(-1) == data.y).sum() if args.task == "class" else (out - data.y).abs().sum())
    return total / len(test_loader.dataset)


for epoch in range(1, args.epochs + 1):
    print(f"Epoch: {epoch:02d}, Loss: {train():.4f}, Test: {test():.4f}")
print("metric", "accuracy" if args.task == "class" else "mae", test())
