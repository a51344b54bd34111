"""What a person sees, and the causes to test for it, in the order that finds them soonest.

Findings name their symptoms by these names; `torchdoctor explain SYMPTOM` walks the table. Plain data.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """One line of the table. `names` are public ids; the first is the usual one."""

    names: tuple[str, ...]
    seen: str
    """what a person sees, in a sentence"""
    causes: tuple[str, ...]
    """names of diagnoses, the first to test first"""
    check: str
    """the look that tells most of them apart"""
    way_out: str

    @property
    def name(self) -> str:
        return self.names[0]


TABLE: tuple[Symptom, ...] = (
    Symptom(
        ("nan-at-first-step",),
        "The very first loss is NaN or infinite.",
        (
            *("nan-in-inputs", "nan-in-targets", "nonfinite-parameters", "bad-initialization-scale"),
            *("log-of-zero", "exp-overflow"),
        ),
        "Are the first batch's inputs and targets, and the weights before it, all finite?",
        "Clean the data, or write the operation that fails in a stable form.",
    ),
    Symptom(
        ("nan-later",),
        "The loss is fine for a while, then NaN or infinite.",
        (
            *("exploding-gradients", "learning-rate-too-high", "log-of-zero", "division-by-zero", "sqrt-at-zero"),
            *("half-precision-overflow", "outlier-batch"),
        ),
        "Did gradient norms climb in the steps before, and which operation was the first to give NaN?",
        "Clip, lower the rate, or write the operation in its stable form.",
    ),
    Symptom(
        ("flat-from-start",),
        "The loss does not move from its first value.",
        (
            *("no-parameter-update", "disconnected-parameters", "parameters-not-optimized", "frozen-parameters"),
            *("inputs-and-labels-unrelated", "softmax-before-cross-entropy", "symmetric-initialization", "dead-relu"),
            "learning-rate-too-low",
        ),
        "Do the parameters change at all, and can the model learn one batch by heart?",
        "Connect what is cut off, register what is missing, repair the loss.",
    ),
    Symptom(
        ("stuck-at-chance",),
        "The loss stays where guessing would put it: ln(classes) for a classifier.",
        (
            *("inputs-and-labels-unrelated", "invalid-labels", "softmax-before-cross-entropy", "dead-relu"),
            *("misplaced-activation", "representation-collapse", "learning-rate-too-high"),
        ),
        "Can it learn one batch by heart, and do its outputs differ between inputs?",
        "Pair inputs with their own labels; repair the last layers.",
    ),
    Symptom(
        ("flat-after-drop",),
        "The loss falls at first, then lies flat far above where it should end.",
        ("learning-rate-decayed-too-early", "capacity-too-low", "plateau-or-saddle", "vanishing-gradients"),
        "Where is the learning rate on its schedule, and do all layers still get gradients?",
        "Stretch the schedule; a larger model; skip connections.",
    ),
    Symptom(
        ("slow-descent",),
        "The loss falls steadily, but so slowly that the run will never get there.",
        (
            *("learning-rate-too-low", "softmax-before-cross-entropy", "unnormalized-inputs", "vanishing-gradients"),
            *("saturated-activations", "clipping-too-tight"),
        ),
        "How large is a step against the weight that it changes (about 1e-3 is usual)?",
        "Raise the rate; normalise the inputs; feed the loss what it expects.",
    ),
    Symptom(
        ("diverging",),
        "The loss rises and goes on rising.",
        (
            *("learning-rate-too-high", "missing-zero-grad", "exploding-gradients", "unintended-gradient-scale"),
            *("unnormalized-inputs", "loss-sign-flipped"),
        ),
        "Which grows first: the gradient norm, or the step against the weights?",
        "Lower the rate, clear gradients before each backward, clip.",
    ),
    Symptom(
        ("spikes",),
        "The loss jumps up on single steps and comes back.",
        (
            *("outlier-batch", "learning-rate-too-high", "missing-warmup", "attention-collapse"),
            "half-precision-overflow",
        ),
        "What is in the batch of the jump: inputs or labels unlike the others?",
        "Look at those samples; clip; warm the rate up.",
    ),
    Symptom(
        ("oscillating", "late-oscillation"),
        "The loss goes up and down without settling, throughout or near the end.",
        ("learning-rate-oscillation", "batch-too-small", "not-shuffled"),
        "Is the data shuffled, and is the rate still high where the loss should settle?",
        "Let the rate decay; take larger batches; shuffle.",
    ),
    Symptom(
        ("sawtooth",),
        "The loss repeats a pattern, often once an epoch.",
        ("not-shuffled", "scheduler-misuse"),
        "In which order do labels come, and does the pattern's period match the schedule's?",
        "Shuffle; step the schedule in the unit that it was made for.",
    ),
    Symptom(
        ("too-good-too-soon",),
        "The loss is close to zero, or the metric close to perfect, within a few steps.",
        ("missing-target-shift", "label-leakage", "train-validation-overlap", "metric-implementation-wrong"),
        "Can the model see the answer: output t the input t + 1, or a feature that is the label?",
        "Shift the targets, apply the mask, take the leak out.",
    ),
    Symptom(
        ("train-down-validation-up",),
        "Training loss falls on while validation loss turns and rises.",
        ("overfitting", "noisy-labels", "miscalibrated"),
        "At which step does it turn, and does accuracy turn with it?",
        "In this order: more data, augmentation, weight decay, dropout, stopping early.",
    ),
    Symptom(
        ("train-down-validation-flat", "validation-flat"),
        "Training loss falls, validation stays where it is.",
        (
            *("train-validation-mismatch", "train-mode-in-evaluation", "stale-evaluation"),
            *("inputs-and-labels-unrelated", "metric-disagrees-with-loss"),
        ),
        "Is validation data prepared like training data, and is it the very same number each time?",
        "One code path for both; evaluate the current model afresh.",
    ),
    Symptom(
        ("both-high-and-equal",),
        "Training and validation loss are the same, and both poor.",
        (
            *("capacity-too-low", "over-regularized", "learning-rate-too-low", "vanishing-gradients"),
            "unnormalized-inputs",
        ),
        "Can the model learn one batch by heart?",
        "If it can: rate and regularisation. If it cannot: capacity, or a fault inside.",
    ),
    Symptom(
        ("validation-jumps",),
        "Validation goes up and down from one pass to the next.",
        ("noisy-validation", "train-mode-in-evaluation", "eval-mode-in-training", "batchnorm-small-batch"),
        "How many validation samples are there, and in which mode does the model run on them?",
        "More validation samples; set the modes; larger batches for batch normalisation.",
    ),
    Symptom(
        ("validation-above-training",),
        "The model does better on validation than on training data.",
        ("validation-better-than-training", "over-regularized", "train-validation-overlap", "eval-mode-in-training"),
        "What is the training loss in eval mode, without augmentation?",
        "Weaker augmentation or dropout; check how the split was made.",
    ),
    Symptom(
        ("good-loss-bad-metric", "metric-flat-while-loss-falls"),
        "The loss improves and the metric that matters does not.",
        (
            *("metric-implementation-wrong", "metric-disagrees-with-loss", "class-imbalance"),
            "majority-class-collapse",
        ),
        "Does the metric come out the same when computed anew from the predictions?",
        "Repair the metric; look at each class by itself.",
    ),
    Symptom(
        ("high-accuracy-fails-in-use",),
        "The figures are good and the model is not, once it is used.",
        ("class-imbalance", "label-leakage", "training-serving-skew", "miscalibrated", "weak-slice"),
        "What is the recall of each class, and what would always guessing the commonest one score?",
        "A balanced metric; calibration; the same preparation of data in use as in training.",
    ),
    Symptom(
        ("loss-jump-at-resume",),
        "The loss jumps where training goes on from a checkpoint.",
        ("resume-without-state", "weights-overwritten", "environment-differs"),
        "Were the optimizer's state and the schedule's position loaded, too?",
        "Save and load model, optimizer, schedule, scaler and step together.",
    ),
    Symptom(
        ("slow-steps", "gpu-busy-but-slow"),
        "Steps take longer than the work in them should.",
        (
            *("input-bound", "host-sync-bound", "slow-transfer", "small-kernels", "memory-bound-kernels"),
            *("device-underfilled", "periodic-stall"),
        ),
        "Where does a step's time go: loader, copies, launches, or the device itself?",
        "Loader workers; no .item() in the loop; larger batches; fused operations.",
    ),
    Symptom(
        ("growing-memory",),
        "Memory grows from step to step until it runs out.",
        ("graph-kept-alive", "memory-growth", "gradients-in-evaluation"),
        "Which tensor that is kept between steps has a grad_fn?",
        "Keep numbers, not tensors: .item() or .detach(); validate under no_grad.",
    ),
    Symptom(
        ("runs-differ",),
        "The same script gives other results from run to run.",
        ("unseeded-randomness", "nondeterministic-operations", "environment-differs", "within-seed-noise"),
        "Do two starts with one seed agree on the first steps?",
        "Seed every source of chance; compare means over several seeds.",
    ),
)


def find(name: str) -> Symptom | None:
    """The symptom of that name."""
    return next((s for s in TABLE if name in s.names), None)


def names() -> list[str]:
    return [name for symptom in TABLE for name in symptom.names]


def of_cause(diagnosis: str) -> list[str]:
    """The symptoms behind which this diagnosis may stand, those first where it is tested earliest."""
    found = [(s.causes.index(diagnosis), s.name) for s in TABLE if diagnosis in s.causes]
    return [name for _, name in sorted(found, key=lambda item: item[0])]
