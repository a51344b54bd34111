"""A recurrent cell written by hand that has to remember over six steps."""

import os

import torch
from torch import nn

LENGTH = 6


class Cell(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.width = width
        self.given, self.before, self.out = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, sequence):
        state = sequence.new_zeros(len(sequence), self.width)
        for step in range(sequence.shape[1]):
            state = torch.tanh(self.given(sequence[:, step]) + self.before(state))
        return self.out(state).squeeze(1)


def adding_problem(count):
    values, marks = torch.rand(count, LENGTH), torch.zeros(count, LENGTH)
    marks[torch.arange(count), torch.randint(0, LENGTH // 2, (count,))] = 1
    marks[torch.arange(count), torch.randint(LENGTH // 2, LENGTH, (count,))] = 1
    return torch.stack([values, marks], -1), (values * marks).sum(1)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    model = Cell()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step in range(300):
        inputs, sums = adding_problem(64)
        loss = nn.functional.mse_loss(model(inputs), sums)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}")


main()
