"""How close find_lr, torch-lr-finder and Lightning's tuner come to the best learning rate of a full grid.

    python benchmarks/learning_rates.py [--seeds reported|tuning] [--pairs TEXT] [--jobs N] [--write]

Twenty-seven pairs of a small model and an optimizer. For each, a grid of three rates a decade is trained for 400
updates with three seeds; the best rate is that with the lowest validation loss (mean of its logarithm over seeds and
over five looks at the end). Each tool then gets the same fresh models and data with the same seeds, as its own
documentation calls it. Rules and constants of torchdoctor were chosen on the tuning seeds and six of the models; the
figures that are written are of seeds, and for a third of the pairs of models, that nothing was chosen by.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import math
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor, nn

import torchdoctor
from learning_tasks import BATCH, OPTIMIZERS, TASKS, UNSEEN, Task
from results import commit, marks, progress, write

SEEDS = {"tuning": (0, 1, 2), "reported": (100, 101, 102)}
RATES = [float(rate) for rate in 10 ** np.arange(-4, 1.01, 1 / 3)]
UPDATES = 400
LOOKS = {round(UPDATES * share) for share in (0.8, 0.85, 0.9, 0.95, 1.0)}
HOPELESS = 1e3
"""Times the first loss: such a training is given up."""
PAIRS = [
    *((model, kind) for model in TASKS for kind in ("SGD", "momentum")),
    *(("MLP", "Adam"), ("LSTM", "AdamW"), ("regression", "Adam")),
    *(("CNN", "AdamW"), ("transformer", "AdamW"), ("autoencoder", "Adam")),
    *(("GRU", "AdamW"), ("residual", "AdamW"), ("multi-label", "Adam")),
]


def train(task: Task, kind: str, rate: float, seed: int) -> float:
    """The logarithm of its validation loss; infinite where it diverges."""
    torch.manual_seed(seed)
    model = task.model()
    loader, held = task.loaders(seed)
    inputs, targets = loader.dataset.tensors
    optimizer = OPTIMIZERS[kind](model.parameters(), rate)
    seen: list[float] = []
    first = math.nan
    for update, chosen in zip(range(1, UPDATES + 1), batches(len(inputs), seed), strict=False):
        loss = task.loss(model(inputs[chosen]), targets[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update == 1:
            first = loss.item()
        elif not loss.item() < HOPELESS * first:
            return math.inf
        if update in LOOKS:
            with torchdoctor.evaluating(model):
                seen.append(math.log(max(task.loss(model(held[0]), held[1]).item(), 1e-12)))
    return statistics.fmean(seen) if all(map(math.isfinite, seen)) else math.inf


def batches(count: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=generator)[: count - count % BATCH].split(BATCH)


def by_torchdoctor(task: Task, kind: str, seed: int, **options: int) -> float | None:
    model, loader = fresh(task, seed)
    optimizer = OPTIMIZERS[kind](model.parameters(), 1e-3)
    return torchdoctor.find_lr(model, optimizer, loader, task.loss, progress=False, **options).recommended


def by_torch_lr_finder(task: Task, kind: str, seed: int) -> float | None:
    from matplotlib.figure import Figure
    from torch_lr_finder import LRFinder

    model, loader = fresh(task, seed)
    finder = LRFinder(model, OPTIMIZERS[kind](model.parameters(), 1e-7), task.loss, device="cpu")
    finder.range_test(loader, end_lr=10, num_iter=100)
    try:
        return float(finder.plot(ax=Figure().subplots(), suggest_lr=True)[1])
    except RuntimeError:  # too few points, as it says itself
        return None


def by_lightning(task: Task, kind: str, seed: int, **options: float) -> float | None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.tuner import Tuner

    class Module(LightningModule):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model, self.lr = model, 1e-3

        def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
            return task.loss(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return OPTIMIZERS[kind](self.parameters(), self.lr)

    model, loader = fresh(task, seed)
    silent = {f"enable_{part}": False for part in ("checkpointing", "progress_bar", "model_summary")}
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(accelerator="cpu", max_epochs=50, logger=False, default_root_dir=folder, **silent)
        found = Tuner(trainer).lr_find(Module(model), train_dataloaders=loader, update_attr=False, **options)
        return found.suggestion() if found is not None else None


def fresh(task: Task, seed: int) -> tuple[nn.Module, torch.utils.data.DataLoader]:
    torch.manual_seed(seed)
    return task.model(), task.loaders(seed)[0]


TOOLS: dict[str, Callable[[Task, str, int], float | None]] = {
    "torchdoctor": by_torchdoctor,
    "torchdoctor, seeds=1": lambda *of: by_torchdoctor(*of, seeds=1),
    "torch-lr-finder": by_torch_lr_finder,
    "Lightning": by_lightning,
    "Lightning, 1e-7 to 10": lambda *of: by_lightning(*of, min_lr=1e-7, max_lr=10.0),
}


@dataclass
class Pair:
    model: str
    kind: str
    losses: list[float]
    """mean logarithm of the validation loss at each rate of the grid"""
    found: dict[str, list[float | None]] = field(default_factory=dict)
    """by tool, seed by seed"""

    @property
    def best(self) -> float:
        return RATES[int(np.argmin(self.losses))]

    def distance(self, tool: str) -> float:
        """Decades to the best rate, the median over the seeds; infinite where most gave none."""
        return statistics.median(math.inf if r is None else abs(math.log10(r / self.best)) for r in self.found[tool])

    def loss(self, tool: str) -> float:
        """Validation loss at the rate found, over the best, the median over the seeds; between the grid's rates it is
        interpolated, beyond its ends it is that of the end."""
        places, lowest = np.log10(RATES), min(self.losses)
        known = np.minimum(self.losses, lowest + math.log(HOPELESS))
        logs = [math.inf if r is None else np.interp(math.log10(r), places, known) - lowest for r in self.found[tool]]
        return math.exp(statistics.median(logs))


def measure(seeds: tuple[int, ...], wanted: list[tuple[str, str]], jobs: int) -> list[Pair]:
    pairs = {}
    with progress() as bar, ProcessPoolExecutor(jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        work = bar.add_task("learning rates", total=len(wanted), now="")
        for done in as_completed([pool.submit(measure_pair, seeds, *pair) for pair in wanted]):
            pair = done.result()
            pairs[pair.model, pair.kind] = pair
            bar.update(work, advance=1, now=f"{pair.model}, {pair.kind}")
    return [pairs[pair] for pair in wanted]


def measure_pair(seeds: tuple[int, ...], model: str, kind: str) -> Pair:
    task = TASKS[model]
    pair = Pair(model, kind, [statistics.fmean(train(task, kind, rate, seed) for seed in seeds) for rate in RATES])
    with quiet():
        pair.found = {name: [tool(task, kind, seed) for seed in seeds] for name, tool in TOOLS.items()}
    return pair


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    for name in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    out, err = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with out, err, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def section(pairs: list[Pair], seeds: tuple[int, ...], arguments: str, seconds: float) -> str:
    begin, end = marks("learning rates")
    parts = {
        "all": pairs,
        "models not looked at": [p for p in pairs if p.model in UNSEEN],
        **{name: [p for p in pairs if p.kind.startswith(name)] for name in ("SGD", "momentum", "Adam")},
    }
    parts = {name: chosen for name, chosen in parts.items() if chosen}
    return "\n".join(
        [
            begin,
            "## The learning rate found, and the best of a grid",
            "",
            f"`python benchmarks/learning_rates.py {arguments}` at {commit()}, seeds {', '.join(map(str, seeds))}, "
            f"{seconds / 60:.0f} min; torch {torch.__version__}, torch-lr-finder {version('torch-lr-finder')}, "
            f"Lightning {version('lightning')}, {platform.machine()}, {torch.get_num_threads()} thread. The best rate "
            f"of a pair has the lowest validation loss after {UPDATES} updates with a constant rate, of {len(RATES)} "
            f"between {RATES[0]:g} and {RATES[-1]:g}. Distances are in decades, each the median over the seeds.",
            "",
            "Median distance over the pairs (its mean in brackets), and the validation loss there over the best one:",
            "",
            f"| tool | {' | '.join(f'{name} ({len(p)})' for name, p in parts.items())} | loss, all | closer or equal |",
            f"|---|{'---|' * (len(parts) + 2)}",
            *(_summary(tool, parts) for tool in TOOLS),
            "",
            "The last column counts the pairs where torchdoctor, as it comes, is at least as close as that tool.",
            "",
            f"| model | optimizer | best | {' | '.join(TOOLS)} |",
            f"|---|---|---|{'---|' * len(TOOLS)}",
            *(_row(pair) for pair in pairs),
            "",
            "Rates are the median of the seeds, with the distance in brackets.",
            end,
        ]
    )


def _summary(tool: str, parts: dict[str, list[Pair]]) -> str:
    cells = []
    for pairs in parts.values():
        distances = [p.distance(tool) for p in pairs]
        cells.append(f"{statistics.median(distances):.2f} ({statistics.fmean(distances):.2f})")
    pairs = parts["all"]
    cells.append(f"{statistics.median(p.loss(tool) for p in pairs):.2f}x")
    closer = sum(p.distance("torchdoctor") <= p.distance(tool) for p in pairs)
    cells.append("" if tool == "torchdoctor" else f"{closer} of {len(pairs)}")
    return f"| {tool} | {' | '.join(cells)} |"


def _row(pair: Pair) -> str:
    cells = []
    for tool in TOOLS:
        rates = [rate for rate in pair.found[tool] if rate is not None]
        cells.append(f"{statistics.median(rates):.2g} ({pair.distance(tool):.2f})" if rates else "none")
    edge = ", at the edge" if pair.best in (RATES[0], RATES[-1]) else ""
    return f"| {pair.model} | {pair.kind} | {pair.best:.2g}{edge} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", choices=SEEDS, default="reported")
    parser.add_argument("--jobs", type=int, default=1, help="pairs at a time, a thread each")
    parser.add_argument("--pairs", default="", help="only those whose 'model/optimizer' holds one of these, by commas")
    parser.add_argument("--write", action="store_true", help="into benchmarks/RESULTS.md")
    asked = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    torch.set_num_threads(1)
    chosen = [p for p in PAIRS if any(part in "/".join(p) for part in asked.pairs.split(","))]
    begun = time.perf_counter()
    pairs = measure(SEEDS[asked.seeds], chosen, asked.jobs)
    said = " ".join(f"--{k} {v}" for k, v in (("seeds", asked.seeds), ("pairs", asked.pairs)) if v)
    text = section(pairs, SEEDS[asked.seeds], said, time.perf_counter() - begun)
    print(text)
    if asked.write:
        write(text, marks("learning rates"))


if __name__ == "__main__":
    main()
