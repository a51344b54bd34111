"""Which trainings hang in the gallery, and the words beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from torchdoctor import __version__, zoo
from torchdoctor.errors import UsageError
from torchdoctor.lab.gallery import tell_tales
from torchdoctor.lab.gallery.tell_tales import Mark
from torchdoctor.run import Run

NAME, TITLE = "curves", "Loss-curve gallery"
TEXT = (
    "Eight real trainings, made here on your machine, and what their loss curves give away: healthy, overfitting, a "
    "learning rate too high or too low, spikes and more. With a quiz."
)
TWIN = "healthy-"
"""What the zoo puts before the kind of a sound twin."""


@dataclass(frozen=True)
class Training:
    """A script of the zoo, and how strong its fault shall be."""

    case: zoo.Case
    grade: str = ""
    """mild, medium or severe, for scripts that have it; empty: as the script has it by itself"""
    every_step: bool = True
    """whether every signal is taken on every step: a spike between two looks would not be seen"""

    @cached_property
    def name(self) -> str:
        """The name of its run: another one after an update of torchdoctor or of the script."""
        seed = f"{__version__}\n{self.grade}\n{self.every_step}\n".encode() + self.case.path.read_bytes()
        kind = "-".join(filter(None, (self.case.name.replace("/", "-"), self.grade)))
        return f"{kind}-{hashlib.blake2b(seed, digest_size=4).hexdigest()}"


@dataclass(frozen=True)
class Exhibit:
    """One curve to learn from."""

    name: str
    title: str
    case: str
    """of the zoo"""
    look: str
    """what to look for"""
    do: str
    """what to do about it"""
    tell: Callable[[Run], Sequence[Mark]]
    """where in the curve it shows"""
    charts: Sequence[str] = ("gradient_norm", "update_ratio")
    """other figures that show it: names of torchdoctor.plots"""
    why: str = ""
    """what these add"""
    command: str = ""
    """of torchdoctor's, that helps with it"""
    grade: str = ""
    every_step: bool = True
    linear: bool = False
    """the axis of the loss, where a logarithmic one would hide what is to be seen"""

    @cached_property
    def training(self) -> Training:
        return Training(_find(self.case), self.grade, self.every_step)

    @cached_property
    def twin(self) -> Training | None:
        """The nearest sound training; a sound one has none."""
        case = self.training.case
        if case.healthy:
            return None
        return Training(_find(f"{case.diagnosis}/{TWIN}{case.kind}"), every_step=self.every_step)


EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit
    for exhibit in (
        Exhibit(
            "healthy",
            "Healthy",
            "outlier-batch/healthy-mlp",
            "The loss falls fast, then ever more slowly. Validation goes along with training, close beside it. The "
            "noise from batch to batch is small and even.",
            "Nothing. Train on while validation still falls, and keep its best weights.",
            tell=tell_tales.follows,
            why="A step changes the weights by some thousandths of their size, in every layer alike.",
        ),
        Exhibit(
            "rate-too-high",
            "Learning rate too high",
            "learning-rate-too-high/mlp",
            "The loss shoots up within the first steps, by orders of magnitude, and comes back no further than where a "
            "constant guess stands. Here it stays: the units were thrown so far that they no longer answer.",
            "Divide the rate by ten until the leap is gone.",
            tell=tell_tales.leaps,
            why="The first steps throw the weights to ten times their size; then hardly any gradient is left.",
            command="torchdoctor lr train.py",
        ),
        Exhibit(
            "rate-too-low",
            "Learning rate too low",
            "learning-rate-too-low/vae",
            "The loss falls, but on a straight and nearly level line, hardly out of the noise. Nothing is wrong with "
            "the gradient: the steps are too short to get anywhere.",
            "Multiply the rate by ten until the loss falls quickly and begins to bounce, then go back a little.",
            tell=tell_tales.crawls,
            charts=("update_ratio", "gradient_norm"),
            why="A step changes the weights far less than usual: all layers stay below the band.",
            command="torchdoctor lr train.py",
            grade="mild",
        ),
        Exhibit(
            "overfitting",
            "Overfitting",
            "overfitting/mlp",
            "Training falls on and on, to nearly nothing. Validation turns early and rises: from there on the model "
            "learns its training samples by heart.",
            "Keep the weights of the lowest validation loss. Then more data or augmentation, weight decay, dropout, or "
            "a smaller model.",
            tell=tell_tales.parts,
            why="The gradients die away: there is nothing left to learn from these samples.",
            linear=True,
        ),
        Exhibit(
            "spike",
            "Spikes",
            "outlier-batch/mlp",
            "Single steps stand far above their neighbours, and the next ones are back in line. The model is sound: "
            "these batches are not.",
            "Look at the samples of those batches. Until then clip the gradient, so that one batch cannot throw off "
            "what many have built.",
            tell=tell_tales.spikes,
            charts=("gradient_norm", "update_ratio"),
            why="The gradient jumps in the same steps: what clipping is for.",
            command="torchdoctor clipping train.py",
        ),
        Exhibit(
            "not-learning",
            "Not learning",
            "inputs-and-labels-unrelated/cnn",
            "A level line, training and validation alike, at the loss of a blind guess: the logarithm of the number of "
            "classes.",
            "Look at what the model gets: are inputs and labels still those of the same sample, after shuffling and "
            "augmentation? Can it learn one single batch by heart?",
            tell=tell_tales.stays,
            charts=("update_ratio", "gradient_norm"),
            why="The updates are of a usual size: it is not the learning rate that holds this one.",
            command="torchdoctor check train.py",
            every_step=False,  # units that rest for as few steps as then lie between looks would count as dead
        ),
        Exhibit(
            "oscillating",
            "Oscillating",
            "learning-rate-oscillation/regression",
            "The loss falls quickly and then swings up and down for the rest of the training, validation even more. It "
            "does not settle: every step leaps across the valley.",
            "Lower the rate by a factor of three to ten, or let it decay (cosine, or a step down).",
            tell=tell_tales.swings,
            charts=("update_ratio", "gradient_norm"),
            why="Steps change the weights by a hundredth and more to the very end: at the top of the band or above it.",
        ),
        Exhibit(
            "underfitting",
            "Underfitting",
            "capacity-too-low/digits",
            "Training and validation level off together, high above what the task allows. There is no gap between "
            "them: the model cannot hold more than that.",
            "A larger model: more units in the narrowest layer, one more layer, or a kind that suits the data. And "
            "less regularisation.",
            tell=tell_tales.levels_off,
            charts=("update_ratio", "gradient_norm"),
            why="The weights still move as usual: it is not the rate, there is just no better place to go to.",
        ),
    )
}


def all_trainings() -> list[Training]:
    """Those of the exhibits first, then their twins; each once."""
    shown = [exhibit.training for exhibit in EXHIBITS.values()]
    twins = [exhibit.twin for exhibit in EXHIBITS.values() if exhibit.twin is not None]
    return list({training.name: training for training in (*shown, *twins)}.values())


@cache
def _find(name: str) -> zoo.Case:
    found = zoo.find(name)
    if found is None:
        raise UsageError(f"the zoo has no {name}; reinstall torchdoctor")
    return found
