"""A perceptron on digits with a weight decay that eats what it learns."""

import os

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))
GRADE = os.environ.get("GRADE", "medium")
DECAY = {"mild": 0.02, "medium": 0.1, "severe": 1.0}[GRADE]


def main():
    torch.manual_seed(SEED)
    x, y = load_digits(return_X_y=True)
    x_train, x_val, y_train, y_val = train_test_split(x / 8 - 1, y, test_size=0.25, random_state=SEED)
    train_set = TensorDataset(torch.tensor(x_train, dtype=torch.float32), torch.tensor(y_train))
    val_set = TensorDataset(torch.tensor(x_val, dtype=torch.float32), torch.tensor(y_val))
    train_loader, val_loader = DataLoader(train_set, batch_size=32, shuffle=True), DataLoader(val_set, batch_size=256)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=DECAY)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(10):
        model.train()
        for inputs, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        val_loss, right = 0.0, 0
        with torch.no_grad():
            for inputs, labels in val_loader:
                output = model(inputs)
                val_loss += criterion(output, labels).item() * len(labels)
                right += (output.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: {loss.item():.3f}, validation {val_loss / len(val_set):.3f}, {right / len(val_set):.3f}")


if __name__ == "__main__":
    main()
