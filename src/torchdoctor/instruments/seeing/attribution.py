"""How one number that a model gives changes with what goes in: the gradient at the input, and three ways to smooth it.

Token ids have no gradient: their embeddings have, and a token's saliency is that of its vector.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.one_batch import tensors_in
from torchdoctor.instruments.seeing.calling import given_to, name_arguments
from torchdoctor.instruments.seeing.samples import main_input
from torchdoctor.instruments.subject import Subject, copied, logits_of, with_tensors

GRADIENT, TIMES_INPUT, INTEGRATED, SMOOTH = "gradient", "input-x-gradient", "integrated", "smooth"
METHODS = (GRADIENT, TIMES_INPUT, INTEGRATED, SMOOTH)
STEPS = 32
"""On the way from nothing to the input (Sundararajan, Taly, Yan, "Axiomatic Attribution for Deep Networks", 2017, take
20 to 300)."""
MOST_STEPS = 200
"""Up to which steps are doubled."""
INACCURATE = 0.1
"""Error of the integral, over the change of the output, from which on it is said."""
NOISES, NOISE = 16, 0.15
"""Noisy copies, and their noise over the range of the input (Smilkov and others, "SmoothGrad", 2017: 10 % to 20 %)."""
Score = Callable[[Tensor], Tensor]
"""From what the model gives for the sample to one number."""


@dataclass
class Attributed:
    """By the name of the input: gradients (or contributions) and values, each in the input's shape."""

    saliency: dict[str, Tensor]
    values: dict[str, Tensor]
    is_signed: bool
    score: float
    error: float | None = None
    """of integrated gradients: how far their sum is from the change of the score, over it"""


