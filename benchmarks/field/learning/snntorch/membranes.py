import argparse

import snntorch as snn
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from snntorch import spikegen
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--learn-beta", type=int, default=0)
parser.add_argument("--encoding", choices=["constant", "rate"], default="constant")
args = parser.parse_args()
torch.manual_seed(args.seed)
STEPS = 10

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=args.seed)
loader = DataLoader(TensorDataset(x_train, y_train), batch_size=64, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 100)
        self.lif1 = snn.Leaky(beta=0.9, learn_beta=bool(args.learn_beta))
        self.fc2 = nn.Linear(100, 10)
        self.lif2 = snn.Leaky(beta=0.9, learn_beta=bool(args.learn_beta))

    def forward(self, x):
        mem1, mem2 = self.lif1.init_leaky(), self.lif2.init_leaky()
        inputs = spikegen.rate(x, num_steps=STEPS) if args.encoding == "rate" else x.expand(STEPS, *x.shape)
        spikes, membranes = [], []
        for now in inputs:
            spk1, mem1 = self.lif1(self.fc1(now), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            spikes.append(spk2)
            membranes.append(mem2)
        return torch.stack(spikes), torch.stack(membranes)


net = Net()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.999))
for epoch in range(10):
    net.train()
    for data, targets in loader:
        _, membranes = net(data)
        loss = sum(loss_fn(membrane, targets) for membrane in membranes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
net.eval()
with torch.no_grad():
    spikes, _ = net(x_test)
print("metric accuracy", (spikes.sum(0).argmax(1) == y_test).float().mean().item())
