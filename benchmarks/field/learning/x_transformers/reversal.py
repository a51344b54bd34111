import argparse

import torch
from x_transformers import XTransformer

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--task", choices=["copy", "reverse"], default="reverse")
parser.add_argument("--steps", type=int, default=250)
args = parser.parse_args()
torch.manual_seed(args.seed)
WORDS, LENGTH = 10, 8


def pairs(count):
    source = torch.randint(2, WORDS, (count, LENGTH))
    answer = source.flip(1) if args.task == "reverse" else source
    return source, torch.cat([torch.ones(count, 1, dtype=torch.long), answer], 1)


model = XTransformer(
    dim=48,
    tie_token_emb=True,
    return_tgt_loss=True,
    enc_num_tokens=WORDS,
    enc_depth=2,
    enc_heads=4,
    enc_max_seq_len=LENGTH,
    enc_attn_dim_head=12,
    dec_num_tokens=WORDS,
    dec_depth=2,
    dec_heads=4,
    dec_max_seq_len=LENGTH + 1,
    dec_attn_dim_head=12,
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(args.steps):
    model.train()
    source, target = pairs(64)
    loss = model(source, target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0:
        print(step, loss.item())

model.eval()
source, target = pairs(200)
with torch.no_grad():
    made = model.generate(source, target[:, :1], LENGTH, temperature=0.0)
print("metric accuracy", (made == target[:, 1:]).float().mean().item())
