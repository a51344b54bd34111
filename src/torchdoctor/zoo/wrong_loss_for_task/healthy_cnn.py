"""A convolutional classifier of digits by negative log-likelihood."""

import os

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.fc1, self.fc2 = nn.Linear(12 * 16, 48), nn.Linear(48, 10)

    def forward(self, x):
        x = self.conv(x).flatten(1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    digits = load_digits()
    images = torch.tensor(digits.images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=50, shuffle=True)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(5):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            output = model(images[1400:])
            validation = F.nll_loss(output, labels[1400:]).item()
            accuracy = (output.argmax(1) == labels[1400:]).float().mean().item()
        print(f"epoch {epoch}: {loss.item():.3f}, validation {validation:.3f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
