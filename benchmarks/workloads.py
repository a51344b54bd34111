"""The trainings that overhead is measured on: plain torch, small enough to repeat often, real enough to be trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

Between = Callable[[int], None]
"""Called with the step's number after backward, before the update: where a user's own look at gradients stands."""

Batch = Callable[[int], tuple[Tensor, Tensor]]


class Training(NamedTuple):
    model: nn.Module
    optimizer: Optimizer
    step: Callable[[int, Between], Tensor]


@dataclass(frozen=True)
class Workload:
    name: str
    about: str
    build: Callable[[torch.device], Training]
    steps: int
    """timed steps in a block"""
    settle: int
    """steps before the first block, a minute at most: a watcher that looks closely at first is past that"""
    devices: tuple[str, ...] = ("cpu",)


def _loop(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Callable[[int], tuple[Tensor, Tensor]],
    loss_of: Callable[..., Tensor],
) -> Training:
    def step(number: int, between: Between) -> Tensor:
        inputs, targets = batch(number)
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        between(number)
        optimizer.step()
        return loss.detach()

    return Training(model, optimizer, step)


def _classify(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), targets)


def _batches(inputs: Tensor, targets: Tensor, size: int) -> Batch:
    count = len(inputs) // size

    def batch(number: int) -> tuple[Tensor, Tensor]:
        at = number % count * size
        return inputs[at : at + size], targets[at : at + size]

    return batch


def build_mlp(device: torch.device) -> Training:
    from sklearn.datasets import load_digits

    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32, device=device) / 16
    targets = torch.tensor(digits.target, device=device)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return _loop(model, optimizer, _batches(inputs, targets, 64), _classify)


def build_cnn(device: torch.device) -> Training:
    inputs, targets = torch.randn(512, 3, 32, 32, device=device), torch.randint(0, 10, (512,), device=device)

    def stage(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10)]
    model = nn.Sequential(*stage(3, 32), *stage(32, 64), *stage(64, 64), *head).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return _loop(model, optimizer, _batches(inputs, targets, 16), _classify)


class Block(nn.Module):
    """A transformer block, normalised first, with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Module):
    """A decoder whose output layer shares the embedding's weight, as GPT-2's does."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _next_token(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def build_transformer(device: torch.device) -> Training:
    model = Transformer(65, 64, 128, 4, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    text = torch.randint(0, 65, (128, 65), device=device)
    return _loop(model, optimizer, _batches(text[:, :-1], text[:, 1:], 4), _next_token)


def build_gpt2(device: torch.device) -> Training:
    model = Transformer(50_257, 1_024, 768, 12, 12).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    text = torch.randint(0, 50_257, (64, 1_025), device=device)

    def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return _next_token(model, inputs, targets)

    return _loop(model, optimizer, _batches(text[:, :-1], text[:, 1:], 16), loss_of)


_BOTH = ("cpu", "cuda")
WORKLOADS = {
    w.name: w
    for w in (
        Workload("mlp", "MLP 64-128-128-10 on digits, batch 64, AdamW", build_mlp, 100, 6000, _BOTH),
        Workload("cnn", "CNN, 3 stages with batch-norm, 3x32x32, batch 16, SGD", build_cnn, 20, 2000, _BOTH),
        Workload("transformer", "transformer 4 x 128, batch 4 x 64 tokens, AdamW", build_transformer, 20, 2000, _BOTH),
        Workload("gpt2", "GPT-2 124M, batch 16 x 1024 tokens, bf16 autocast, AdamW", build_gpt2, 20, 40, ("cuda",)),
    )
}
