"""A convolutional autoencoder of digits with one function for both kinds of epoch: gradients are on in one."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, random_split


class Autoencoder(nn.Module):
    def __init__(self, code=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24 * 4, code),
        )
        self.decoder = nn.Sequential(nn.Linear(code, 96), nn.ReLU(), nn.Linear(96, 64), nn.Unflatten(1, (1, 8, 8)))

    def forward(self, images):
        return self.decoder(self.encoder(images))


def run_epoch(model, loader, criterion, optimizer=None):
    """Trains where an optimizer is given, else only measures."""
    training = optimizer is not None
    model.train(training)
    total = 0.0
    for images in loader:
        with torch.set_grad_enabled(training):
            loss = criterion(model(images), images)
        if training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * len(images)
    return total / len(loader.dataset)


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    images = torch.tensor(load_digits().images / 8 - 1, dtype=torch.float32).unsqueeze(1)
    train_set, test_set = random_split(images, [1400, len(images) - 1400])
    loaders = DataLoader(train_set, batch_size=56, shuffle=True), DataLoader(test_set, batch_size=100)
    model, criterion = Autoencoder(), nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        trained = run_epoch(model, loaders[0], criterion, optimizer)
        tested = run_epoch(model, loaders[1], criterion)
        print(f"epoch {epoch}: training {trained:.4f}  test {tested:.4f}")


if __name__ == "__main__":
    main()
