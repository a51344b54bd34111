import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from vector_quantize_pytorch import FSQ, ResidualVQ, SimVQ, VectorQuantize

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--quantizer", default="vq")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--commitment", type=float, default=1.0)
parser.add_argument("--codes", type=int, default=64)
args = parser.parse_args()
torch.manual_seed(args.seed)

X, _ = load_digits(return_X_y=True)
X_train, X_test = train_test_split(X / 16, test_size=0.2, random_state=args.seed)
X_train, X_test = (torch.tensor(X, dtype=torch.float32).view(-1, 1, 8, 8) for X in (X_train, X_test))
train_loader = DataLoader(TensorDataset(X_train), batch_size=64, shuffle=True)

SIZE = 16


def make_quantizer():
    options = {"dim": SIZE, "codebook_size": args.codes}
    if args.quantizer == "vq":
        return VectorQuantize(**options, decay=0.8, commitment_weight=args.commitment)
    if args.quantizer == "cosine":
        return VectorQuantize(**options, use_cosine_sim=True, threshold_ema_dead_code=2)
    if args.quantizer == "residual":
        return ResidualVQ(**options, num_quantizers=2)
    if args.quantizer == "sim":
        return SimVQ(**options, rotation_trick=True)
    return FSQ(levels=[8, 5, 5], dim=SIZE)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv2d(32, SIZE, 1),
        )
        self.quantizer = make_quantizer()
        self.decoder = nn.Sequential(
            nn.Conv2d(SIZE, 32, 3, padding=1),
            nn.GELU(),
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2d(32, 16, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(16, 1, 3, padding=1),
        )

    def forward(self, x):
        z = self.encoder(x).permute(0, 2, 3, 1)
        shape = z.shape
        z = z.reshape(shape[0], -1, SIZE)
        if args.quantizer == "fsq":
            quantized, _ = self.quantizer(z)
            loss = torch.zeros(())
        else:
            quantized, _, loss = self.quantizer(z)
        return self.decoder(quantized.reshape(shape).permute(0, 3, 1, 2)), loss.sum()


model = AutoEncoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    model.train()
    for (x,) in train_loader:
        optimizer.zero_grad()
        out, extra = model(x)
        loss = (out - x).abs().mean() + extra
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")

model.eval()
with torch.no_grad():
    print("metric mse", float(((model(X_test)[0] - X_test) ** 2).mean()))
