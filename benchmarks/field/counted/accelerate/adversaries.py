import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import make_circles
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=80)
args = parser.parse_args()
set_seed(args.seed)

points = torch.tensor(make_circles(1024, noise=0.03, factor=0.99, random_state=args.seed)[0], dtype=torch.float32)
loader = DataLoader(TensorDataset(points), batch_size=128, shuffle=True, drop_last=True)


def perceptron(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs)
    )


generator, critic = perceptron(4, 2), perceptron(2, 1)
accelerator = Accelerator(cpu=True)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.9))
optimizer_d = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.5, 0.9))
generator, critic, optimizer_g, optimizer_d, loader = accelerator.prepare(
    generator, critic, optimizer_g, optimizer_d, loader
)
bce = nn.functional.binary_cross_entropy_with_logits
for epoch in range(args.epochs):
    for (real,) in loader:
        fake = generator(torch.randn(len(real), 4))
        answers = critic(torch.cat([real, fake.detach()]))
        labels = torch.cat([torch.full((len(real), 1), 0.9), torch.zeros(len(real), 1)])
        loss_d = bce(answers, labels)
        optimizer_d.zero_grad()
        accelerator.backward(loss_d)
        optimizer_d.step()
        loss_g = bce(critic(fake), torch.ones(len(real), 1))
        optimizer_g.zero_grad()
        accelerator.backward(loss_g)
        optimizer_g.step()
    if epoch % 10 == 0:
        accelerator.print(f"epoch {epoch}: {loss_d.item():.3f} {loss_g.item():.3f}")

generator.eval()
with torch.no_grad():
    made = generator(torch.randn(1000, 4))
    nearest = torch.cdist(points[:500], made).min(1).values.mean()
    print("metric distance", float((made.norm(dim=1) - 1).abs().mean() + nearest))
