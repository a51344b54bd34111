"""Small scripts that save and resume, in the styles that people write them, and a way to stop in their loops.

In every script `{parts}` is what is saved and `{loading}` what is loaded, so that a test can leave one out.
"""

from __future__ import annotations

import linecache
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome
from torchdoctor.checks.checkpoint_round_trip import perform
from torchdoctor.checks.script.checkpoints import find_checkpoints
from torchdoctor.checks.script.save_watch import SaveWatch
from torchdoctor.instruments.subject import Subject

BEGINNING = """
import argparse
import os
import random
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)


def build():
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--pretrained")
args = parser.parse_args([])
"""
PARTS = {
    "model": "model.state_dict()",
    "optimizer": "optimizer.state_dict()",
    "scheduler": "scheduler.state_dict()",
    "scaler": "scaler.state_dict()",
    "random": "torch.get_rng_state()",
    "epoch": "epoch",
}
MADE = """
model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
scaler = torch.amp.GradScaler("cpu")
"""
INLINE = (
    BEGINNING
    + MADE
    + """
start_epoch, best = 0, 1e9
if args.resume:
    if os.path.isfile(args.resume):
        print("loading", args.resume)
        checkpoint = torch.load(args.resume)
        start_epoch = checkpoint.get("epoch", 0) + 1
        {loading}
        print("loaded epoch", start_epoch)
    else:
        print("no checkpoint there")

for epoch in range(start_epoch, 10):
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    scheduler.step()
    state = {parts}
    torch.save(state, f"checkpoint_{epoch}.pt")
"""
)
CHECKPOINTING = """
import shutil
import torch


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


def load_checkpoint(path, model, optimizer=None, scheduler=None, scaler=None):
    if path is None:
        return 0
    checkpoint = torch.load(path, map_location="cpu")
    {loading}
    return checkpoint["epoch"]
"""
FUNCTIONS = (
    BEGINNING
    + """
import checkpointing


def train_epoch(loader, model, optimizer, scaler):
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()


def main():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    scaler = torch.amp.GradScaler("cpu")
    start = checkpointing.load_checkpoint(args.resume, model, {given})
    for epoch in range(start, 10):
        train_epoch(batches, model, optimizer, scaler)
        scheduler.step()
        is_best = epoch % 3 == 0
        checkpointing.save_checkpoint({parts}, is_best)


if __name__ == "__main__":
    main()
"""
)
METHODS = (
    BEGINNING
    + """
class Trainer:
    def __init__(self, config):
        self.model = build()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda e: 0.9 ** e)
        self.scaler = torch.amp.GradScaler("cpu")
        self.folder = Path("checkpoints")
        self.epoch = 0
        if config.resume is not None:
            self.load(config.resume)

    def save(self):
        model, optimizer, scheduler, scaler = self.model, self.optimizer, self.scheduler, self.scaler
        epoch = self.epoch
        self.folder.mkdir(exist_ok=True)
        torch.save({parts}, self.folder / "last.pt")

    def load(self, path):
        checkpoint = torch.load(path)
        model, optimizer, scheduler, scaler = self.model, self.optimizer, self.scheduler, self.scaler
        {loading}
        self.epoch = checkpoint["epoch"]

    def fit(self):
        while self.epoch < 10:
            self.run_epoch()
            self.epoch += 1
            self.scheduler.step()
            if self.epoch % 5 == 0:
                self.save()

    def run_epoch(self):
        self.model.train()
        for x, y in batches:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()


Trainer(args).fit()
"""
)
BEST = (
    BEGINNING
    + MADE
    + """
best = 1e9


def test(model):
    model.load_state_dict(torch.load("best.pt"))
    model.eval()
    return model(torch.randn(4, 6))


if args.pretrained:
    model.load_state_dict(torch.load(args.pretrained))
if args.evaluate:
    model.load_state_dict(torch.load(args.resume))
for epoch in range(10):
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    scheduler.step()
    if loss < best:
        best = loss.item()
        torch.save(model.state_dict(), "best.pt")
test(model)
"""
)


def parts(*lacks: str) -> str:
    return "{" + ", ".join(f'"{name}": {code}' for name, code in PARTS.items() if name not in lacks) + "}"


def loading(indent: int, *lacks: str) -> str:
    lines = [f'{n}.load_state_dict(checkpoint["{n}"])' for n in list(PARTS)[:4] if n not in lacks]
    lines += ['torch.set_rng_state(checkpoint["random"])'] if "random" not in lacks else []
    return f"\n{' ' * indent}".join(lines)


class StopHere(BaseException):
    """What was to be seen was seen."""


class Batches:
    """A loader for the scripts above; in its epoch of that number `ready(frames)` is called where it asks for one."""

    def __init__(self, ready: Callable[[list[FrameType]], None], epoch: int) -> None:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(8, 16, 6, generator=generator)
        self.held = [(a, a[:, :3].argmax(1)) for a in x]
        self._ready, self._left = ready, epoch

    def __iter__(self) -> Iterator[Any]:
        self._left -= 1
        for batch in self.held:
            if self._left < 0:
                frame, frames = sys._getframe(1), []
                while frame is not None:
                    frames.append(frame)
                    frame = frame.f_back  # type: ignore[assignment]
                self._ready(frames)
                raise StopHere
            yield batch


def outcome_of(folder: Path, script: str, epoch: int = 1, stepped: str | None = "epoch", **modules: str) -> Outcome:
    """Of the round trip, with the script standing in its loop in that epoch; those before have run."""
    (folder / "train.py").write_text(script)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    linecache.clearcache()
    watch, made = SaveWatch(), []

    def ready(frames: list[FrameType]) -> None:
        frames = [f for f in frames if f.f_code.co_filename.startswith(str(folder))]
        bench = _bench(frames, batches, stepped)
        bench.checkpoints = lambda: find_checkpoints(frames, watch, bench)
        with bench.experiment():
            made.append(perform(bench))

    batches = Batches(ready, epoch)
    save, path = torch.save, list(sys.path)
    watch.place(torch)
    sys.path.insert(0, str(folder))
    try:
        runpy.run_path(str(folder / "train.py"), {"batches": batches}, "__main__")
    except StopHere:
        pass
    finally:
        torch.save, sys.path[:] = save, path
        for name in modules:
            sys.modules.pop(name, None)
    return made[0]


def _bench(frames: list[FrameType], batches: Batches, stepped: str | None) -> Bench:
    held = [v for frame in frames for v in frame.f_locals.values()]
    held += [v for owner in held if hasattr(owner, "fit") for v in vars(owner).values()]

    def of(kind: Any) -> list[Any]:
        return list({id(v): v for v in held if isinstance(v, kind)}.values())

    return Bench(
        subject=Subject(of(nn.Module)[0], nn.functional.cross_entropy),
        train=batches.held,
        optimizers=of(Optimizer),
        schedulers=of(LRScheduler),
        scalers=of(torch.amp.GradScaler),
        step_of_schedule=stepped,
    )
