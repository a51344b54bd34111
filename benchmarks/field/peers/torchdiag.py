"""torchdiag: `summary` above the loop, `check_gradients` after backward passes, `check_dead_neurons` on a batch.

`verify_step` is left out: it makes an optimizer step of its own, which would change the training.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from field.peers.wrapper import EVERY, Statement, Watch, Wrapper

if TYPE_CHECKING:
    import torch

SEVERITIES = {"CRITICAL": "error", "WARNING": "warning", "issue": "warning"}


class _Checks(Watch):
    def __init__(self, model: torch.nn.Module) -> None:
        import torchdiag

        self._peer = torchdiag
        self._model = model
        self._issues: list[Statement] = []
        self._batch: torch.Tensor | None = None
        self._hook = model.register_forward_pre_hook(self._keep_batch)
        _, text = _quietly(torchdiag.summary, model)
        if "ALL parameters are frozen" in text:
            self._issues.append(Statement("all frozen", "issue", "ALL parameters are frozen"))

    def _keep_batch(self, model: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        """Keep the first batch for `check_dead_neurons`, which takes one tensor."""
        if len(inputs) == 1 and hasattr(inputs[0], "detach"):
            self._batch = inputs[0].detach().clone()
        self._hook.remove()

    def after_step(self, step: int, loss: float | None) -> None:
        if step % EVERY == 0:  # not before the step, as a closure calls backward inside of it
            layers, _ = _quietly(self._peer.check_gradients, self._model)
            for name, layer in layers.items():
                if layer["status"] != "OK":
                    self._issues.append(Statement(layer["status"], "issue", f"{name}: {layer['status']}, step {step}"))

    def statements(self) -> Iterator[Statement]:
        yield from self._issues
        if self._batch is None:
            return
        with contextlib.suppress(Exception):  # a model that cannot be called with one tensor alone
            layers, _ = _quietly(self._peer.check_dead_neurons, self._model, self._batch)
            for name, layer in layers.items():
                share = layer["dead_pct"]  # the bounds are those that it prints CRITICAL and WARNING at
                if share > 20:
                    severity = "CRITICAL" if share > 50 else "WARNING"
                    yield Statement("dead neurons", severity, f"{name}: {share:.0f}% neurons dead")


def _quietly(check: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """Call a function that prints, and return its result and what it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        result = check(*arguments)
    return result, text.getvalue()


class Torchdiag(Wrapper):
    requirement = "torchdiag==0.1.0"
    severities = SEVERITIES

    def watch(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Watch:
        return _Checks(model)


wrapper = Torchdiag()
