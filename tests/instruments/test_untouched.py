"""No trace is left: of a loss that is a module, of what modules and optimizers count, of where a loader stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Sampler, TensorDataset

import torchdoctor
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.state import Randomness, untouched

torch.manual_seed(0)
X, Y = torch.randn(96, 5), torch.randint(0, 3, (96,))
BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 96, 8)]


class Scaled(nn.Module):
    """A loss with a parameter, a buffer, a counter and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(()))
        self.calls, self.seen = 0, []

    def forward(self, outputs: Tensor, target: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(outputs * self.c, target)
        self.mean += 0.1 * (loss.detach() - self.mean)
        self.calls += 1
        self.seen.append(loss.item())
        return loss


USES: dict[str, Callable[..., Any]] = {
    "suggest_clipping": lambda m, o, f: torchdoctor.suggest_clipping(m, o, BATCHES, f, steps=20, progress=False),
    "find_lr": lambda m, o, f: torchdoctor.find_lr(m, o, BATCHES, f, steps=20, seeds=1, progress=False),
    "overfit_batch": lambda m, o, f: torchdoctor.overfit_batch(m, BATCHES, f, optimizer=o, steps=20, progress=False),
    "gradient_noise_scale": lambda m, o, f: torchdoctor.gradient_noise_scale(m, BATCHES, f, large=2, progress=False),
    "sharpness": lambda m, o, f: torchdoctor.sharpness(m, BATCHES, f, directions=2, iterations=2, progress=False),
    "landscape": lambda m, o, f: torchdoctor.landscape(m, BATCHES, f, points=3, progress=False),
    "evaluate": lambda m, o, f: torchdoctor.evaluate(m, BATCHES, f, progress=False),
}


@pytest.mark.parametrize("as_method", [False, True])
@pytest.mark.parametrize("name", USES)
def test_a_loss_that_is_a_module_is_put_back(name: str, as_method: bool) -> None:
    model, loss = nn.Linear(5, 3), Scaled()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.1)
    USES[name](model, optimizer, loss.forward if as_method else loss)
    assert loss.c.item() == 1 and loss.c.grad is None
    assert loss.mean.item() == 0 and loss.calls == 0 and loss.seen == []


def test_gradients_of_the_loss_do_not_add_up_while_a_batch_is_memorised() -> None:
    model, loss = nn.Linear(5, 3), Scaled()
    seen: list[float] = []
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], 0.0)
    optimizer.register_step_pre_hook(lambda *_: seen.append(float(loss.c.grad)))
    torchdoctor.overfit_batch(model, BATCHES[0], loss, optimizer=optimizer, steps=5, progress=False)
    assert seen[:5] == pytest.approx([seen[0]] * 5)


