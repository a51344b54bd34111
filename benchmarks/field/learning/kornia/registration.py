import argparse

import kornia
import torch
from kornia.geometry import ImageRegistrator

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--model", choices=["similarity", "homography"], default="similarity")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(args.seed)

image = kornia.filters.gaussian_blur2d(torch.rand(1, 1, 64, 64), (9, 9), (3.0, 3.0))
image = (image - image.min()) / (image.max() - image.min())
angle = torch.tensor([6.0])
center, scale = torch.tensor([[31.5, 31.5]]), torch.tensor([[1.05, 1.05]])
matrix = kornia.geometry.get_rotation_matrix2d(center, angle, scale)
moved = kornia.geometry.warp_affine(image, matrix, (64, 64), padding_mode="reflection")
registrator = ImageRegistrator(
    args.model, optimizer=torch.optim.Adam, pyramid_levels=3, lr=args.lr, num_iterations=args.steps, tolerance=0.0
)
registrator.register(image, moved)
with torch.no_grad():
    warped = registrator.warp_src_into_dst(image)
inner = (slice(None), slice(None), slice(10, -10), slice(10, -10))
before = (image - moved)[inner].abs().mean()
print("metric remaining", ((warped - moved)[inner].abs().mean() / before).item())
