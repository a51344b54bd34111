"""Steps of a loop that has no loader, listened to and done again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchdoctor.probes.batches import batch_tensors
from torchdoctor.takeover.taping import Recorder, Tapes

X, Y = torch.randn(96, 6, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 3


def network(out: int = 3) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, out))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(4, 6)


def rows(step: int) -> Tensor:
    return torch.arange(step * 16, step * 16 + 16) % len(X)


def classes(model: nn.Module, step: int) -> Tensor:
    return F.cross_entropy(model(X[rows(step)]), Y[rows(step)])


def by_hand(model: nn.Module, step: int) -> Tensor:
    wanted = F.one_hot(Y[rows(step)], 3).float()
    return ((model(X[rows(step)]) - wanted) ** 2).mean()


def penalised(model: nn.Module, step: int) -> Tensor:
    loss = classes(model, step)
    loss += 1e-3 * sum(p.square().sum() for p in model.parameters())
    return loss


def noisy(model: nn.Module, step: int) -> Tensor:
    given = X[rows(step)]
    noise = torch.randn_like(given)
    return F.mse_loss(model(given + noise)[:, :3], noise[:, :3])


def half(model: nn.Module, step: int) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(X[rows(step)]).float(), Y[rows(step)])


def in_parts(model: Pair, step: int) -> Tensor:
    given = X[rows(step)]
    code = torch.tanh(model.encoder(given))
    return F.mse_loss(model.decoder(code), given) + 0.1 * code.abs().mean()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


def record(
    model: nn.Module, loss_of: Callable[[Any, int], Tensor], scaler: Any = None, roots: list[nn.Module] | None = None
) -> tuple[Recorder, list[Any]]:
    """The recorder, and for each step the state of the model before it with the loss and the gradients it had."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    recorder, known = Recorder(roots or [model], most=3), []
    recorder.begin()
    try:
        for step in range(5):
            optimizer.zero_grad()
            before, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
            loss = loss_of(model, step)
            (loss if scaler is None else scaler.scale(loss)).backward()
            factor = 1.0 if scaler is None else scaler.get_scale()
            gradients = [p.grad / factor for p in model.parameters()]
            known.append((before, drawn, loss.item(), gradients))
            optimizer.step()
            recorder.forget()
    finally:
        recorder.end()
    return recorder, known


@pytest.mark.parametrize("loss_of", [classes, by_hand, penalised, noisy, half])
def test_a_step_done_again_gives_its_loss_and_gradients(loss_of: Callable[[Any, int], Tensor]) -> None:
    model = network(6 if loss_of is noisy else 3)
    if loss_of is noisy:
        model[3].p = 0.0  # the noise is part of the batch, so that other numbers are drawn
    _hold(model, *record(model, loss_of))


def test_parts_of_a_model_that_are_called_one_by_one() -> None:
    model = Pair()
    _hold(model, *record(model, in_parts))


def test_models_that_are_trained_together() -> None:
    model = Pair()
    _hold(model, *record(model, in_parts, roots=[model.encoder, model.decoder]))


def test_a_scaled_loss_is_known_unscaled() -> None:
    model = network()
    _hold(model, *record(model, classes, torch.amp.GradScaler("cpu", init_scale=1024.0)))


def _hold(model: nn.Module, recorder: Recorder, known: list[Any]) -> None:
    assert recorder.why_not is None and len(recorder.batches) == 3
    for batch, (before, drawn, loss, gradients) in zip(recorder.batches, known, strict=False):
        model.load_state_dict(before)
        model.zero_grad()
        torch.set_rng_state(drawn)
        again = Tapes(lambda made: made).loss(batch)
        again.backward()
        assert again.item() == pytest.approx(loss, rel=1e-6)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


def test_a_batch_is_what_went_in_and_can_be_changed() -> None:
    model = network()
    recorder, _ = record(model, classes)
    batch = recorder.batches[0]
    inputs, target = batch_tensors(batch)
    assert torch.equal(inputs, X[rows(0)]) and torch.equal(target, Y[rows(0)])
    model.eval()
    other = Tapes(lambda made: made).loss([batch[0], inputs, (target + 1) % 3])
    assert other.item() == pytest.approx(F.cross_entropy(model(inputs), (target + 1) % 3).item())


def test_what_cannot_be_seen_is_given_up() -> None:
    model = network()
    recorder, _ = record(model, lambda m, step: F.cross_entropy(Doubled.apply(m(X[rows(step)])), Y[rows(step)]))
    assert recorder.batches == [] and "do not show" in str(recorder.why_not)


def test_the_training_that_is_listened_to_stays_the_same() -> None:
    listened, alone = network(), network()
    torch.manual_seed(3)
    record(listened, classes)
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(alone.parameters(), 0.05)
    for step in range(5):
        optimizer.zero_grad()
        classes(alone, step).backward()
        optimizer.step()
    for a, b in zip(listened.state_dict().values(), alone.state_dict().values(), strict=True):
        assert torch.equal(a, b)
