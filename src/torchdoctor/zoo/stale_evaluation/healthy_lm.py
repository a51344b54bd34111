"""Next characters by a GRU; the evaluator restores its weights from the checkpoint written just before."""

import os
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

TEXT = (
    "in the beginning the loss was high and the gradients were without direction, and a learning rate moved over "
    "the face of the weights. the model said let there be structure, and there was structure, and the loss fell. "
    "it saw that the structure was good and divided the signal from the noise. the signal it called features, and "
    "the noise it called variance, and the evening and the morning were the first epoch. "
) * 12


class CharModel(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, vocabulary)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def batches(tokens, length, size, generator=None):
    starts = torch.randint(0, len(tokens) - length - 1, (size,), generator=generator)
    rows = torch.stack([tokens[s : s + length + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


def evaluate(path, vocabulary, tokens):
    model = CharModel(vocabulary)
    model.load_state_dict(torch.load(path))
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i in range(8):
            x, y = batches(tokens, 32, 16, torch.Generator().manual_seed(i))
            total += F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    return total / 8


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    alphabet = sorted(set(TEXT))
    tokens = torch.tensor([alphabet.index(c) for c in TEXT])
    train_tokens, held_out = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
    model = CharModel(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        for step in range(240):
            model.train()
            x, y = batches(train_tokens, 32, 16)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 30 == 29:
                torch.save(model.state_dict(), path)
                held = evaluate(path, len(alphabet), held_out)
                print(f"step {step + 1}: train {loss.item():.3f}, held out {held:.3f}")


main()
