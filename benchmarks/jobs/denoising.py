"""A diffusion model: self-conditioning passes without gradients, an average of the weights, sampling now and then."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
TIMES = 50
betas = torch.linspace(1e-4, 0.2, TIMES)
alphas = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(TIMES, 32), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, width))
        self.enter = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(8)
        )
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x: torch.Tensor, guess: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(torch.cat([x, guess], 1))
        shift = self.time(t)[:, :, None, None]
        for block in self.blocks:
            hidden = hidden + block(hidden + shift)
        return self.leave(hidden)


@torch.no_grad()
def sample(network: nn.Module) -> torch.Tensor:
    x = torch.randn(4, 1, 16, 16)
    guess = torch.zeros_like(x)
    for time in reversed(range(TIMES)):
        t = torch.full((4,), time)
        noise = network(x, guess, t)
        x = (x - betas[time] / (1 - alphas[time]).sqrt() * noise) / (1 - betas[time]).sqrt()
        if time:
            x = x + betas[time].sqrt() * torch.randn_like(x)
    return x


model = Denoiser()
average = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = F.avg_pool2d(torch.randn(256, 1, 16, 16), 5, 1, 2)
for step in range(400):
    images = data[torch.randint(0, len(data), (16,))]
    t = torch.randint(0, TIMES, (16,))
    noise = torch.randn_like(images)
    level = alphas[t][:, None, None, None]
    noisy = level.sqrt() * images + (1 - level).sqrt() * noise
    guess = torch.zeros_like(images)
    if torch.rand(()) < 0.5:
        with torch.no_grad():
            guess = model(noisy, guess, t)
    loss = F.mse_loss(model(noisy, guess, t), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new, 0.01)
    if step % 100 == 99:
        print(step, loss.item(), sample(average).std().item())
