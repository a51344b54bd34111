"""The instruments that work on a training script: a row for each, with its options.

Parameters are named as takeover.measures and the functions behind it name theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from torchdoctor.cli.seeds import read_seeds
from torchdoctor.errors import UsageError

ABOVE_ZERO = click.FloatRange(0, min_open=True)


@dataclass(frozen=True)
class Instrument:
    text: str
    """what --help says"""
    call: str
    """the same from code, for loops that cannot be taken over"""
    options: tuple[click.Option, ...]
    checkpoint: bool = True
    """weights can be loaded first"""
    less: str = ""
    """options that ask for less work"""
    nearer: str = ""
    """options that keep the loss within what is usual"""
    failed: str | None = None
    """field of the result that is false where there is something to be alarmed at"""


def _option(flag: str, *names: str, **settings: Any) -> click.Option:
    return click.Option([flag, *names], **({"show_default": True} | settings))


def _number(flag: str, name: str, least: int, default: int | None, text: str) -> click.Option:
    return _option(flag, name, metavar="N", type=click.IntRange(least), default=default, help=text)


def _amount(flag: str, name: str, default: float | None, text: str) -> click.Option:
    return _option(flag, name, metavar="X", type=ABOVE_ZERO, default=default, help=text)


def _confidence(text: str) -> click.Option:
    between = click.FloatRange(0, 1, min_open=True, max_open=True)
    return _option("--confidence", "confidence", metavar="X", type=between, default=0.95, help=text)


def _flag(flag: str, name: str, text: str, given: Any = True, otherwise: Any = False) -> click.Option:
    def choose(_ctx: click.Context, _param: click.Parameter, value: bool) -> Any:
        return given if value else otherwise

    return click.Option([flag, name], is_flag=True, callback=choose, help=text)


def _seeds(_ctx: click.Context, _param: click.Parameter, value: str) -> list[int]:
    if value.isdigit():
        if value == "0":
            raise UsageError("--seeds 0 leaves no sweep to make; 3 is usual")
        return list(range(int(value)))
    return read_seeds(None, value)


def _radii(_ctx: click.Context, _param: click.Parameter, value: str) -> list[float]:
    try:
        radii = [float(part) for part in value.split(",")]
    except ValueError:
        radii = []
    if not radii or min(radii) <= 0:
        raise UsageError(f"--radii takes numbers above 0 with commas between them, such as 0.01,0.1, not {value!r}")
    return radii


def _patterns(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> list[str] | None:
    return list(value) or None


def _batches(default: int) -> click.Option:
    return _number("--batches", "batches", 1, default, "Of the training loader, that the loss is taken of.")


def _seed() -> click.Option:
    return _number("--seed", "seed", 0, 0, "Of the random directions.")


def _sample() -> click.Option:
    return _number("--sample", "sample", 0, 0, "Which one, counted over the training batches.")


TRAINING = ("--training", "training", "Measure in training mode: dropout on, batch norm by the batch.")

INSTRUMENTS: dict[str, Instrument] = {
    "lr": Instrument(
        """Find the learning rate for your training script.

        Trains for a moment with a rate that grows, by the script's own optimizer, parameter groups, accumulation and
        clipping, several times over; reads off which one to set.""",
        "torchdoctor.find_lr(model, optimizer, train_loader, loss_fn)",
        (
            _option(
                "--start",
                "--low",
                "low",
                metavar="X",
                type=ABOVE_ZERO,
                default=1e-7,
                help="The rate that a sweep begins with.",
            ),
            _option(
                "--end",
                "--high",
                "high",
                metavar="X",
                type=ABOVE_ZERO,
                default=10.0,
                help="The rate that it ends with, if the loss has not diverged before.",
            ),
            _number("--steps", "steps", 10, 100, "Updates of a sweep."),
            _option("--seeds", "seeds", metavar="N", default="3", callback=_seeds, help="How many sweeps, or: 1,7,42."),
            _flag("--linear", "mode", "Raise the rate by equal amounts, not factors.", "linear", "exponential"),
            _flag("--no-zoom", "zoom", "Do not look for the decades that matter first.", False, True),
            _flag("--unpaired", "paired", "Do not compare with untrained weights: half the cost.", False, True),
            _option(
                "--smoothing",
                "smoothing",
                metavar="X",
                type=click.FloatRange(0, 1, max_open=True),
                help="Weight of the past in the mean of losses.",
            ),
            _amount("--diverge", "diverge", 1.0, "Rise above the start, in falls, that ends a sweep."),
            _flag("--validation", "validation", "Read the script's validation batches, not those of training."),
        ),
        less="--steps 50 --seeds 1",
        nearer="--end 0.1",
    ),
    "overfit": Instrument(
        """Can the model of your training script learn one batch by heart?

        If not, something is broken that more data will not mend, and it says what. Exit status 3 if it cannot.""",
        "torchdoctor.overfit_batch(model, train_loader, loss_fn)",
        (
            _number("--steps", "steps", 1, 300, "Updates that an attempt has."),
            _amount("--lr", "lr", None, "The rate; by default the best of several."),
            _option("--target", "target", metavar="X", type=float, help="The loss to reach; worked out by default."),
            _option("--floor", "floor", metavar="X", type=float, help="The least that the loss can be."),
            _number("--samples", "samples", 1, None, "Take so many of the batch; all by default."),
            _flag("--own-optimizer", "own_optimizer", "Use the script's own optimizer, not Adam."),
            _flag("--dropout", "dropout", "Leave dropout on."),
        ),
        less="--steps 100",
        failed="success",
    ),
    "clipping": Instrument(
        """Where to clip the gradients of your training script.

        Trains for some steps without clipping, and says what each threshold would do to them.""",
        "torchdoctor.suggest_clipping(model, optimizer, train_loader, loss_fn)",
        (
            _number("--steps", "steps", 2, 200, "Updates to look at."),
            _amount("--norm-type", "norm_type", 2.0, "Of the norm."),
        ),
        less="--steps 50",
    ),
    "noise-scale": Instrument(
        """Up to which batch size larger batches pay, for your training script.

        The gradient noise scale, from the script's own batches at one set of weights.""",
        "torchdoctor.gradient_noise_scale(model, train_loader, loss_fn)",
        (
            _number("--repeats", "repeats", 3, 10, "Groups of batches, each of which gives one estimate."),
            _number("--large", "large", 2, 10, "Batches of a group."),
            _number("--batch-size", "batch_size", 1, None, "Samples of a batch, where that cannot be seen."),
            _confidence("Of the interval."),
        ),
        less="--repeats 5 --large 5",
    ),
    "sharpness": Instrument(
        """How sharp the minimum is that the weights of your training script are in.

        What noise on the weights does to the loss, and the curvature. --checkpoint measures trained weights.""",
        "torchdoctor.sharpness(model, train_loader, loss_fn)",
        (
            _batches(4),
            _number("--directions", "directions", 2, 10, "Of noise."),
            _option(
                "--radii", "radii", metavar="LIST", default="0.01,0.05,0.1,0.2", callback=_radii, help="Sizes of noise."
            ),
            _flag("--no-eigenvalues", "eigenvalues", "Leave the curvature out, the dear part.", False, True),
            _number("--iterations", "iterations", 1, 40, "Products with the Hessian at most."),
            _confidence("Of the intervals."),
            _flag(*TRAINING),
            _seed(),
        ),
        less="--batches 1 --no-eigenvalues",
        nearer="--radii 0.01,0.05",
    ),
    "landscape": Instrument(
        """The loss around the weights of your training script, or from one checkpoint to another.

        Along a random direction, or with --to along the line from the script's weights (or those of --checkpoint) to
        other ones.""",
        "torchdoctor.landscape(model, train_loader, loss_fn)",
        (
            _option("--to", "to", metavar="FILE", help="Weights that the line leads to."),
            _option("--dims", "dims", type=click.Choice(["1", "2"]), default="1", help="A line or a plane."),
            _number("--points", "points", 3, None, "Along each axis; 41 on a line, 21 on a plane."),
            _amount("--span", "span", None, "How far it goes; 1 is noise as large as the weights."),
            _batches(4),
            _option(
                "--batch-norm",
                "batch_norm",
                type=click.Choice(["interpolate", "recompute"]),
                default="interpolate",
                help="Where its statistics come from on the way.",
            ),
            _flag(*TRAINING),
            _seed(),
        ),
        less="--batches 1 --points 11",
        nearer="--span 0.2",
    ),
    "probe": Instrument(
        """Do the inputs of your training script say anything about its labels?

        Two plain learners on the script's own training data, against the same labels in a random order.""",
        "torchdoctor.linear_probe(train_loader)",
        (
            _number("--samples", "samples", 20, 1000, "To look at."),
            _number("--permutations", "permutations", 199, 500, "Random orders of the labels."),
            _option(
                "--task",
                "task",
                type=click.Choice(["auto", "classes", "labels", "numbers"]),
                default="auto",
                help="What the target is.",
            ),
            _number("--seed", "seed", 0, 0, "Of the random orders."),
        ),
        checkpoint=False,
    ),
    "weights": Instrument(
        """How the weights of your training script are spread, layer by layer.

        As it starts, or those of --checkpoint.""",
        "torchdoctor.weight_distribution(model)",
        (
            _option(
                "--only",
                "only",
                metavar="GLOB",
                multiple=True,
                callback=_patterns,
                show_default=False,
                help="These parameters alone, such as 'encoder.*'; may be repeated.",
            ),
            _number("--bins", "bins", 8, 64, "Of the histograms."),
        ),
    ),
    "gradients": Instrument(
        """The gradients of your training script, parameter by parameter.

        How large they are, where there are none, and how they run over the depth.""",
        "torchdoctor.gradient_summary(model)  # after loss.backward()",
        (_number("--batches", "batches", 1, 1, "Of the training loader; the gradient is that of their mean loss."),),
    ),
    "evaluate": Instrument(
        """What the model of your training script gets right and wrong.

        Confusion, each class with its interval, calibration and the worst samples, on the script's validation data.
        --checkpoint judges trained weights.""",
        "torchdoctor.evaluate(model, val_loader, loss_fn)",
        (
            _flag("--train", "validation", "Judge what it trains on instead.", False, True),
            _number("--batches", "batches", 1, None, "The first so many; all by default."),
            _number("--worst", "worst", 0, 10, "Samples of the largest loss to list."),
            _option(
                "--level",
                "level",
                metavar="X",
                type=click.FloatRange(0, 1, min_open=True, max_open=True),
                default=0.95,
                help="Of the intervals.",
            ),
        ),
        less="--batches 10",
    ),
    "preview": Instrument(
        """Batches of your training script as its model sees them, training beside validation.

        After all transforms, on one scale: a difference in preprocessing shows. --plot has the pictures.""",
        "torchdoctor.preview_batches(train_loader, val_loader)",
        (
            _number("--samples", "samples", 1, 9, "Of each split to show."),
            _number("--batches", "batches", 1, 4, "Of each split to measure."),
            _flag("--train-only", "validation", "Do not wait for the script's validation.", False, True),
        ),
        checkpoint=False,
        less="--batches 1 --train-only",
    ),
    "mistakes": Instrument(
        """The worst mistakes of the model of your training script, to look at.

        Samples of the largest loss on the script's validation data, with label, prediction and confidence; --plot has
        the pictures. --checkpoint judges trained weights.""",
        "torchdoctor.worst_mistakes(model, val_loader, loss_fn)",
        (
            _number("--samples", "samples", 1, 12, "To show."),
            _flag("--train", "validation", "Those of what it trains on instead.", False, True),
            _number("--batches", "batches", 1, None, "The first so many; all by default."),
        ),
        less="--batches 10",
    ),
    "attention": Instrument(
        """Where the model of your training script attends, layer by layer and head by head.

        For one sample; heads that look everywhere or at one token are named, and attention on padding.""",
        "torchdoctor.attention_maps(model, batch)",
        (
            _sample(),
            _option("--layer", "layer", metavar="NAME", help="Draw this layer alone, by its name or number."),
            _number("--head", "head", 0, None, "Draw this head alone, with its tokens."),
        ),
    ),
    "saliency": Instrument(
        """What an answer of your training script's model hangs on: pixels, steps, tokens or columns.

        The gradient of one output at the input of one sample. A leaking column or a stamp in a corner shows here.""",
        "torchdoctor.saliency(model, batch)",
        (
            _sample(),
            _option("--target", "target", metavar="N", type=int, help="The class; by default what is predicted."),
            _option(
                "--method",
                "method",
                type=click.Choice(["gradient", "input-x-gradient", "integrated", "smooth"]),
                default="gradient",
                help="How it is followed back.",
            ),
        ),
    ),
}


def check_options(name: str, options: dict[str, Any]) -> None:
    """What no single option can know."""
    if name == "lr" and not options["low"] < options["high"]:
        raise UsageError(f"--start {options['low']:g} --end {options['high']:g}: a sweep runs from low to high")
    if name == "landscape":
        options["dims"] = int(options["dims"])
