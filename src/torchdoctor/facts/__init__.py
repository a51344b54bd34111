"""What is observed once and holds until it changes: wiring, modes, call order, shapes, places.

A fact is written when it is first seen and again when it changes, so a run of a million steps has few. Each kind is one
dataclass, in the module of its family; `to_dict` and `from_dict` are its form on disk. A field that was not seen is
None.
"""

from __future__ import annotations

from torchdoctor.facts.base import TRAIN, UNKNOWN, VALIDATION, Fact
from torchdoctor.facts.course import (
    ComparisonFact,
    HealthFact,
    LibraryWarningFact,
    PauseFact,
    PhaseFact,
    RemedyFact,
    SynchronisationFact,
)
from torchdoctor.facts.data import (
    FeaturesFact,
    InputsFact,
    LabelsFact,
    LeakageFact,
    LoaderFact,
    MembershipFact,
    SplitFact,
    TokensFact,
    ValidationBatchFact,
)
from torchdoctor.facts.device import DeviceFact, TransferFact
from torchdoctor.facts.loss import GraphFact, LossCallFact, LossDivisionFact, SpikeFact, TokenTargetsFact
from torchdoctor.facts.model import (
    DropoutFact,
    FrozenChangeFact,
    FrozenFact,
    LayersFact,
    ModelFact,
    ModuleFact,
    ParameterFact,
    WiringFact,
)
from torchdoctor.facts.numerics import (
    GAVE_UP,
    MODEL_INPUT,
    NO_BACKWARD,
    OTHER_INPUT,
    BirthFact,
    HalfOperationFact,
    NonfiniteFact,
    OperationFact,
    PrecisionFact,
)
from torchdoctor.facts.outcome import TEMPERATURES, FixedSamplesFact, PredictionsFact, SamplesFact, SharpnessFact
from torchdoctor.facts.places import LandscapeFact
from torchdoctor.facts.procedure import (
    CallSiteFact,
    ClipFact,
    ModesFact,
    OptimizerFact,
    OrderFact,
    OverwriteFact,
    ResumeFact,
    SchedulerFact,
)
from torchdoctor.facts.repeats import SeedsFact, StartsFact
from torchdoctor.facts.use import SkewFact

__all__ = [
    "GAVE_UP",
    "KINDS",
    "MODEL_INPUT",
    "NO_BACKWARD",
    "OTHER_INPUT",
    "TEMPERATURES",
    "TRAIN",
    "UNKNOWN",
    "VALIDATION",
    "BirthFact",
    "CallSiteFact",
    "ClipFact",
    "ComparisonFact",
    "DeviceFact",
    "DropoutFact",
    "Fact",
    "FeaturesFact",
    "FixedSamplesFact",
    "FrozenChangeFact",
    "FrozenFact",
    "GraphFact",
    "HalfOperationFact",
    "HealthFact",
    "InputsFact",
    "LabelsFact",
    "LandscapeFact",
    "LayersFact",
    "LeakageFact",
    "LibraryWarningFact",
    "LoaderFact",
    "LossCallFact",
    "LossDivisionFact",
    "MembershipFact",
    "ModelFact",
    "ModesFact",
    "ModuleFact",
    "NonfiniteFact",
    "OperationFact",
    "OptimizerFact",
    "OrderFact",
    "OverwriteFact",
    "ParameterFact",
    "PauseFact",
    "PhaseFact",
    "PrecisionFact",
    "PredictionsFact",
    "RemedyFact",
    "ResumeFact",
    "SamplesFact",
    "SchedulerFact",
    "SeedsFact",
    "SharpnessFact",
    "SkewFact",
    "SpikeFact",
    "SplitFact",
    "StartsFact",
    "SynchronisationFact",
    "TokenTargetsFact",
    "TokensFact",
    "TransferFact",
    "ValidationBatchFact",
    "WiringFact",
]


def _subclasses(cls: type[Fact]) -> list[type[Fact]]:
    return [cls, *(s for c in cls.__subclasses__() for s in _subclasses(c))]


KINDS: dict[str, type[Fact]] = {c.kind: c for c in _subclasses(Fact) if c.kind}
