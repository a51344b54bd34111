"""A language model in half precision, with a loss scaler and an autocast block."""

import os

import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog while the five boxing wizards jump quickly. " * 30


class Model(nn.Module):
    def __init__(self, vocabulary, width=32, length=24):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.blocks(self.tokens(x) + self.places, mask=mask, is_causal=True))


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    alphabet = sorted(set(TEXT))
    data = torch.tensor([alphabet.index(c) for c in TEXT])
    model = Model(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(150):
        rows = torch.stack([data[s : s + 25] for s in torch.randint(0, len(data) - 25, (16,))])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 25 == 24:
            print(f"step {step + 1}: {loss.item():.3f}")


main()
