import argparse

import torch
from sbi.inference import NPE
from sbi.neural_nets import posterior_nn
from sbi.utils import BoxUniform
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--embedding", choices=["pooled", "recurrent"], default="pooled")
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
torch.manual_seed(args.seed)
times = torch.linspace(0, 1, 64)


def simulate(theta):
    frequency, decay = 2.5 + 1.5 * theta[:, :1], 3 + 2 * theta[:, 1:]
    clean = (2 * torch.pi * frequency * times).sin() * (-decay * times).exp()
    length = torch.randint(32, 65, (len(theta), 1))
    return (clean + 0.1 * torch.randn(len(theta), 64)) * (torch.arange(64) < length)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(1, 12, 5, stride=2), nn.Tanh(), nn.Conv1d(12, 16, 5, stride=2), nn.Tanh())
        self.output = nn.Linear(32, 12)

    def forward(self, x):
        frames = self.frames(x.unsqueeze(1))
        mean = frames.mean(2)
        std = (frames.unfold(2, 3, 3).var(3) + 1e-5).sqrt().mean(2)
        return self.output(torch.cat([mean, std], 1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(8, 24, batch_first=True)
        self.output = nn.Linear(24, 12)

    def forward(self, x):
        _, last = self.cell(x.reshape(len(x), 8, 8))
        return self.output(last[0])


prior = BoxUniform(-torch.ones(2), torch.ones(2))
theta = prior.sample((2500,))
x = simulate(theta)
embedding = Pooled() if args.embedding == "pooled" else Recurrent()
estimator = posterior_nn("mdn", embedding_net=embedding, z_score_x="structured", hidden_features=30)
inference = NPE(prior, density_estimator=estimator, show_progress_bars=False)
trained = inference.append_simulations(theta, x).train(
    training_batch_size=50, learning_rate=1e-3, max_num_epochs=args.epochs
)
theta = prior.sample((1000,))
x = simulate(theta)
with torch.no_grad():
    print("metric nll", trained.loss(theta, x).mean().item())
