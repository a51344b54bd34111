"""The instruments on a script's own training: how each is called with the parts of it.

Options come from the command line under the names that the functions give them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.facts import ClipFact
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.state import untouched
from torchdoctor.probes.graph import saved_targets
from torchdoctor.takeover import seeing

if TYPE_CHECKING:
    from torchdoctor.instruments.result import Result
    from torchdoctor.takeover.parts import Parts

SETTLED = 20
"""Batches after which a tenth is left of what batch norm's statistics begin with, at the usual momentum of 0.1."""


@dataclass(frozen=True)
class Measure:
    perform: Callable[..., Result]
    """takes the parts and the options"""
    drives: bool = True
    """it needs losses from the script's loop"""
    one_optimizer: bool = False
    """it makes updates by the script's optimizer"""
    of_weights: bool = False
    """what it says holds for one set of weights, and most ask it of trained ones"""


def find_rates(parts: Parts, *, validation: bool, **options: Any) -> Result:
    from torchdoctor.instruments.learning_rate.finding import Plan, sweep_rates

    if validation and parts.validation_loader is None:
        raise UsageError("no loader that the script validates with was seen in its first steps; leave --validation out")
    plan = Plan(
        accumulate=parts.accumulation,
        scaler=_scaler(parts),
        max_norm=clipped_at(parts),
        validation=parts.validation_loader if validation else None,
        **options,
    )
    return sweep_rates(parts.subject, parts.optimizers[0], _loader(parts), plan)


def overfit(parts: Parts, *, own_optimizer: bool, samples: int | None, **options: Any) -> Result:
    from torchdoctor.instruments.one_batch import first_samples, samples_in
    from torchdoctor.instruments.overfitting.overfit import memorise

    batch = parts.train[0]
    if samples is not None:
        fewer = first_samples(batch, samples)
        if fewer is None:
            raise UsageError(f"a batch holds {samples_in(batch) or 'an unknown number of'} samples; --samples is more")
        batch = fewer
    optimizer = _at_meant_rates(parts) if own_optimizer else None
    return memorise(parts.subject, batch, optimizer=optimizer, **options)


def clipping(parts: Parts, **options: Any) -> Result:
    from torchdoctor.instruments.clipping import measure_clipping

    return measure_clipping(
        parts.subject,
        _at_meant_rates(parts),
        _loader(parts),
        accumulate=parts.accumulation,
        max_norm=clipped_at(parts),
        scaler=_scaler(parts),
        **options,
    )


def noise_scale(parts: Parts, **options: Any) -> Result:
    from torchdoctor.instruments.noise_scale import measure_noise_scale

    return measure_noise_scale(parts.subject, _loader(parts), **options)


def sharpness(parts: Parts, *, batches: int, training: bool, **options: Any) -> Result:
    from torchdoctor.instruments.weight_space.sharpness import measure_sharpness

    optimizer = _at_meant_rates(parts)
    group, plain = optimizer.param_groups[0], type(optimizer).__name__ == "SGD"
    lr = float(group["lr"]) if plain and len(optimizer.param_groups) == 1 else None
    momentum = float(group["momentum"]) if lr is not None else 0.0
    return measure_sharpness(
        parts.subject,
        _first(parts, batches),
        lr=lr or None,
        momentum=momentum,
        training=training or lacks_statistics(parts),
        **options,
    )


def landscape(parts: Parts, *, batches: int, to: str | None, training: bool, **options: Any) -> Result:
    from torchdoctor.instruments.weight_space.landscape import map_landscape

    between = (parts.subject.model, to) if to is not None else None
    training = training or lacks_statistics(parts)
    return map_landscape(parts.subject, _first(parts, batches), between=between, training=training, **options)


def probe(parts: Parts, **options: Any) -> Result:
    from torchdoctor.instruments.probing.probe import linear_probe

    try:
        if parts.train_loader is None:
            raise UsageError("the script takes its batches from no DataLoader that could be looked at")
        return linear_probe(parts.train_loader, **options)
    except UsageError as error:
        pairs = _pairs(parts, options["samples"]) if parts.why_no_loss is None else None
        if pairs is None:
            raise UsageError(f"{error}; what the loss compares with is not seen either") from None
    return linear_probe(*pairs, **options)


