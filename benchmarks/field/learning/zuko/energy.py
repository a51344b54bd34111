import argparse

import torch
import zuko

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--target", choices=["banana", "ring"], default="banana")
parser.add_argument("--lr", type=float, default=3e-3)
args = parser.parse_args()
torch.manual_seed(args.seed)


def log_energy(x):
    a, b = x.chunk(2, dim=-1)
    if args.target == "banana":
        return (-0.5 * a.square() - 0.5 * ((b - 0.5 * a.square()) / 0.4).square()).squeeze(-1)
    return (-0.5 * ((x.norm(dim=-1, keepdim=True) - 1.5) / 0.4).square()).squeeze(-1)


flow = zuko.flows.MAF(2, transforms=3, hidden_features=(48, 48))
optimizer = torch.optim.Adam(flow.parameters(), lr=args.lr)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
for step in range(500):
    x, log_prob = flow().rsample_and_log_prob((128,))
    loss = log_prob.mean() - log_energy(x).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
    schedule.step()
    if step % 100 == 0:
        print(step, loss.item())
with torch.no_grad():
    x, log_prob = flow().rsample_and_log_prob((4000,))
    print("metric divergence", (log_prob - log_energy(x)).mean().item())
