import argparse

import torch
import torch.nn.functional as F
import torchbearer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchbearer import Trial, callbacks

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(args.seed)

MU, LOGVAR = torchbearer.state_key("mu"), torchbearer.state_key("logvar")
x = torch.tensor(load_digits().data / 16, dtype=torch.float32)
x = x[torch.randperm(len(x))]


class Encoder(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU())
        self.mu, self.logvar = nn.Linear(48, latent), nn.Linear(48, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 96), nn.ReLU(), nn.Linear(96, 64))

    def forward(self, x, state):
        h = self.hidden(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        state[MU], state[LOGVAR] = mu, logvar
        return self.decoder(z)


@callbacks.add_to_loss
def divergence(state):
    mu, logvar = state[MU], state[LOGVAR]
    return -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()


def reconstruction(predicted, target):
    return F.binary_cross_entropy_with_logits(predicted, target, reduction="sum") / len(target)


model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
train = DataLoader(TensorDataset(x[:1400], x[:1400]), batch_size=64, shuffle=True)
held = DataLoader(TensorDataset(x[1400:], x[1400:]), batch_size=256)
trial = Trial(model, optimizer, reconstruction, metrics=["loss"], callbacks=[divergence], verbose=0)
trial.with_generators(train, held)
for record in trial.run(args.epochs):
    print(record["loss"], record["val_loss"])
decoded = torch.sigmoid(trial.predict(data_key=torchbearer.VALIDATION_DATA))
error = ((decoded - x[1400:]) ** 2).mean() / x[1400:].var(0).mean()
print("metric unexplained", error.item())
