import argparse

import torch
import zuko
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--flow", choices=["NSF", "MAF"], default="MAF")
args = parser.parse_args()
torch.manual_seed(args.seed)


def pairs(count):
    context = 4 * torch.rand(count, 1) - 2
    first = torch.sin(2 * context) + 0.1 * torch.randn(count, 1)
    second = context * first + (0.1 + 0.1 * context.abs()) * torch.randn(count, 1)
    return TensorDataset(torch.cat([first, second], 1), context)


flow = getattr(zuko.flows, args.flow)(2, 1, transforms=2, hidden_features=(48, 48))
optimizer = torch.optim.AdamW(flow.parameters(), lr=3e-3, weight_decay=1e-4)
loader = DataLoader(pairs(2000), batch_size=64, shuffle=True)
for epoch in range(14):
    for x, context in loader:
        loss = -flow(context).log_prob(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
x, context = pairs(1000).tensors
with torch.no_grad():
    print("metric nll", -flow(context).log_prob(x).mean().item())
