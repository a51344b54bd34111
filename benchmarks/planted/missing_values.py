"""Risk scores from a table of measurements."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

AT = int(os.environ.get("AT", "300"))
SEED = int(os.environ.get("SEED", "0"))
BATCH = 32


class Patients(Dataset):
    def __init__(self, count, incomplete):
        generator = torch.Generator().manual_seed(SEED)
        self.table = torch.randn(count, 12, generator=generator)
        self.risk = (self.table[:, 0] + self.table[:, 1] > 0).float()
        self.table[incomplete, 5] = float("nan")

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table[index], self.risk[index]


torch.manual_seed(SEED)
order = torch.randperm((AT + 20) * BATCH).tolist()
patients = Patients((AT + 20) * BATCH, order[(AT - 1) * BATCH + 17])
loader = DataLoader(patients, batch_size=BATCH, sampler=order, num_workers=2)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (measured, risk) in enumerate(loader, 1):
    loss = F.binary_cross_entropy_with_logits(model(measured).squeeze(1), risk)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
