import argparse

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
from pyro.optim import Adam, ClippedAdam
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--analytic", type=int, default=0)
parser.add_argument("--lr", type=float, default=3e-3)
args = parser.parse_args()
pyro.set_rng_seed(args.seed)


class VAE(nn.Module):
    def __init__(self, latent=6, hidden=64):
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.Softplus(), nn.Linear(hidden, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.Softplus(), nn.Linear(hidden, 64))

    def model(self, x):
        pyro.module("decoder", self.decoder)
        with pyro.plate("data", x.shape[0]):
            z = pyro.sample("latent", dist.Normal(x.new_zeros(len(x), self.latent), 1.0).to_event(1))
            pyro.sample("obs", dist.Bernoulli(logits=self.decoder(z)).to_event(1), obs=x)

    def guide(self, x):
        pyro.module("encoder", self.encoder)
        with pyro.plate("data", x.shape[0]):
            mean, log_scale = self.encoder(x).chunk(2, dim=-1)
            pyro.sample("latent", dist.Normal(mean, log_scale.exp()).to_event(1))


pixels = torch.tensor(load_digits().data > 7, dtype=torch.float)
train, test = random_split(pixels, [0.8, 0.2])
loader = DataLoader(train, batch_size=64, shuffle=True)
test = torch.stack(list(test))
vae = VAE()
optimizer = ClippedAdam({"lr": args.lr, "lrd": 0.999}) if args.analytic else Adam({"lr": args.lr})
svi = SVI(vae.model, vae.guide, optimizer, TraceMeanField_ELBO() if args.analytic else Trace_ELBO())
for epoch in range(25):
    loss = sum(svi.step(x) for x in loader)
    print(epoch, loss / len(train))
print("metric bound", sum(svi.evaluate_loss(test) for _ in range(10)) / 10 / len(test))
