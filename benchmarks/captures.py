"""What a capture of a model of GPT-2's size costs: how long the training waits, and how long until it is on disk.

    python benchmarks/captures.py [--device cpu|cuda] [--rounds 5] [--folder DIR] [--write]

A model with the shapes of GPT-2 (124 million parameters) trains with AdamW on tiny batches. In every round the same
process copies all of its state once and writes these bytes into a file, takes a capture (`doctor.capture()`) and trains
on beside it; the disk is let come to rest in between. On a GPU also: what the rolling copy of the state takes
(attach/rolling.py). With --write the section goes into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchdoctor
from results import commit, marks, write
from torchdoctor.attach import session as sessions
from torchdoctor.attach.snapshots import Snapshot

WORDS, WIDTH, LAYERS, LENGTH = 50257, 768, 12, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.first(x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(1024, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.blocks(x) @ self.words.weight.T


def wait(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(device: str, rounds: int, folder: Path) -> dict[str, list[float]]:
    torch.manual_seed(0)
    model = Words().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> float:
        begun = wait(device)
        ids = torch.randint(0, WORDS, (1, LENGTH + 1), device=device)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return wait(device) - begun

    found: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)

    with torchdoctor.watch(out=folder, quiet=True, keep_captures=1000) as doctor:
        for _ in range(3):
            step()
        running = sessions.current()
        assert running is not None
        for number in range(rounds):
            note("a step", step())
            begun = wait(device)
            held = [t.detach().cpu() if device == "cuda" else t.detach().clone() for t in state(model, optimizer)]
            note("one copy of the state, by hand", wait(device) - begun)
            note("size", float(sum(t.numel() * t.element_size() for t in held)))
            note("its bytes into a file, by hand", plainly_written(held, folder))
            del held
            clock, begun = time.time(), wait(device)
            path = doctor.capture(f"round{number}")
            note("the training waits", wait(device) - begun)
            beside = [step()]
            while path is not None and not path.exists() and time.perf_counter() - begun < 120:
                beside.append(step())
            note("a step beside the writing", statistics.median(beside))
            if path is not None:
                note("until it is on disk", path.stat().st_ctime - clock)
                shutil.rmtree(path, ignore_errors=True)
                os.sync()
            if device == "cuda":
                snapshot = Snapshot(8 << 30, in_host=True)
                for name in ("the rolling copy, first", "the rolling copy, renewed"):
                    begun = wait(device)
                    snapshot.take(model.parameters(), [optimizer], 0)
                    note(name, wait(device) - begun)
    return found


def plainly_written(tensors: list[torch.Tensor], folder: Path) -> float:
    begun = time.perf_counter()
    with (folder / "plain").open("wb", buffering=0) as file:
        for tensor in tensors:
            view = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
            while view:
                view = view[file.write(view) :]
    seconds = time.perf_counter() - begun
    (folder / "plain").unlink()
    os.sync()
    return seconds


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    inside = [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
    return [*model.parameters(), *inside]


def section(found: dict[str, list[float]], device: str, arguments: str) -> str:
    size = found.pop("size")[0]
    where = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {os.cpu_count()} cores"
    rows = [
        f"| {name} | {statistics.median(times):.3f} | {min(times):.3f} | {max(times):.3f} |"
        for name, times in found.items()
    ]
    begin, end = marks(f"captures {device}")
    return "\n".join(
        [
            begin,
            f"## A capture of a model of GPT-2's size ({device})",
            "",
            f"`python benchmarks/captures.py {arguments}` at {commit()}: {size / 1e9:.2f} GB of weights and AdamW. "
            f"Seconds over {len(next(iter(found.values())))} rounds; torch {torch.__version__}, {where}.",
            "",
            "| | median | least | most |",
            "|---|---|---|---|",
            *rows,
            end,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where captures go; a temporary folder by default")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found: dict[str, Any] = measure(given.device, given.rounds, Path(folder))
    text = section(found, given.device, f"--device {given.device} --rounds {given.rounds} --write")
    print(text)
    if given.write:
        write(text, marks(f"captures {given.device}"))


if __name__ == "__main__":
    main()
