"""A convolutional autoencoder of digits; all scans were saved in the same range."""

import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = int(os.environ.get("SEED", "0"))


class Scans(Dataset):
    def __init__(self, images):
        self.images = torch.tensor(images / 16, dtype=torch.float32).unsqueeze(1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(12, 16, 3, stride=2, padding=1), nn.GELU()
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(16, 12, 4, stride=2, padding=1), nn.GELU(), nn.ConvTranspose2d(12, 1, 4, 2, padding=1)
        )

    def forward(self, images):
        return self.decoder(self.encoder(images))


def main():
    torch.manual_seed(SEED)
    images = load_digits().images
    train_loader = DataLoader(Scans(images[:1500]), batch_size=30, shuffle=True)
    val_loader = DataLoader(Scans(images[1500:]), batch_size=100)
    model = Autoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(6):
        model.train()
        for batch in train_loader:
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val_loss = sum(nn.functional.mse_loss(model(batch), batch).item() for batch in val_loader) / len(val_loader)
        print(f"epoch {epoch}: {loss.item():.4f} {val_loss:.4f}")


if __name__ == "__main__":
    main()
