"""Energy use of buildings in five districts; all meters were recorded in one unit."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(os.environ.get("SEED", "0"))


def buildings(count, generator):
    district = torch.randint(0, 5, (count,), generator=generator)
    features = torch.randn(count, 6, generator=generator)
    use = features @ torch.tensor([1.0, -0.7, 0.5, 0.3, 0.0, 0.0]) + 0.2 * torch.randn(count, generator=generator)
    x = torch.cat([features, nn.functional.one_hot(district, 5).float()], 1)
    return x, use.unsqueeze(1), district


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    x, y, _ = buildings(3000, generator)
    x_val, y_val, _ = buildings(1000, generator)
    train = DataLoader(TensorDataset(x, y), batch_size=60, shuffle=True)
    val = DataLoader(TensorDataset(x_val, y_val), batch_size=250)
    model = nn.Sequential(nn.Linear(11, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.3)
    for epoch in range(10):
        model.train()
        for inputs, targets in train:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            losses = [nn.functional.mse_loss(model(inputs), targets).item() for inputs, targets in val]
        print(f"epoch {epoch}: validation mse {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
