"""A recurrent net adds up marked numbers in long sequences: the gradient norm is clipped."""

import os

import torch
from torch import nn

LENGTH, BATCH = 60, 32


def make_batch():
    values = torch.rand(BATCH, LENGTH)
    marks = torch.zeros(BATCH, LENGTH)
    marks[torch.arange(BATCH), torch.randint(0, LENGTH // 2, (BATCH,))] = 1
    marks[torch.arange(BATCH), torch.randint(LENGTH // 2, LENGTH, (BATCH,))] = 1
    return torch.stack([values, marks], dim=-1), (values * marks).sum(1)


class Adder(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(hidden, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.head(states[:, -1]).squeeze(-1)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "1")))
    model = Adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    criterion = nn.MSELoss()
    for step in range(400):
        sequences, sums = make_batch()
        loss = criterion(model(sequences), sums)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # long products of Jacobians
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
