"""torchdoctor: why a PyTorch training run fails, with the evidence and the fix.

Names load on first use, so that the command line and readers of runs never import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from torchdoctor import plots
    from torchdoctor.checks.preflight import check
    from torchdoctor.doctor import Doctor, watch
    from torchdoctor.engine import examine
    from torchdoctor.errors import StopTraining, TorchdoctorError, TrainingHalted
    from torchdoctor.experiments.seed_experiment import seeds
    from torchdoctor.findings import Evidence, Finding, Fix, Severity, Verdict
    from torchdoctor.instruments.clipping import suggest_clipping
    from torchdoctor.instruments.evaluating.evaluation import evaluate, evaluate_predictions
    from torchdoctor.instruments.learning_rate import schedules
    from torchdoctor.instruments.learning_rate.finding import find_lr
    from torchdoctor.instruments.modes import evaluating, training
    from torchdoctor.instruments.noise_scale import gradient_noise_scale
    from torchdoctor.instruments.one_look.batch_report import validate_batch
    from torchdoctor.instruments.one_look.gradients import gradient_summary
    from torchdoctor.instruments.one_look.nonfinite import find_nonfinite
    from torchdoctor.instruments.one_look.weights import weight_distribution
    from torchdoctor.instruments.overfitting.overfit import overfit_batch
    from torchdoctor.instruments.probing.probe import linear_probe
    from torchdoctor.instruments.repeating.cost import determinism_cost
    from torchdoctor.instruments.repeating.determinism import deterministic, seed_worker
    from torchdoctor.instruments.seeing.attention import attention_maps
    from torchdoctor.instruments.seeing.mistakes import worst_mistakes
    from torchdoctor.instruments.seeing.preview import preview_batches
    from torchdoctor.instruments.seeing.saliency import saliency
    from torchdoctor.instruments.serving.skew import compare_samples
    from torchdoctor.instruments.stability import stable
    from torchdoctor.instruments.weight_space.landscape import landscape
    from torchdoctor.instruments.weight_space.sharpness import sharpness
    from torchdoctor.run import Run
    from torchdoctor.store.reader import open_run

_HOME = {
    "Doctor": "torchdoctor.doctor",
    "watch": "torchdoctor.doctor",
    "check": "torchdoctor.checks.preflight",
    "examine": "torchdoctor.engine",
    "StopTraining": "torchdoctor.errors",
    "TrainingHalted": "torchdoctor.errors",
    "TorchdoctorError": "torchdoctor.errors",
    "Evidence": "torchdoctor.findings",
    "Finding": "torchdoctor.findings",
    "Fix": "torchdoctor.findings",
    "Severity": "torchdoctor.findings",
    "Verdict": "torchdoctor.findings",
    "Run": "torchdoctor.run",
    "open_run": "torchdoctor.store.reader",
    "seeds": "torchdoctor.experiments.seed_experiment",
    "attention_maps": "torchdoctor.instruments.seeing.attention",
    "worst_mistakes": "torchdoctor.instruments.seeing.mistakes",
    "preview_batches": "torchdoctor.instruments.seeing.preview",
    "saliency": "torchdoctor.instruments.seeing.saliency",
    "compare_samples": "torchdoctor.instruments.serving.skew",
    "evaluate": "torchdoctor.instruments.evaluating.evaluation",
    "evaluate_predictions": "torchdoctor.instruments.evaluating.evaluation",
    "evaluating": "torchdoctor.instruments.modes",
    "training": "torchdoctor.instruments.modes",
    "gradient_summary": "torchdoctor.instruments.one_look.gradients",
    "find_lr": "torchdoctor.instruments.learning_rate.finding",
    "find_nonfinite": "torchdoctor.instruments.one_look.nonfinite",
    "weight_distribution": "torchdoctor.instruments.one_look.weights",
    "sharpness": "torchdoctor.instruments.weight_space.sharpness",
    "landscape": "torchdoctor.instruments.weight_space.landscape",
    "suggest_clipping": "torchdoctor.instruments.clipping",
    "gradient_noise_scale": "torchdoctor.instruments.noise_scale",
    "validate_batch": "torchdoctor.instruments.one_look.batch_report",
    "linear_probe": "torchdoctor.instruments.probing.probe",
    "deterministic": "torchdoctor.instruments.repeating.determinism",
    "seed_worker": "torchdoctor.instruments.repeating.determinism",
    "determinism_cost": "torchdoctor.instruments.repeating.cost",
    "overfit_batch": "torchdoctor.instruments.overfitting.overfit",
}
_MODULES = {
    "plots": "torchdoctor.plots",
    "schedules": "torchdoctor.instruments.learning_rate.schedules",
    "stable": "torchdoctor.instruments.stability.stable",
}
__all__ = [
    "Doctor",
    "Evidence",
    "Finding",
    "Fix",
    "Run",
    "Severity",
    "StopTraining",
    "TorchdoctorError",
    "TrainingHalted",
    "Verdict",
    "attention_maps",
    "check",
    "compare_samples",
    "determinism_cost",
    "deterministic",
    "evaluate",
    "evaluate_predictions",
    "evaluating",
    "examine",
    "find_lr",
    "find_nonfinite",
    "gradient_noise_scale",
    "gradient_summary",
    "landscape",
    "linear_probe",
    "open_run",
    "overfit_batch",
    "plots",
    "preview_batches",
    "saliency",
    "schedules",
    "seed_worker",
    "seeds",
    "sharpness",
    "stable",
    "suggest_clipping",
    "training",
    "validate_batch",
    "watch",
    "weight_distribution",
    "worst_mistakes",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'torchdoctor' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
