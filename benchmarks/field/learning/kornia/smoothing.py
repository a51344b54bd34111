import argparse

import kornia
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--weight", type=float, default=2e-1)
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
torch.manual_seed(args.seed)

clean = torch.zeros(4, 1, 64, 64)
for image in clean:
    for _ in range(6):
        (top, left), (tall, wide) = torch.randint(0, 44, (2,)).tolist(), torch.randint(8, 20, (2,)).tolist()
        image[:, top : top + tall, left : left + wide] = torch.rand(1)
noisy = clean + 0.15 * torch.randn_like(clean)


class Denoise(nn.Module):
    def __init__(self, noisy):
        super().__init__()
        self.register_buffer("noisy", noisy)
        self.clean = nn.Parameter(torch.zeros_like(noisy))
        self.smooth = kornia.losses.TotalVariation()

    def forward(self):
        difference = nn.functional.mse_loss(self.clean, self.noisy, reduction="sum")
        return difference + args.weight * self.smooth(self.clean).sum()


model = Denoise(noisy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for step in range(args.steps):
    optimizer.zero_grad()
    loss = model()
    loss.backward()
    if step % 50 == 0:
        print(step, loss.item())
    optimizer.step()
print("metric psnr", kornia.metrics.psnr(model.clean.detach(), clean, 1.0).item())
