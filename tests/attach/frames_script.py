"""A script that prints everything in which frames of a tool would show. Run bare and recorded, it prints the same."""

from __future__ import annotations

import inspect
import io
import json
import logging
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

OUT: dict[str, Any] = {}


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("forward")


class RaisesBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        OUT["stack in backward"] = stack()
        raise RuntimeError("backward")


class Rows(Dataset[Tensor]):
    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        if index == self.bad:
            OUT.setdefault("stack in dataset", stack())
            raise KeyError(index)
        return torch.ones(3)


class BadFile(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError("no space")


class BadMode(nn.Module):
    def train(self, mode: bool = True) -> BadMode:
        raise RuntimeError("mode")


def stack() -> list[str]:
    return [f"{frame.function} {frame.code_context}" for frame in inspect.stack()[1:]]


def nested(depth: int) -> nn.Module:
    module: nn.Module = nn.Linear(3, 3)
    for _ in range(depth):
        module = nn.Sequential(module)
    return module


def deepest(works: Callable[[int], Any], low: int, high: int) -> int:
    """The largest number for which no recursion limit is reached."""
    while high - low > 1:
        middle = (low + high) // 2
        try:
            works(middle)
            low = middle
        except RecursionError:
            high = middle
    return low


def recurse(depth: int) -> int:
    return 0 if depth == 0 else 1 + recurse(depth - 1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.mse_loss(model(torch.ones(2, 3)), torch.zeros(2, 3)).backward()
    optimizer.step()


def generate() -> Iterator[int]:
    with torch.no_grad():
        yield 1
        raise RuntimeError("generator")


def unpickle() -> None:
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("with a cause") from error


def failures(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Callable[[], Any]]:
    x, y = torch.ones(2, 3), torch.tensor([9, 9])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    schedule.get_lr = unpickle  # type: ignore[method-assign, assignment]
    return {
        "forward": lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 3)), Raises())(x),
        "shape": lambda: model(torch.ones(2, 99)),
        "loss": lambda: F.cross_entropy(model(x), y),
        "loss module": lambda: nn.CrossEntropyLoss()(model(x), y),
        "backward": lambda: RaisesBackward.apply(model(x)).sum().backward(),  # type: ignore[no-untyped-call]
        "backward twice": lambda: [loss.backward() for loss in 2 * [model(x).square().sum()]],
        "loader": lambda: list(DataLoader(Rows(2), batch_size=2)),
        "collate": lambda: list(DataLoader(Rows(9), batch_size=2, collate_fn=unpickle)),  # type: ignore[arg-type]
        "closure": lambda: optimizer.step(unpickle),  # type: ignore[arg-type]
        "optimizer": lambda: torch.optim.SGD([], lr=0.1),
        "clip": lambda: nn.utils.clip_grad_norm_(3, 1.0),  # type: ignore[arg-type]
        "zero_grad": lambda: torch.optim.Optimizer.zero_grad(3),  # type: ignore[arg-type]
        "train": lambda: model.train("yes"),  # type: ignore[arg-type]
        "own train": lambda: nn.Sequential(BadMode()).eval(),
        "state": lambda: model.load_state_dict({"a": x}),
        "optimizer state": lambda: optimizer.load_state_dict({"param_groups": []}),
        "load": lambda: torch.load("/nowhere"),
        "save": lambda: torch.save(x, "/nowhere/file"),
        "scheduler": schedule.step,
        "print": lambda: print("x", file=BadFile()),
        "generator": lambda: list(generate()),
        "grad": lambda: torch.autograd.grad(x.sum(), x),
        "item": lambda: no_grad_item(x),
        "init": lambda: nn.init.normal_(3),  # type: ignore[arg-type]
        "autocast": lambda: torch.autocast("nothing"),
        "script": lambda: torch.jit.script(3, 4, 5, 6, 7, 8),  # type: ignore[call-arg]
    }


def no_grad_item(x: Tensor) -> float:
    with torch.no_grad():
        return x.item()


def observe(model: nn.Module, optimizer: torch.optim.Optimizer, when: str) -> None:
    for name, fail in failures(model, optimizer).items():
        try:
            fail()
        except Exception:
            OUT[f"{name} {when}"] = traceback.format_exc()
    logger, stream = logging.getLogger("script"), io.StringIO()
    logger.addHandler(logging.StreamHandler(stream))
    logger.propagate = False
    try:
        Raises()(1)
    except RuntimeError:
        logger.exception("logged")
    OUT[f"logged {when}"] = stream.getvalue()
    caught: list[str] = []
    threading.excepthook = lambda told: caught.extend(traceback.format_exception(told.exc_value))
    thread = threading.Thread(target=lambda: model(torch.ones(2, 99)))
    thread.start()
    thread.join()
    OUT[f"thread {when}"] = caught
    OUT[f"modules deep {when}"] = deepest(lambda depth: nested(depth)(torch.ones(1, 3)).sum().backward(), 50, 500)
    OUT[f"modes deep {when}"] = deepest(lambda depth: nested(depth).eval(), 50, 1500)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    observe(model, optimizer, "before training")
    for number in range(40):
        step(model, optimizer)
        if number in (1, 35):
            observe(model, optimizer, f"after {number} steps")
    for function in (nn.utils.clip_grad_norm_, torch.jit.script, F.cross_entropy, torch.autograd.backward, torch.save):
        OUT[f"{function.__name__} comes back"] = pickle.loads(pickle.dumps(function)) is function
        OUT[f"{function.__name__} source"] = inspect.getsource(function)
        OUT[f"{function.__name__} signature"] = str(inspect.signature(function))


if __name__ == "__main__":
    main()
    OUT["plain recursion"] = deepest(recurse, 100, 5000)
    OUT["stack at the top"] = stack()
    OUT["limit"] = sys.getrecursionlimit()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.warn("who", stacklevel=2)
        OUT["warning of the caller"] = told[0].filename
    print(json.dumps(OUT))
