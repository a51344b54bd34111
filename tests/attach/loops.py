"""Small training loops in many styles. Each takes a number of steps and returns what it ended with, bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

Result = tuple[str, str, str]


def fingerprint(losses: list[float], *modules: nn.Module) -> Result:
    """Losses, weights with buffers, and the random state, as hashes."""
    weights = hashlib.sha256()
    for module in modules:
        for tensor in module.state_dict().values():
            weights.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    return hashlib.sha256(repr(losses).encode()).hexdigest(), weights.hexdigest(), state


def batches(steps: int, workers: int = 0) -> DataLoader[Any]:
    features = torch.randn(steps * 8, 12)
    return DataLoader(
        TensorDataset(features, features[:, :4].argmax(1)), batch_size=8, shuffle=True, num_workers=workers
    )


def dropout_mlp(steps: int) -> Result:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for x, y in batches(steps):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return fingerprint(losses, model)


class SmallConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x.view(-1, 1, 3, 4))), inplace=True)
        return self.head(x.flatten(1))


def convolution_with_workers(steps: int) -> Result:
    torch.manual_seed(2)
    model = SmallConvolution()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50)
    losses = []
    for i, (x, y) in enumerate(batches(steps, workers=1)):
        model.train()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if i % 25 == 24:
            model.eval()
            with torch.no_grad():
                losses.append(F.cross_entropy(model(x), y).item())
    return fingerprint(losses, model)


def transformer(steps: int) -> Result:
    torch.manual_seed(3)
    embed = nn.Embedding(20, 16)
    body = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), 2, enable_nested_tensor=False
    )
    head = nn.Linear(16, 20)
    model = nn.Sequential(embed, body, head)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(0, 20, (4, 9))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 20), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return fingerprint(losses, model)


def mixed_precision(steps: int) -> Result:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=20)
    losses = []
    for _ in range(steps):
        x = torch.randn(8, 12)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), x[:, :1].sin())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return fingerprint(losses, model)


def accumulation(steps: int) -> Result:
    torch.manual_seed(5)
    model = nn.LSTM(6, 10, 2, dropout=0.2, batch_first=True)
    head = nn.Linear(10, 1)
    optimizer = torch.optim.RMSprop([*model.parameters(), *head.parameters()], 1e-3)
    losses = []
    for i in range(steps * 2):
        x = torch.randn(4, 5, 6)
        loss = ((head(model(x)[0][:, -1]) - x.sum((1, 2)).unsqueeze(1)) ** 2).mean() / 2
        loss.backward()
        losses.append(loss.item())
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    return fingerprint(losses, model, head)


def lbfgs(steps: int) -> Result:
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(40, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=3)
    losses = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True).sin())
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(float(optimizer.step(closure)))
    return fingerprint(losses, model)


def gan(steps: int) -> Result:
    torch.manual_seed(7)
    generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(True), nn.Linear(16, 2))
    critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    first = torch.optim.Adam(critic.parameters(), 1e-3)
    second = torch.optim.Adam(generator.parameters(), 1e-3)
    losses = []
    for _ in range(steps):
        with torch.no_grad():
            fake = generator(torch.randn(8, 4))
        first.zero_grad()
        real = F.binary_cross_entropy_with_logits(critic(torch.randn(8, 2) + 2), torch.ones(8, 1))
        loss = real + F.binary_cross_entropy_with_logits(critic(fake), torch.zeros(8, 1))
        loss.backward()
        first.step()
        second.zero_grad()
        other = F.binary_cross_entropy_with_logits(critic(generator(torch.randn(8, 4))), torch.ones(8, 1))
        other.backward()
        second.step()
        losses += [loss.item(), other.item()]
    return fingerprint(losses, generator, critic)


def compiled(steps: int) -> Result:
    torch.manual_seed(8)
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    fast = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        x = torch.randn(8, 12)
        loss = F.cross_entropy(fast(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return fingerprint(losses, model)


def functional_transforms(steps: int) -> Result:
    """torch.func inside the loop: losses of the patched functions on wrapped tensors."""
    torch.manual_seed(9)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(5, 6), torch.randint(0, 3, (5,))
        parameters = dict(model.named_parameters())

        def loss_of(p: dict[str, Tensor], a: Tensor, b: Tensor) -> Tensor:
            out = torch.func.functional_call(model, p, (a.unsqueeze(0),))
            return F.cross_entropy(out, b.unsqueeze(0))

        per_sample = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        for name, parameter in model.named_parameters():
            parameter.grad = per_sample[name].mean(0).detach()
        optimizer.step()
        losses.append(F.cross_entropy(model(x), y).item())
    return fingerprint(losses, model)


def checkpointed(steps: int) -> Result:
    """Activations are thrown away and worked out again in backward: whoever reads them out of turn runs the layers."""
    torch.manual_seed(1)
    body = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 24))
    head = nn.Linear(24, 4)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-2)
    losses = []
    for x, y in batches(steps):
        loss = F.cross_entropy(head(checkpoint(body, x, use_reentrant=False)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return fingerprint(losses, body, head)


LOOPS: dict[str, Callable[[int], Result]] = {
    f.__name__: f
    for f in (
        dropout_mlp,
        convolution_with_workers,
        transformer,
        mixed_precision,
        accumulation,
        lbfgs,
        gan,
        compiled,
        functional_transforms,
        checkpointed,
    )
}
