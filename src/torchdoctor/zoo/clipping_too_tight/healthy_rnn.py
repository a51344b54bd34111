"""A recurrent network that reads digits row by row, its gradients clipped at a norm of five."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RowReader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 64, batch_first=True)
        self.out = nn.Linear(64, 10)

    def forward(self, rows):
        states, _ = self.rnn(rows)
        return self.out(states[:, -1])


def main(max_norm=5.0):
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.images / 8 - 1, dtype=torch.float32), torch.tensor(digits.target))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = RowReader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(5):
        total = 0.0
        for rows, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(rows), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


main()
