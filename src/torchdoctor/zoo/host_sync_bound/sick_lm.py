"""A small language model whose progress line formats tensors in every step. Needs a CUDA device.

On a CPU nothing has to be waited for, so there it is a sound training and the case is to be skipped.
"""

import io
import os

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TEXT = "she sells sea shells by the sea shore, and the shells she sells are sea shells for sure. " * 30


class Model(nn.Module):
    def __init__(self, vocabulary, width=64):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.rnn(self.tokens(x))[0])


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    alphabet = sorted(set(TEXT))
    data = torch.tensor([alphabet.index(c) for c in TEXT], device=DEVICE)
    model = Model(len(alphabet)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    log = io.StringIO()
    for step in range(300):
        starts = torch.randint(0, len(data) - 33, (16,)).tolist()
        rows = torch.stack([data[s : s + 33] for s in starts])
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        right = (logits.argmax(-1) == rows[:, 1:]).float().mean()
        spread = logits.detach().std()
        print(f"{step}: loss {loss:.3f} accuracy {right:.3f} norm {norm:.3f} spread {spread:.3f}", file=log)
        print(*(f"{name} {p.grad.norm():.2g}" for name, p in model.named_parameters()), file=log)
        if step % 50 == 49:
            print(f"step {step + 1}: {loss.item():.3f}")


main()
