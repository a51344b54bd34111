import argparse

import torch
import torchsde
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--method", choices=["euler", "milstein", "srk"], default="euler")
parser.add_argument("--steps", type=int, default=130)
parser.add_argument("--dt", type=float, default=0.05)
parser.add_argument("--adjoint", type=int, default=0)
parser.add_argument("--warm", type=int, default=50)
args = parser.parse_args()
torch.manual_seed(args.seed)
times = torch.linspace(0, 2, 21)


def observe(count):
    phase = 2 * torch.pi * torch.rand(count, 1)
    speed = 2.0 + 0.2 * torch.randn(count, 1)
    clean = torch.sin(speed * times + phase)
    return (clean + 0.05 * torch.randn_like(clean)).T.unsqueeze(-1)


class LatentSDE(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, latent=3, context=8, hidden=24):
        super().__init__()
        self.encoder = nn.GRU(1, hidden, batch_first=False)
        self.contexts = nn.Linear(hidden, context)
        self.first = nn.Linear(hidden, 2 * latent)
        self.posterior = nn.Sequential(nn.Linear(latent + context, hidden), nn.Softplus(), nn.Linear(hidden, latent))
        self.prior = nn.Sequential(nn.Linear(latent, hidden), nn.Softplus(), nn.Linear(hidden, latent))
        self.diffusions = nn.ModuleList(
            [nn.Sequential(nn.Linear(1, 8), nn.Softplus(), nn.Linear(8, 1), nn.Sigmoid()) for _ in range(latent)]
        )
        self.projector = nn.Linear(latent, 1)

    def contextualize(self, series):
        hidden, _ = self.encoder(series.flip(0))
        self.seen = self.contexts(hidden.flip(0))
        return hidden[-1]

    def f(self, t, y):
        i = min(int(torch.searchsorted(times, t, right=True)), len(times) - 1)
        return self.posterior(torch.cat([y, self.seen[i]], 1))

    def h(self, t, y):
        return self.prior(y)

    def g(self, t, y):
        return torch.cat([net(part) for net, part in zip(self.diffusions, y.split(1, 1), strict=True)], 1)

    def forward(self, series):
        mean, scale = self.first(self.contextualize(series)).chunk(2, 1)
        start = torch.distributions.Normal(mean, nn.functional.softplus(scale) + 1e-3)
        solve = torchsde.sdeint_adjoint if args.adjoint else torchsde.sdeint
        extra = {"adjoint_params": (self.seen, *self.parameters())} if args.adjoint else {}
        path, divergence = solve(
            self, start.rsample(), times, dt=args.dt, method=args.method, logqp=True, names={"drift": "f"}, **extra
        )
        decoded = self.projector(path)
        likelihood = torch.distributions.Normal(decoded, 0.1).log_prob(series).sum((0, 2)).mean()
        standard = torch.distributions.Normal(torch.zeros_like(mean), 1.0)
        divergence = divergence.sum(0).mean() + torch.distributions.kl_divergence(start, standard).sum(1).mean()
        return decoded, likelihood, divergence


model = LatentSDE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
for step in range(args.steps):
    optimizer.zero_grad()
    _, likelihood, divergence = model(observe(48))
    loss = -likelihood + min(1.0, step / args.warm) * divergence
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
    scheduler.step()
    if step % 40 == 0:
        print(step, loss.item())
series = observe(200)
with torch.no_grad():
    decoded, _, _ = model(series)
print("metric unexplained", ((decoded - series) ** 2).mean().item() / series.var().item())
