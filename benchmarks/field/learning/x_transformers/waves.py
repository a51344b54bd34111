import argparse

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset
from x_transformers import ContinuousTransformerWrapper, Decoder

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)


def waves(count):
    period = 6 + 10 * torch.rand(count, 1)
    phase = 2 * torch.pi * torch.rand(count, 1)
    return torch.sin(2 * torch.pi * torch.arange(25) / period + phase)[..., None]


model = ContinuousTransformerWrapper(
    dim_in=1, dim_out=1, max_seq_len=24, attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8)
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(waves(2048)), batch_size=64, shuffle=True)
for epoch in range(6):
    model.train()
    for (x,) in loader:
        optimizer.zero_grad()
        loss = mse_loss(model(x[:, :-1]), x[:, 1:])
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
model.eval()
test = waves(400)
with torch.no_grad():
    error = mse_loss(model(test[:, :-1])[:, 4:], test[:, 5:])
print("metric error", error.item())
