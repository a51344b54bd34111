import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--positions", choices=["absolute", "rotary"], default="absolute")
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--clip", type=float, default=0.5)
parser.add_argument("--epochs", type=int, default=6)
args = parser.parse_args()
torch.manual_seed(args.seed)
WORDS, LENGTH = 11, 18


def sequences(count):
    start, stride = torch.randint(0, WORDS, (2, count, 1))
    return (start + stride * torch.arange(LENGTH)) % WORDS


rotary = args.positions == "rotary"
net = TransformerWrapper(
    num_tokens=WORDS,
    max_seq_len=LENGTH,
    use_abs_pos_emb=not rotary,
    attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=rotary),
)
model = AutoregressiveWrapper(net)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
loader = DataLoader(TensorDataset(sequences(2048)), batch_size=64, shuffle=True)
for epoch in range(args.epochs):
    model.train()
    for (batch,) in loader:
        loss = model(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad()
    print(epoch, loss.item())

model.eval()
test = sequences(200)
with torch.no_grad():
    made = model.generate(test[:, :4], LENGTH - 4, temperature=0.0, cache_kv=False)
print("metric accuracy", (made == test[:, 4:]).float().mean().item())