def _pairs(parts: Parts, samples: int) -> tuple[Tensor, Tensor] | None:
    """What the loop hands to its model, and what its loss compares with, for batches that do not tell by themselves;
    None where that is not one of each for a sample."""
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    with untouched(*parts.subject.parts, loaders=(parts.train_loader,)):
        parts.subject.outputs(parts.train[0])  # what the loop calls is known from here on
        for batch in _loader(parts):
            named, loss = seeing.call_loop(parts.subject, batch)
            given, compared = list(named.values()), saved_targets(loss)
            if not given or len(compared) != 1 or not compared[0].dim() or len(given[0]) != len(compared[0]):
                return None
            inputs.append(given[0].detach().cpu())
            targets.append(compared[0].detach().cpu())
            if sum(map(len, targets)) >= samples:
                break
    return torch.cat(inputs), torch.cat(targets)


def weights(parts: Parts, **options: Any) -> Result:
    from torchdoctor.instruments.one_look.weights import weight_distribution

    return weight_distribution(parts.subject.model, **options)


def gradients(parts: Parts, *, batches: int) -> Result:
    from torchdoctor.instruments.one_look.gradients import gradient_summary

    subject = parts.subject
    for parameter in subject.model.parameters():
        parameter.grad = None
    chosen = _first(parts, batches)
    for batch in chosen:
        loss = subject.loss(batch)
        if not loss.requires_grad:
            raise UsageError("the loss hangs on no trainable parameter; torchdoctor overfit says why")
        (loss / len(chosen)).backward()
    return gradient_summary(subject.model)


def evaluate(parts: Parts, **options: Any) -> Result:
    from torchdoctor.takeover.judging import judge

    return judge(parts, **options)


MEASURES = {
    "lr": Measure(find_rates, one_optimizer=True),
    "overfit": Measure(overfit),
    "clipping": Measure(clipping, one_optimizer=True),
    "noise-scale": Measure(noise_scale, of_weights=True),
    "sharpness": Measure(sharpness, of_weights=True),
    "landscape": Measure(landscape, of_weights=True),
    "probe": Measure(probe, drives=False),
    "weights": Measure(weights, drives=False, of_weights=True),
    "gradients": Measure(gradients),
    "evaluate": Measure(evaluate, of_weights=True),
    "preview": Measure(seeing.preview, drives=False),
    "mistakes": Measure(seeing.mistakes, of_weights=True),
    "attention": Measure(seeing.attention, of_weights=True),
    "saliency": Measure(seeing.saliency, of_weights=True),
}


def lacks_statistics(parts: Parts) -> bool:
    """Whether batch norm has hardly seen a batch: in eval mode it would not normalise."""
    norms = (m for m in parts.subject.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    return any(m.num_batches_tracked is not None and int(m.num_batches_tracked) < SETTLED for m in norms)


def clipped_at(parts: Parts) -> float | None:
    """The norm that the script clips at."""
    norms = [fact.threshold for fact in parts.run.facts(ClipFact) if fact.how == "norm" and fact.norm_type == 2]
    return norms[-1] if norms and 0 < norms[-1] < float("inf") else None


def _loader(parts: Parts) -> Any:
    """The script's own; a loop without one has the batches of its first steps."""
    return parts.train_loader if parts.train_loader is not None else parts.train


def _first(parts: Parts, count: int) -> list[Any]:
    return parts.train[:count] if count <= len(parts.train) else first_batches(_loader(parts), count)


def _scaler(parts: Parts) -> Any:
    return next((scaler for scaler in parts.scalers if scaler.is_enabled()), None)


def _at_meant_rates(parts: Parts) -> Any:
    """The optimizer, at the rates that it was made with: a warm-up may begin at zero."""
    optimizer = parts.optimizers[0]
    for group in optimizer.param_groups:
        group["lr"] = group.get("initial_lr", group["lr"])
    return optimizer
