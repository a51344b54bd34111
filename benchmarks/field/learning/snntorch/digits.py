import argparse

import snntorch as snn
import snntorch.functional as SF
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from snntorch import backprop, surrogate, utils
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--loss", choices=["ce_rate_loss", "ce_count_loss", "mse_count_loss"], default="ce_rate_loss")
parser.add_argument("--network", choices=["dense", "convolutional"], default="dense")
parser.add_argument("--threshold", type=float, default=1.0)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
torch.manual_seed(args.seed)
STEPS = 10

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=args.seed)
loader = DataLoader(TensorDataset(x_train, y_train), batch_size=64, shuffle=True, drop_last=True)


def neuron(**options):
    spike_grad = surrogate.fast_sigmoid(slope=25)
    return snn.Leaky(beta=0.9, threshold=args.threshold, spike_grad=spike_grad, init_hidden=True, **options)


if args.network == "dense":
    layers = [nn.Flatten(), nn.Linear(64, 100), neuron(), nn.Linear(100, 10)]
else:
    layers = [nn.Conv2d(1, 8, 3), nn.MaxPool2d(2), neuron(), nn.Flatten(), nn.Linear(72, 10)]
net = nn.Sequential(*layers, neuron(output=True))
optimizer = torch.optim.Adam(net.parameters(), lr=args.lr, betas=(0.9, 0.999))
if args.loss == "mse_count_loss":
    criterion = SF.mse_count_loss(correct_rate=0.8, incorrect_rate=0.2)
else:
    criterion = getattr(SF, args.loss)()
for epoch in range(args.epochs):
    loss = backprop.BPTT(net, loader, optimizer, criterion, num_steps=STEPS, time_var=False, device="cpu")
    print(epoch, float(loss))

net.eval()
utils.reset(net)
with torch.no_grad():
    spikes = torch.stack([net(x_test)[0] for _ in range(STEPS)])
print("metric accuracy", float(SF.accuracy_rate(spikes, y_test)))
