import argparse

import torch
from nflows.distributions.normal import ConditionalDiagonalNormal
from nflows.flows import Flow
from nflows.nn.nets import ResidualNet
from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=16)
args = parser.parse_args()
torch.manual_seed(args.seed)


def draw(count, seed):
    x, y = make_moons(count, noise=0.1, random_state=seed)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32).reshape(-1, 1)


base = ConditionalDiagonalNormal(shape=[2], context_encoder=nn.Linear(1, 4))
transforms = []
for _ in range(4):
    transforms.append(ReversePermutation(features=2))
    transforms.append(MaskedAffineAutoregressiveTransform(features=2, hidden_features=16, context_features=1))
flow = Flow(CompositeTransform(transforms), base, embedding_net=ResidualNet(1, 1, 16, num_blocks=1))

x, y = draw(5000, args.seed)
x_held, y_held = draw(6000, 1000 + args.seed)
loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True)
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
history = []
for epoch in range(args.epochs):
    total = 0.0
    for inputs, context in loader:
        optimizer.zero_grad()
        loss = -flow.log_prob(inputs, context=context).mean()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(inputs)
    scheduler.step()
    flow.eval()
    with torch.no_grad():
        history.append(-flow.log_prob(x_held, context=y_held).mean().item())
    flow.train()
    print(epoch, total / len(x), history[-1])
flow.eval()
with torch.no_grad():
    print("metric nll", -flow.log_prob(x_held, context=y_held).mean().item())
