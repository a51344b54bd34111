import argparse

import torch
import torch.nn.functional as F
import torchbearer
from torch import nn
from torchbearer import Trial
from torchbearer.bases import base_closure

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=1200)
args = parser.parse_args()
torch.manual_seed(args.seed)


def real(count):
    angle = 2 * torch.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.discriminator = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def forward(self, x, state):
        made = self.generator(torch.randn(len(x), 4))
        state[FAKE] = self.discriminator(made)
        state[FAKE_FIXED] = self.discriminator(made.detach())
        return self.discriminator(x)


FAKE, FAKE_FIXED = torchbearer.state_key("fake"), torchbearer.state_key("fake_fixed")
LOSS_G, LOSS_D = torchbearer.state_key("loss_g"), torchbearer.state_key("loss_d")
OPTIMIZER_G, OPTIMIZER_D = torchbearer.state_key("optimizer_g"), torchbearer.state_key("optimizer_d")
ones, zeros = torch.ones(128, 1), torch.zeros(128, 1)


def loss_d(state):
    real = F.binary_cross_entropy_with_logits(state[torchbearer.Y_PRED], ones)
    return real + F.binary_cross_entropy_with_logits(state[FAKE_FIXED], zeros)


def loss_g(state):
    return F.binary_cross_entropy_with_logits(state[FAKE], ones)


CRITERION_G, CRITERION_D = torchbearer.state_key("criterion_g"), torchbearer.state_key("criterion_d")
X, MODEL, Y_PRED, Y_TRUE = torchbearer.X, torchbearer.MODEL, torchbearer.Y_PRED, torchbearer.Y_TRUE
closure_d = base_closure(X, MODEL, Y_PRED, Y_TRUE, CRITERION_D, LOSS_D, OPTIMIZER_D)
closure_g = base_closure(X, MODEL, Y_PRED, Y_TRUE, CRITERION_G, LOSS_G, OPTIMIZER_G)


def closure(state):
    closure_d(state)
    state[OPTIMIZER_D].step()
    closure_g(state)
    state[OPTIMIZER_G].step()


def load(state):
    state[torchbearer.X], state[torchbearer.Y_TRUE] = real(128), None


model = GAN()
trial = Trial(model, verbose=0).with_loader(load).with_closure(closure).for_train_steps(args.steps // 4)
trial.state[OPTIMIZER_G] = torch.optim.Adam(model.generator.parameters(), lr=4e-4, betas=(0.0, 0.9))
trial.state[OPTIMIZER_D] = torch.optim.Adam(model.discriminator.parameters(), lr=1e-3, betas=(0.0, 0.9))
trial.state[CRITERION_G], trial.state[CRITERION_D] = loss_g, loss_d
trial.run(4)
with torch.no_grad():
    made, held = model.generator(torch.randn(1000, 4)), real(1000)
    distance = 2 * torch.cdist(made, held).mean() - torch.cdist(made, made).mean() - torch.cdist(held, held).mean()
print("metric distance", distance.item())