class Counting(nn.Module):
    """Changes in place what it holds beside parameters and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)
        self.seen, self.numbers = torch.zeros(()), np.zeros(2)
        self.losses: list[float] = [1.0]
        self.by_name: dict[str, Tensor] = {"a": torch.zeros(2)}
        self.caches = [torch.zeros(2), torch.zeros(2)]
        self.long = list(range(100))
        self.whole = torch.ones(1).expand(3)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.numbers[0] += 1
        self.losses.append(2.0)
        self.by_name["a"] += 1
        self.by_name["b"] = x
        self.caches[1] += 1
        self.long.append(1)
        self.state = getattr(self, "state", torch.zeros(())) + 1
        return self.inner(x)


def test_what_a_module_holds_in_plain_attributes_comes_back_with_what_was_in_it() -> None:
    model = Counting()
    held = model.seen, model.losses, model.by_name, model.by_name["a"], model.caches[1]
    with untouched(model):
        model(X)
        assert int(model.seen) == 1 and int(model.state) == 1
    assert all(a is b for a, b in zip(held, (model.seen, model.losses, model.by_name, model.by_name["a"],
                                             model.caches[1]), strict=True))  # fmt: skip
    assert int(model.seen) == 0 and model.numbers[0] == 0 and model.losses == [1.0] and list(model.by_name) == ["a"]
    assert not model.by_name["a"].any() and not model.caches[1].any() and len(model.long) == 100
    assert not hasattr(model, "state")


def test_a_cache_made_under_inference_mode_is_left_as_it_is() -> None:
    model = Counting()
    with torch.inference_mode():
        model.caches = [torch.ones(2)]
    with untouched(model):
        model.caches = [torch.zeros(2)]
    assert model.caches[0].all()


class Lookahead(Optimizer):
    """Drives another one, with weights and a counter of its own."""

    def __init__(self, base: Optimizer) -> None:
        super().__init__([p for g in base.param_groups for p in g["params"]], {"lr": base.defaults["lr"]})
        self.base, self.count = base, 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in base.param_groups]

    def step(self, closure: Any = None) -> None:
        self.base.step()
        self.count += 1
        self.state["all"] = self.count
        for weight in self.slow[0]:
            weight.add_(1.0)


def test_an_optimizer_in_an_optimizer_is_put_back() -> None:
    model = nn.Linear(5, 3)
    base = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = Lookahead(base)
    nn.functional.cross_entropy(model(X), Y).backward()
    optimizer.step()
    momentum = base.state[model.weight]["momentum_buffer"]
    kept, slow = momentum.clone(), optimizer.slow[0][0].clone()
    with untouched(model, optimizer):
        optimizer.step()
    assert base.state[model.weight]["momentum_buffer"] is momentum and torch.equal(momentum, kept)
    assert optimizer.count == 1 == optimizer.state["all"] and torch.equal(optimizer.slow[0][0], slow)


def fail_at_the_third(model: nn.Module, batch: Any) -> Tensor:
    fail_at_the_third.calls += 1  # type: ignore[attr-defined]
    if fail_at_the_third.calls > 3:  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@pytest.mark.parametrize("name", ["suggest_clipping", "find_lr", "overfit_batch"])
def test_a_scheduler_does_not_take_it_for_the_training(name: str) -> None:
    model = nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    USES[name](model, optimizer, nn.CrossEntropyLoss())
    fail_at_the_third.calls = 0  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        torchdoctor.find_lr(model, optimizer, BATCHES, step_fn=fail_at_the_third, paired=False, progress=False)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


class Going(Sampler[int]):
    """Goes on from where it was left."""

    def __init__(self) -> None:
        self.place, self.order, self.epoch = 0, np.arange(96), [0]

    def __iter__(self) -> Iterator[int]:
        self.epoch[0] += 1
        while self.place < 96:
            self.place += 1
            yield int(self.order[self.place - 1])
        self.place = 0
        np.random.shuffle(self.order)

    def __len__(self) -> int:
        return 96


class Stream:
    """A loader that is its own state, and says which."""

    def __init__(self) -> None:
        self.inner = nn.Identity()
        self.inner.place = 3

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.inner.place = (self.inner.place + 1) % len(BATCHES)
            yield BATCHES[self.inner.place]

    def state_dict(self) -> dict[str, int]:
        return {"place": self.inner.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.inner.place = state["place"]


@pytest.mark.parametrize("name", ["first_batches", "suggest_clipping"])
def test_a_loader_that_is_its_own_state_stands_where_it_stood(name: str) -> None:
    sampler, stream = Going(), Stream()
    sampler.place = 40
    for loader in (DataLoader(TensorDataset(X, Y), 8, sampler=sampler), stream):
        if name == "first_batches":
            first_batches(loader, 3)
        else:
            model = nn.Linear(5, 3)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            torchdoctor.suggest_clipping(model, optimizer, loader, nn.CrossEntropyLoss(), steps=30, progress=False)
    assert sampler.place == 40 and sampler.epoch == [0] and (sampler.order == np.arange(96)).all()
    assert stream.inner.place == 3


def test_the_data_of_a_loader_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    class Images(TensorDataset):
        def __init__(self) -> None:
            super().__init__(X, Y)
            self.images = torch.zeros(2_000_000, dtype=torch.uint8)

    cloned: list[int] = []
    clone = Tensor.clone
    monkeypatch.setattr(Tensor, "clone", lambda t, **options: cloned.append(t.numel()) or clone(t, **options))
    Randomness(DataLoader(Images(), 8))
    assert max(cloned, default=0) < 1_000_000