class Probe:
    """The model with one sample of a batch, whose inputs can be changed on their way in. The sample is given twice: a
    squeeze() in the model would take a batch of one apart."""

    def __init__(self, subject: Subject, batch: Any, sample: int) -> None:
        self._subject, self._batch, self._sample = subject, batch, sample
        self._cuts, self._row = True, 0
        self._main, self._samples = "", 0
        self._ids: Tensor | None = None
        self._embedding: nn.Module | None = None
        self._is_embedded = False
        """in this call; an embedding may be used a second time, for what a decoder is given"""

    def prepare(self, names: dict[str, Tensor]) -> None:
        """Finds which inputs can be changed."""
        self._main, tensor = main_input(names)
        self._samples = len(tensor)
        if not tensor.is_floating_point():
            self._ids = tensor
            self._embedding = self._find_embedding()
        try:
            self.outputs()
        except (RuntimeError, ValueError, IndexError):  # something is made for a batch of that size
            self._cuts, self._row = False, self._sample
            self.outputs()

    def outputs(self, change: Callable[[str, Tensor], Tensor] | None = None) -> Tensor:
        """Of the sample; `change(name, tensor)` gets each input that has a gradient."""
        with self._altered(change):
            found = scores_of(self._subject.outputs(self._batch))
        return found[self._row]

    def row(self, tensor: Tensor) -> Tensor:
        return tensor[self._row]

    @contextlib.contextmanager
    def _altered(self, change: Callable[[str, Tensor], Tensor] | None) -> Iterator[None]:
        handles = [self._subject.called.register_forward_pre_hook(self._enter(change), with_kwargs=True)]
        if self._embedding is not None and change is not None:
            handles.append(self._embedding.register_forward_hook(self._embed(change)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, change: Callable[[str, Tensor], Tensor] | None) -> Callable[..., Any]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self._is_embedded = False
            args, kwargs = copied(with_tensors((args, kwargs), self._cut))
            if change is None:
                return args, kwargs
            names = {id(t): name for name, t in name_arguments(module, args, kwargs).items()}

            def altered(tensor: Tensor) -> Tensor:
                takes = (
                    tensor.is_floating_point() and tensor.dim() and len(tensor) == (2 if self._cuts else self._samples)
                )
                return change(names.get(id(tensor), ""), tensor) if takes else tensor

            return with_tensors((args, kwargs), altered)

        return enter

    def _cut(self, tensor: Tensor) -> Tensor:
        if not self._cuts or not tensor.dim() or len(tensor) != self._samples:
            return tensor
        return tensor[[self._sample, self._sample]]

    def _embed(self, change: Callable[[str, Tensor], Tensor]) -> Callable[..., Any]:
        def embed(_module: nn.Module, _args: Any, result: Any) -> Any:
            if self._is_embedded or not isinstance(result, Tensor):
                return result
            self._is_embedded = True
            return change(self._main, result)

        return embed

    def _find_embedding(self) -> nn.Module:
        """The first that is called with the ids."""
        found: list[nn.Module] = []
        ids = self._ids

        def note(module: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor) and ids is not None and args[0].shape == ids.shape:
                found.append(module)

        embeddings = [m for m in self._subject.model.modules() if isinstance(m, nn.Embedding)]
        handles = [m.register_forward_pre_hook(note) for m in embeddings]
        try:
            with given_to(self._subject, {}):
                self._subject.outputs(self._batch)
        finally:
            for handle in handles:
                handle.remove()
        if not found:
            raise UsageError(
                f"the inputs are whole numbers ({self._main}) and go through no nn.Embedding, so they have no gradient"
            )
        return found[0]


def attribute(probe: Probe, score: Score, method: str, steps: int, seed: int) -> Attributed:
    if method == INTEGRATED:
        return _integrate(probe, score, steps)
    if method == SMOOTH:
        return _smooth(probe, score, seed)
    at = _differentiate(probe, score)
    saliency = {k: g * at.values[k] if method == TIMES_INPUT else g for k, g in at.gradients.items()}
    return Attributed(saliency, at.values, method == TIMES_INPUT, at.score)


Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class _Slope:
    """Gradients of the score at these values of the sample's inputs."""

    gradients: dict[str, Tensor]
    values: dict[str, Tensor]
    score: float


def _differentiate(probe: Probe, score: Score, change: Change = lambda tensor: tensor) -> _Slope:
    leaves: dict[str, Tensor] = {}

    def leaf(name: str, tensor: Tensor) -> Tensor:
        if name not in leaves:  # else the same tensor, given twice
            leaves[name] = change(tensor.detach()).requires_grad_()
        return leaves[name].clone()  # a model may work in place, which a leaf does not allow

    # cuDNN's recurrent layers have no backward in eval mode
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        number = score(probe.outputs(leaf))
        if not leaves:
            raise UsageError("the model is given no floating-point tensor and no token ids with a row for each sample")
        if not number.requires_grad:
            raise UsageError(
                "what the model gives hangs on no input by a gradient: is its forward() under torch.no_grad(), or does "
                "it detach or round on the way?"
            )
        found = torch.autograd.grad(number, list(leaves.values()), allow_unused=True)
    gradients = {
        name: probe.row(torch.zeros_like(leaf) if gradient is None else gradient).detach()
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
    }
    return _Slope(gradients, {k: probe.row(t).detach() for k, t in leaves.items()}, float(number.detach()))


def _integrate(probe: Probe, score: Score, steps: int) -> Attributed:
    """From zeros: of a normalised picture the mean, of an embedding no token. Where a model is steep near them, as one
    with layer norm is, twice the steps are taken, and twice again."""
    at = _differentiate(probe, score)
    change = at.score - _differentiate(probe, score, torch.zeros_like).score
    while True:
        total = {k: torch.zeros_like(v) for k, v in at.values.items()}
        for step in range(steps):
            slope = _differentiate(probe, score, partial(torch.mul, other=(step + 0.5) / steps))
            total = {k: t + slope.gradients[k] / steps for k, t in total.items()}
        saliency = {k: t * at.values[k] for k, t in total.items()}
        summed = sum(float(s.double().sum()) for s in saliency.values())
        error = abs(summed - change) / max(abs(change), 1e-12)
        if not error > INACCURATE or steps >= MOST_STEPS:
            return Attributed(saliency, at.values, True, at.score, error)
        steps *= 2


def _smooth(probe: Probe, score: Score, seed: int) -> Attributed:
    """The mean size of gradients around the input; token ids' embeddings get the noise."""
    generator = torch.Generator().manual_seed(seed)

    def noisy(tensor: Tensor) -> Tensor:
        noise = torch.randn(tensor.shape, generator=generator, device="cpu").to(tensor)
        return tensor + NOISE * (tensor.max() - tensor.min()) * noise

    at = _differentiate(probe, score)
    total = {k: torch.zeros_like(v) for k, v in at.values.items()}
    for _ in range(NOISES):
        slope = _differentiate(probe, score, noisy)
        total = {k: t + slope.gradients[k].abs() / NOISES for k, t in total.items()}
    return Attributed(total, at.values, False, at.score)


def scores_of(outputs: Any) -> Tensor:
    """What the model says of each sample."""
    found = logits_of(outputs)
    if isinstance(found, Tensor):
        return found
    tensor = next((t for _, t in tensors_in(found) if t.is_floating_point() and t.dim()), None)
    if tensor is None:
        raise UsageError(
            f"the model gives a {type(found).__name__} without a tensor of scores; use call=lambda model, batch: ..."
        )
    return tensor
