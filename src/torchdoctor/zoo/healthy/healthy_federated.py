"""Federated averaging: clients begin every round from the server's weights and are averaged after it."""

import copy
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLIENTS, ROUNDS = 3, 5


def main():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 8 - 1, torch.tensor(y)
    order = torch.randperm(len(x))
    parts = order[:1500].chunk(CLIENTS)
    test = order[1500:]
    server = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    client = copy.deepcopy(server)
    for round_number in range(ROUNDS):
        states = []
        for rows in parts:
            client.load_state_dict(server.state_dict())
            optimizer = torch.optim.SGD(client.parameters(), lr=0.05, momentum=0.9)
            for xb, yb in DataLoader(TensorDataset(x[rows], y[rows]), batch_size=50, shuffle=True):
                loss = nn.functional.cross_entropy(client(xb), yb)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            states.append(copy.deepcopy(client.state_dict()))
        mean = {name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]}
        server.load_state_dict(mean)
        with torch.no_grad():
            accuracy = (server(x[test]).argmax(1) == y[test]).float().mean().item()
        print(f"round {round_number}: loss {loss.item():.3f}, accuracy {accuracy:.3f}")


main()
