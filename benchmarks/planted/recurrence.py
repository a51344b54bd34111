"""A linear recurrent model on sequences of different lengths."""

import os

import torch
from torch import nn

AT = int(os.environ.get("AT", "300"))
torch.manual_seed(int(os.environ.get("SEED", "0")))
BATCH, WIDTH = 16, 12


class LinearRecurrence(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, WIDTH)
        self.transition = nn.Parameter(1.4 * torch.eye(WIDTH) + 0.01 * torch.randn(WIDTH, WIDTH))
        self.decode = nn.Linear(WIDTH, 1)

    def forward(self, x):
        state = self.encode(x[:, 0])
        for t in range(1, x.shape[1]):
            carried = torch.mm(state, self.transition)
            state = carried + self.encode(x[:, t])
        return self.decode(state)


lengths = torch.randint(3, 6, (AT + 20,))
lengths[AT - 1] = 400
model = LinearRecurrence()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step, length in enumerate(lengths.tolist()):
    x = torch.randn(BATCH, length, 4)
    y = x[:, :, 0].mean(dim=1, keepdim=True)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} length {length} loss {loss.item():.4f}")
