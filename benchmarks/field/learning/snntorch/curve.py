import argparse

import snntorch as snn
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--curve", choices=["linear", "sqrt"], default="linear")
args = parser.parse_args()
torch.manual_seed(args.seed)
STEPS = 20


def curves(count):
    slope = torch.rand(count, 1)
    time = torch.linspace(0, 1, STEPS)
    return TensorDataset(slope, slope * (time if args.curve == "linear" else time.sqrt()))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(1, 64)
        self.lif1 = snn.Leaky(beta=torch.rand(64), threshold=0.5, learn_beta=True)
        self.fc2 = nn.Linear(64, 64)
        self.lif2 = snn.Leaky(beta=torch.rand(64), threshold=0.5, learn_beta=True)
        self.fc3 = nn.Linear(64, 1)
        self.out = snn.Leaky(beta=0.9, learn_beta=True, reset_mechanism="none")

    def forward(self, x):
        mem1, mem2, mem3 = self.lif1.init_leaky(), self.lif2.init_leaky(), self.out.init_leaky()
        membranes = []
        for _ in range(STEPS):
            spk1, mem1 = self.lif1(self.fc1(x), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            _, mem3 = self.out(self.fc3(spk2), mem3)
            membranes.append(mem3)
        return torch.stack(membranes)


net = Net()
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
loader = DataLoader(curves(640), batch_size=32, shuffle=True)
for epoch in range(12):
    for slope, target in loader:
        membranes = net(slope)
        loss = loss_fn(membranes, target.T[..., None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
slope, target = curves(300).tensors
with torch.no_grad():
    error = loss_fn(net(slope), target.T[..., None]) / target.var()
print("metric error", error.item())
