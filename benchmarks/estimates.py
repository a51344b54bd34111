"""How near the pre-flight's estimate of a run's time and memory comes to the run: four kinds of model, trained in full.

    python benchmarks/estimates.py [--only mlp,cnn] [--threads 1] [--rounds 1] [--clock wall|cpu] [--write]

Each estimate and each training is a process of its own, one after the other, on the same number of threads. The
estimate is the check `run-cost` alone. The training is a plain loop over the same loaders, with a validation after
every epoch; its time is that of the loop, its memory the highest resident size of its process. On a machine that others
use, whose load changes from one minute to the next, `--clock cpu` takes both by the processor's own time, and the
median over several rounds counts. With --write the table goes into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import results

MARKS = results.marks("estimates")
WITHIN = 0.25
"""What is promised."""
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Training:
    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    train: DataLoader[Any]
    validation: DataLoader[Any]
    optimizer: torch.optim.Optimizer
    epochs: int


def _loaders(data: Dataset[Any], held: Dataset[Any], batch: int, **options: Any) -> tuple[Any, Any]:
    return DataLoader(data, batch, shuffle=True, **options), DataLoader(held, batch)


def build_mlp() -> Training:
    x = torch.randn(24_000, 64)
    y = x[:, :10].argmax(1)
    sets = TensorDataset(x[:20_000], y[:20_000]), TensorDataset(x[20_000:], y[20_000:])
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return Training(model, F.cross_entropy, *_loaders(*sets, 64), torch.optim.AdamW(model.parameters()), 8)


class Augmented(Dataset[Any]):
    """Pictures that are turned and shifted as they are asked for."""

    def __init__(self, count: int) -> None:
        self.x, self.y = torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = self.x[index]
        x = x.flip(-1) if torch.rand(()) < 0.5 else x
        return F.pad(x, (2, 2, 2, 2)).roll(int(torch.randint(3, ())), -1)[:, 2:-2, 2:-2], self.y[index]


def build_cnn() -> Training:
    def stage(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    body = [*stage(3, 32), *stage(32, 64), *stage(64, 64), nn.Flatten(), nn.Linear(1024, 10)]
    model = nn.Sequential(*body)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return Training(model, F.cross_entropy, *_loaders(Augmented(1600), Augmented(320), 32), optimizer, 3)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(16, 128, 2, batch_first=True, dropout=0.1), nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


def build_lstm() -> Training:
    x = torch.randn(2400, 40, 16)
    y = x[:, -5:, :1].sum(1)
    sets = TensorDataset(x[:2000], y[:2000]), TensorDataset(x[2000:], y[2000:])
    model = Recurrent()
    return Training(model, F.mse_loss, *_loaders(*sets, 50), torch.optim.Adam(model.parameters()), 3)


class Decoder(nn.Module):
    def __init__(self, words: int = 2000, width: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, 4, 512, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.body(x, mask=mask, is_causal=True)).transpose(1, 2)


def build_transformer() -> Training:
    ids = torch.randint(0, 2000, (760, 65))
    x, y = ids[:, :-1], ids[:, 1:].clone()
    sets = TensorDataset(x[:640], y[:640]), TensorDataset(x[640:], y[640:])
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    return Training(model, F.cross_entropy, *_loaders(*sets, 16), optimizer, 2)


KINDS: dict[str, Callable[[], Training]] = {
    "mlp": build_mlp,
    "cnn": build_cnn,
    "lstm": build_lstm,
    "transformer": build_transformer,
}


def estimate(kind: str, clock: str) -> dict[str, float]:
    from torchdoctor.checks.cost import step_clock
    from torchdoctor.checks.preflight import check

    step_clock.perf_counter = CLOCKS[clock]  # type: ignore[assignment]
    t = KINDS[kind]()
    made = check(
        t.model,
        t.train,
        t.loss,
        val_loader=t.validation,
        optimizer=t.optimizer,
        epochs=t.epochs,
        only=["run-cost"],
        progress=False,
    )
    outcome = made.checked[0].outcome
    return {
        "seconds": outcome.figures["seconds_run"],
        "memory": outcome.figures["process_bytes"],
        "took": made.checked[0].seconds,
    }


def train(kind: str, clock: str) -> dict[str, float]:
    t, now = KINDS[kind](), CLOCKS[clock]
    begun = now()
    for _ in range(t.epochs):
        t.model.train()
        for x, y in t.train:
            t.optimizer.zero_grad()
            t.loss(t.model(x), y).backward()
            t.optimizer.step()
        t.model.eval()
        with torch.no_grad():
            _ = sum(float(t.loss(t.model(x), y)) for x, y in t.validation)
    seconds = now() - begun
    return {"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _in_process(task: str, kind: str, threads: int, clock: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--task", task, "--only", kind, "--threads", str(threads), "--clock", clock]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": str(threads)}, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(kinds: list[str], threads: int, rounds: int, clock: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    with results.progress() as bar:
        job = bar.add_task("estimates", total=2 * rounds * len(kinds), now="")
        for kind in kinds:
            seen: dict[str, list[float]] = {}
            for _ in range(rounds):
                for task in ("estimate", "train"):
                    made = _in_process(task, kind, threads, clock)
                    for name, value in made.items():
                        seen.setdefault(f"{task} {name}", []).append(value)
                    bar.update(job, advance=1, now=f"{kind}: {task} {made['seconds']:.1f} s")
            found[kind] = {name: statistics.median(values) for name, values in seen.items()}
    return found


def _told(found: dict[str, dict[str, float]], threads: int, rounds: int, clock: str) -> str:
    begin, end = MARKS
    lines = [
        begin,
        "## Estimates of time and memory before a run",
        "",
        f"`python benchmarks/estimates.py --rounds {rounds} --clock {clock} --write`, commit {results.commit()}, "
        f"{platform.machine()}, threads: {threads}; medians over the rounds, promised are {WITHIN:.0%}."
        + (" The machine was in use by others, so times are the processor's own." if clock == "cpu" else ""),
        "",
        "| training | time estimated | time taken | off by | memory estimated | memory taken | off by | check |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, f in found.items():
        cells = [kind]
        for what, unit, scale in (("seconds", "s", 1.0), ("memory", "MB", 1e6)):
            said, taken = f[f"estimate {what}"], f[f"train {what}"]
            cells += [f"{said / scale:.3g} {unit}", f"{taken / scale:.3g} {unit}", f"{said / taken - 1:+.0%}"]
        lines.append("| " + " | ".join([*cells, f"{f['estimate took']:.1f} s"]) + " |")
    return "\n".join([*lines, "", end])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--task", choices=("estimate", "train"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = options.only.split(",")
    if options.task:
        torch.manual_seed(0)
        torch.set_num_threads(options.threads)
        do = estimate if options.task == "estimate" else train
        print(json.dumps(do(kinds[0], options.clock)))
        return 0
    found = _measure(kinds, options.threads, options.rounds, options.clock)
    text = _told(found, options.threads, options.rounds, options.clock)
    print(text)
    if options.write:
        results.write(text, MARKS)
    off = [abs(f[f"estimate {w}"] / f[f"train {w}"] - 1) for f in found.values() for w in ("seconds", "memory")]
    return 0 if max(off) <= WITHIN else 1


if __name__ == "__main__":
    sys.exit(main())
