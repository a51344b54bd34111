"""A perceptron on noisy digits, validated after every epoch on all that was set aside."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = int(os.environ.get("SEED", "0"))


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x / 8 - 1, dtype=torch.float32)
    dataset = TensorDataset(x + 0.9 * torch.randn(x.shape), torch.tensor(y))
    train_set, val_set = random_split(dataset, [0.75, 0.25])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=256)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(12):
        model.train()
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
        model.eval()
        losses, right, seen = 0.0, 0, 0
        with torch.no_grad():
            for inputs, labels in val_loader:
                output = model(inputs)
                losses += criterion(output, labels).item() * len(labels)
                right += (output.argmax(1) == labels).sum().item()
                seen += len(labels)
        print(f"epoch {epoch}: validation {losses / seen:.3f}, accuracy {right / seen:.3f}")


if __name__ == "__main__":
    main()
