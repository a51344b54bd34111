import argparse

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--ignored", type=int, default=0)
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()
torch.manual_seed(args.seed)
WORDS, LENGTH = 13, 40


def lines(count):
    start, stride = torch.randint(0, WORDS - 1, (2, count, 1))
    words = 1 + (start + stride * torch.arange(LENGTH)) % (WORDS - 1)
    long = torch.rand(count, 1) < 0.1
    size = torch.where(long, torch.randint(8, LENGTH, (count, 1)), torch.randint(4, 8, (count, 1)))
    return torch.where(torch.arange(LENGTH) < size, words, 0)


net = TransformerWrapper(
    num_tokens=WORDS, max_seq_len=LENGTH, attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8)
)
model = AutoregressiveWrapper(net, ignore_index=args.ignored)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loader = DataLoader(TensorDataset(lines(1536)), batch_size=64, shuffle=True)
for epoch in range(args.epochs):
    model.train()
    for (batch,) in loader:
        loss = model(batch, mask=batch != 0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(epoch, loss.item())

model.eval()
test = lines(400)
with torch.no_grad():
    logits = net(test[:, :-1], mask=test[:, :-1] != 0)
    loss = cross_entropy(logits[:, 2:].transpose(1, 2), test[:, 3:], ignore_index=0)
print("metric loss", loss.item())
