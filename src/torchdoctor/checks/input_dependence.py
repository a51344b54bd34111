"""What comes out hangs on what goes in: on the sample, and on each of several inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.influence import SEED, Change, by_sample, outputs_of, reseed, sample_count, sample_dims
from torchdoctor.checks.model.loss_wiring import wiring_of
from torchdoctor.checks.repeats.updating import nudge
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.probes.activations import first_tensor
from torchdoctor.rules.architecture.representation_collapse import SAME

CHECK = Check(
    name="input-dependence",
    asks="outputs depend on the inputs",
    part=MODEL,
    order=32,
    diagnoses=("representation-collapse", "dead-relu"),
)

UPDATES = 3
"""After which a last layer, or a gate, that starts at zero lets the inputs through."""
SHUFFLED, ZEROED, NOISE = "shuffled", "zeroed", "noise"
WORDS = {SHUFFLED: "with the samples exchanged", ZEROED: "with zeros instead", NOISE: "with noise instead"}
WEAK = 0.05
"""Change of the outputs, over their size, when samples are exchanged; new networks of usual depth show 0.3 and more."""
LOST = 0.1
"""The same over the change of the inputs: samples that are alike may well give outputs that are alike."""
FEW = 2
"""Different values of an input of whole numbers that is a mask or a flag."""


def perform(bench: Bench) -> Outcome:
    batch = bench.train[0]
    if wiring_of(bench).error is not None:
        return skipped("the model cannot be run; output-shape says why")
    inputs, count = bench.inputs(batch), sample_count(bench, batch) or 0
    changed = [n for n, tensor in enumerate(inputs) if tensor.numel() and not tensor.is_complex()]
    if not changed:
        return skipped("the model is given no tensor")
    bench.model.eval()
    if not outputs_of(bench, batch):
        return skipped("the model gives no tensor of numbers")
    moved = _moves(bench, batch, inputs, changed, count)
    if not _depends(moved):
        _learn(bench, batch)  # what starts at zero on purpose
        moved = _moves(bench, batch, inputs, changed, count)
    if not _depends(moved):
        return _constant(bench, batch, moved, count)
    ignored = _ignored(bench, batch, inputs, count, _targets(bench))
    if ignored:
        return _left_out(bench, inputs, ignored)
    apart = _inputs_apart(inputs, changed, count)
    if _hardly(moved, apart):
        _learn(bench, batch)
        moved = _moves(bench, batch, inputs, changed, count)
        if _hardly(moved, apart):
            return _weak(moved, apart)
    said = ", ".join(f"{moved[name]:.0%} {words}" for name, words in WORDS.items() if name in moved)
    exchanged = "" if SHUFFLED in moved else "; whether they tell samples apart was not examined"
    return passed(f"they change by {said}{exchanged}", **moved)


def _hardly(moved: dict[str, float], apart: float | None) -> bool:
    """Return whether samples whose inputs differ give nearly the same outputs."""
    exchanged = moved.get(SHUFFLED)
    return exchanged is not None and exchanged < WEAK and (apart is None or exchanged < LOST * apart)


def _inputs_apart(inputs: list[Tensor], numbers: list[int], count: int) -> float | None:
    """By how much of their size the real-valued inputs change when samples are exchanged."""
    pairs = []
    for tensor in (inputs[n] for n in numbers):
        dims = sample_dims(tensor, count)
        if tensor.is_floating_point() and dims:
            pairs.append((tensor, tensor.roll(1, dims[0])))
    return max((_distance([one], [other]) for one, other in pairs), default=None)


def _weak(moved: dict[str, float], apart: float | None) -> Outcome:
    beside = f", while the inputs differ by {apart:.0%}" if apart is not None else ""
    return failed(
        f"the outputs hardly depend on the sample: exchanging samples changes them by {moved[SHUFFLED]:.1%}{beside} "
        f"(less than {WEAK:.0%}, after {UPDATES} small updates too)",
        None,
        Fix(
            "Follow one batch through the layers: a deep stack without skip connections loses the samples step by "
            "step, and so do weights that start too small.",
            "print(x.std(0).mean() / x.std())  # after each block; near 0, all samples look the same",
        ),
        severity=Severity.INFO,
        proven=False,
        **moved,
    )


def _depends(moved: dict[str, float]) -> bool:
    """On which sample it is, where that can be asked, and on the numbers in it."""
    return moved.get(SHUFFLED, 1.0) > SAME and max(moved.values()) > SAME


def _moves(bench: Bench, batch: Any, inputs: list[Tensor], numbers: list[int], count: int) -> dict[str, float]:
    """By how much of their size the outputs change with these inputs shuffled over the samples, zeroed, or noise."""
    base = outputs_of(bench, batch)
    found = {}
    for name, change in _changes(inputs, numbers, count).items():
        try:
            found[name] = _distance(base, outputs_of(bench, batch, change))
        except Exception:
            continue
    return found


def _changes(inputs: list[Tensor], numbers: list[int], count: int) -> dict[str, Change]:
    def shuffle(number: int, given: Tensor) -> Tensor:
        dims = sample_dims(given, count)
        return given.roll(1, dims[0]) if number in numbers and dims else given

    def zero(number: int, given: Tensor) -> Tensor:
        return torch.zeros_like(given) if number in numbers and given.is_floating_point() else given

    def disturb(number: int, given: Tensor) -> Tensor:
        if number not in numbers:
            return given
        generator = torch.Generator().manual_seed(SEED + number)
        if not given.is_floating_point():
            return given.reshape(-1)[torch.randperm(given.numel(), generator=generator).to(given.device)].view_as(given)
        std, mean = torch.std_mean(given.float()) if given.numel() > 1 else (torch.ones(()), given.float().mean())
        noise = torch.randn(given.shape, generator=generator).to(given.device)
        return (mean + torch.where(std > 0, std, torch.ones_like(std)) * noise).to(given.dtype)

    named: dict[str, Change] = {NOISE: disturb}
    if any(inputs[n].is_floating_point() for n in numbers):
        named[ZEROED] = zero
    if count > 1 and _vary(inputs, numbers, count):
        named[SHUFFLED] = shuffle
    return named


def _vary(inputs: list[Tensor], numbers: list[int], count: int) -> bool:
    """Samples differ, so that it is a change to exchange them."""
    for number in numbers:
        dims = sample_dims(inputs[number], count)
        rows = by_sample(inputs[number], dims[0]) if dims else None
        if rows is not None and bool((rows != rows.roll(1, 0)).any()):
            return True
    return False


def _distance(base: list[Tensor], changed: list[Tensor]) -> float:
    """Root mean square of the change over that of the outputs; of the output that changes most."""
    shares = [0.0]
    for before, after in zip(base, changed, strict=False):
        if before.shape != after.shape:
            return 1.0
        difference, size = (after - before).float(), before.float().square().mean().sqrt()
        if not bool(difference.isfinite().all()):
            return 1.0
        moved = difference.square().mean().sqrt()
        shares.append(float(moved / size) if float(size) > 0 else float(moved > 0))
    return max(shares)


def _learn(bench: Bench, batch: Any) -> None:
    bench.model.train()
    for _ in range(UPDATES):
        bench.model.zero_grad(set_to_none=True)
        reseed()
        loss = bench.subject.loss(batch)
        if not loss.requires_grad:
            break
        loss.backward()
        nudge(bench.model)
    bench.model.eval()


def _targets(bench: Bench) -> list[Tensor]:
    return [call.target for call in wiring_of(bench).looks[0].calls if call.target is not None]


def _ignored(bench: Bench, batch: Any, inputs: list[Tensor], count: int, targets: list[Tensor]) -> list[int]:
    """Of several inputs those that change nothing though they differ from sample to sample."""
    asked = [
        number
        for number, tensor in enumerate(inputs)
        if _tells(tensor) and _vary(inputs, [number], count) and not _is_target(number, inputs, targets)
    ]
    if len(inputs) < 2 or not asked:
        return []
    found = [n for n in asked if _is_ignored(_moves(bench, batch, inputs, [n], count))]
    if not found or len(found) == len(asked) > 1:
        return []
    _learn(bench, batch)
    return [n for n in found if _is_ignored(_moves(bench, batch, inputs, [n], count))]


def _is_ignored(moved: dict[str, float]) -> bool:
    return bool(moved) and max(moved.values()) == 0.0


def _is_target(number: int, inputs: list[Tensor], targets: list[Tensor]) -> bool:
    """Given for the loss alone: the target itself, or another input again but for what the loss skips."""
    own = inputs[number]
    if any(t.numel() == own.numel() and torch.equal(t.reshape(-1).to(own), own.reshape(-1)) for t in targets):
        return True
    others = [t for n, t in enumerate(inputs) if n != number and t.shape == own.shape and t.dtype == own.dtype]
    return not own.is_floating_point() and any(bool(((t == own) | (own < 0)).all()) for t in others)


def _tells(tensor: Tensor) -> bool:
    """No mask, flag or list of lengths: these say how the others are to be read."""
    if tensor.dtype == torch.bool or tensor.is_complex() or tensor.dim() == 0 or not tensor.numel():
        return False
    return len(tensor.reshape(-1)[:4096].unique()) > FEW and (tensor.dim() > 1 or tensor.is_floating_point())


def _left_out(bench: Bench, inputs: list[Tensor], ignored: list[int]) -> Outcome:
    said = ", ".join(f"number {n + 1} of {len(inputs)}, of shape {tuple(inputs[n].shape)}" for n in ignored)
    return failed(
        f"an input changes nothing in the outputs: {said}",
        None,
        Fix(
            "Use it in forward, or do not load it.",
            "def forward(self, x, extra):\n    h = torch.cat([self.body(x), self.side(extra)], dim=1)",
        ),
        severity=Severity.WARNING,
        evidence=(f"neither other samples' values nor noise change the outputs, nor do they after {UPDATES} updates",),
        ignored=len(ignored),
    )


def _constant(bench: Bench, batch: Any, moved: dict[str, float], count: int) -> Outcome:
    dead = _dead_module(bench, batch)
    if max(moved.values(), default=0.0) > SAME:
        return failed(
            f"all {count} samples of a batch give the same output: exchanging them changes nothing",
            "representation-collapse",
            Fix(
                "Pool over positions or points, not over the batch; keep dimension 0 for the samples.",
                "x = x.mean(dim=1)  # dim 0 is the batch",
            ),
            **moved,
        )
    text = f"outputs do not depend on the inputs: {', '.join(moved)} inputs give the same, after {UPDATES} updates too"
    if dead is not None:
        return failed(
            f"{text}; {dead} is zero for every sample",
            "dead-relu",
            Fix(
                "Start its biases at zero and its weights by their fan-in, or use an activation that does not die.",
                "nn.init.kaiming_normal_(layer.weight); nn.init.zeros_(layer.bias)  # or nn.LeakyReLU(0.1)",
            ),
            where=(Place(module=dead),),
            **moved,
        )
    return failed(
        text,
        "representation-collapse",
        Fix(
            "Follow one batch through the layers and find where it is lost: a variable that is overwritten, a weight "
            "of zero, a gate that is shut.",
            "print(x.std(0).mean())  # after each layer: where it becomes 0 the samples are lost",
        ),
        **moved,
    )


def _dead_module(bench: Bench, batch: Any) -> str | None:
    """An activation that gives nothing but zeros."""
    found: list[str] = []

    def hook(name: str) -> Any:
        def note(_module: nn.Module, args: Any, output: Any) -> None:
            given, made = first_tensor(args), first_tensor(output)
            if given is not None and made is not None and bool(given.any()) and not bool(made.any()):
                found.append(clean(name))

        return note

    kinds = (nn.ReLU, nn.ReLU6)
    handles = [m.register_forward_hook(hook(name)) for name, m in bench.model.named_modules() if isinstance(m, kinds)]
    try:
        outputs_of(bench, batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None
