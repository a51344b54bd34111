"""Diagnoses that a peer's findings may stand for, one table for each peer, by the peer's own name for the finding.

A table is read generously: a finding may stand for every diagnosis that its text or its advice allows. A finding that
stands for none is still an alarm. Records hold the peers' own names, so a table can be changed without another run.
"""

from __future__ import annotations

from collections.abc import Mapping

NONFINITE = (
    *("nonfinite-parameters", "exploding-gradients", "learning-rate-too-high", "nan-in-inputs", "nan-in-targets"),
    *("log-of-zero", "division-by-zero", "sqrt-at-zero", "exp-overflow", "half-precision-overflow"),
)
"""Diagnoses that a report of NaN or Inf without a cause may stand for, read generously."""

TORCHMORTEM = {
    "Vanishing gradients detected": ("vanishing-gradients", "saturated-activations"),
    "Exploding gradients detected": ("exploding-gradients", "learning-rate-too-high", "bad-initialization-scale"),
    "Gradient stalling": ("vanishing-gradients", "dead-relu", "saturated-activations", "disconnected-parameters"),
    "Dead units": ("dead-relu", "learning-rate-too-high", "bad-initialization-scale"),
    "Activation saturation": ("saturated-activations", "learning-rate-too-high", "bad-initialization-scale"),
    "Update ratio too low": ("learning-rate-too-low", "vanishing-gradients", "no-parameter-update"),
    "Update ratio too high": ("learning-rate-too-high", "missing-warmup"),
    "Training divergence detected": (
        *("learning-rate-too-high", "exploding-gradients", "loss-sign-flipped", "missing-warmup"),
    ),
    "Loss plateau detected": (
        *("plateau-or-saddle", "learning-rate-too-low", "learning-rate-decayed-too-early"),
        *("capacity-too-low", "underfitting"),
    ),
    "Catapult phase detected": ("learning-rate-too-high", "missing-warmup"),
    "Edge of stability regime detected": ("learning-rate-oscillation", "learning-rate-too-high"),
    "Rank collapse": ("representation-collapse", "over-regularized", "learning-rate-too-high"),
    "Weight norm explosion": ("weight-norm-growth", "learning-rate-too-high", "exploding-gradients"),
    "Stagnant weight norms": (
        *("no-parameter-update", "parameters-not-optimized", "frozen-parameters"),
        *("disconnected-parameters", "learning-rate-too-low", "vanishing-gradients"),
    ),
    "Inter-layer weight norm imbalance": ("bad-initialization-scale", "abnormal-distribution"),
    "High gradient noise (low SNR)": ("batch-too-small", "learning-rate-oscillation"),
}
TORCH_AUDIT = {
    "TA000": (),  # one of its validators failed
    "TA100": (*NONFINITE, "bad-initialization-scale"),
    "TA102": ("exploding-gradients", "learning-rate-too-high", "unintended-gradient-scale"),
    "TA103": ("dead-relu", "vanishing-gradients", "disconnected-parameters", "bad-initialization-scale"),
    "TA104": ("no-parameter-update", "disconnected-parameters", "frozen-parameters"),
    "TA105": ("dead-relu", "learning-rate-too-high", "bad-initialization-scale"),
    "TA200": ("device-underfilled", "small-kernels"),
    "TA201": ("memory-bound-kernels",),
    "TA202": ("slow-transfer",),
    "TA203": ("autocast-not-applied",),
    "TA300": ("slow-transfer",),
    "TA301": ("unnormalized-inputs", "outlier-batch"),
    "TA302": ("constant-inputs",),
    "TA303": ("samples-mixed",),
    "TA304": ("batchnorm-small-batch", "batch-too-small"),
    "TA305": ("invalid-labels", "nan-in-inputs"),
    "TA400": (),  # a bias before a normalisation is of no consequence
    "TA401": ("optimizer-misconfigured", "over-regularized"),
    "TA402": ("optimizer-misconfigured", "over-regularized"),
    "TA403": ("optimizer-misconfigured", "over-regularized"),
    "TA404": (),  # even kernel sizes
    "TA405": ("dead-relu", "bad-initialization-scale", "symmetric-initialization"),
    "TA500": ("disconnected-parameters", "parameters-not-optimized"),
    "TA501": ("shared-by-mistake",),
}
TORCHDIAG = {
    "EXPLODE": ("exploding-gradients", "learning-rate-too-high", "unintended-gradient-scale"),
    "VANISH": ("vanishing-gradients", "dead-relu", "saturated-activations"),
    "no_grad": ("disconnected-parameters", "parameters-not-optimized"),
    "dead neurons": ("dead-relu", "learning-rate-too-high", "bad-initialization-scale"),
    "all frozen": ("frozen-parameters",),
}
NEURAL_OBSERVATORY = {
    "dead neurons": ("dead-relu", "learning-rate-too-high", "bad-initialization-scale"),
    "NaN or Inf": NONFINITE,
    "Vanishing gradients": ("vanishing-gradients",),
    "Exploding gradients": ("exploding-gradients", "learning-rate-too-high"),
    "Gradient norm collapsed": (
        *("vanishing-gradients", "dead-relu", "plateau-or-saddle", "learning-rate-decayed-too-early"),
    ),
    "High sparsity": ("dead-relu",),
    "High saturation": ("saturated-activations", "vanishing-gradients"),
    "activation norm spike": ("outlier-batch", "exploding-gradients"),
    "gradient norm spike": ("outlier-batch", "exploding-gradients"),
    "High parameter drift": ("learning-rate-too-high", "weights-overwritten"),
    "Large step-to-step": ("learning-rate-too-high",),
    "Parameter norm near zero": ("weight-norm-growth", "over-regularized"),
    "embedding drift": ("learning-rate-too-high", "weights-overwritten"),
    "attention entropy": ("attention-collapse",),
    "other": (),
}
MLDOCT = {
    "cpu_bottleneck": ("input-bound",),
    "missing_eval": ("train-mode-in-evaluation",),
    "oom_leak": ("graph-kept-alive", "memory-growth"),
    "missing_zero_grad": ("missing-zero-grad",),
    "double_softmax": ("softmax-before-cross-entropy",),
    "missing_clip": ("exploding-gradients",),
    "syntax_error": (),
}
MEANINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "torchmortem": TORCHMORTEM,
    "torch-audit": TORCH_AUDIT,
    "torchdiag": TORCHDIAG,
    "neural-observatory": NEURAL_OBSERVATORY,
    "mldoct": MLDOCT,
}
