"""All probes of one session, each under the name of what it measures."""

from __future__ import annotations

from collections.abc import Callable

from torchdoctor.attach.loop import Loop
from torchdoctor.attach.options import Options
from torchdoctor.probes.activations import ActivationProbe
from torchdoctor.probes.batches import BatchProbe
from torchdoctor.probes.clock import Clock
from torchdoctor.probes.context import Context
from torchdoctor.probes.custody import CustodyProbe
from torchdoctor.probes.device import DeviceProbe
from torchdoctor.probes.frozen import FrozenProbe
from torchdoctor.probes.frozen_state import FrozenStateProbe
from torchdoctor.probes.graph import GraphProbe
from torchdoctor.probes.hunt import Hunt
from torchdoctor.probes.inplace import InplaceProbe
from torchdoctor.probes.interior import InteriorProbe
from torchdoctor.probes.leakage import LeakageProbe
from torchdoctor.probes.library_warnings import LibraryWarnings
from torchdoctor.probes.liveness import LivenessProbe
from torchdoctor.probes.loss_calls import LossCallProbe
from torchdoctor.probes.loss_division import LossDivision
from torchdoctor.probes.loss_values import CalledLoss
from torchdoctor.probes.losses import TrainingLoss, ValidationLoss
from torchdoctor.probes.membership import MembershipProbe
from torchdoctor.probes.modes import ModesProbe
from torchdoctor.probes.nonfinite import NonfiniteProbe
from torchdoctor.probes.operations import OperationProbe
from torchdoctor.probes.optimizers import OptimizerProbe
from torchdoctor.probes.pauses import PauseProbe
from torchdoctor.probes.precision import PrecisionProbe
from torchdoctor.probes.predictions import PredictionProbe
from torchdoctor.probes.residuals import ResidualProbe
from torchdoctor.probes.resuming import ResumingProbe
from torchdoctor.probes.samples import SamplesProbe
from torchdoctor.probes.saved import Packing
from torchdoctor.probes.schedules import ScheduleProbe
from torchdoctor.probes.sharpness import SharpnessProbe
from torchdoctor.probes.spikes import LossWatch, SpikeProbe
from torchdoctor.probes.splits import SplitProbe
from torchdoctor.probes.step_start import StepStart
from torchdoctor.probes.synchronisations import SynchronisationProbe
from torchdoctor.probes.tensors import TensorProbe
from torchdoctor.probes.token_targets import TokenTargetsProbe
from torchdoctor.probes.turning import TurningProbe
from torchdoctor.probes.updates import UpdateProbe
from torchdoctor.probes.wiring import WiringProbe


class Probes:
    def __init__(
        self,
        context: Context,
        loop: Loop,
        options: Options,
        on_nonfinite: Callable[[int, float], None],
        on_high: Callable[[int, float, LossWatch], None],
    ) -> None:
        Packing.seen = False
        self.loss_sites: dict[str, None] = {}
        """lines from which backward was called"""
        self.clock = Clock(context)
        self.step_start = StepStart()
        self.called_loss = CalledLoss(context)
        division = LossDivision(context, self.called_loss.mean_of, lambda: len(self.loss_sites) <= 1)
        self.training_loss = TrainingLoss(context, on_nonfinite, on_high, division)
        self.validation_loss = ValidationLoss(context)
        self.loss_calls = LossCallProbe(context)
        self.predictions = PredictionProbe(context)
        self.residuals = ResidualProbe(context)
        self.samples = SamplesProbe(context)
        self.batches = BatchProbe(context)
        self.membership = MembershipProbe(context, loop)
        self.splits = SplitProbe(context)
        self.spikes = SpikeProbe(context)
        self.leakage = LeakageProbe(context)
        self.tensors = TensorProbe(context)
        self.updates = UpdateProbe(context, options.snapshot_bytes // 2)
        self.turning = TurningProbe(context, options.snapshot_bytes // 2)
        self.activations = ActivationProbe(context)
        self.graph = GraphProbe(context)
        self.interior = InteriorProbe(context)
        self.wiring = WiringProbe(context)
        self.frozen = FrozenProbe(context)
        self.modes = ModesProbe(context)
        self.custody = CustodyProbe(context)
        self.frozen_state = FrozenStateProbe(context)
        self.resuming = ResumingProbe(context)
        self.precision = PrecisionProbe(context)
        self.pauses = PauseProbe(context)
        self.synchronisations = SynchronisationProbe(context)
        self.device = DeviceProbe(context, self.clock)
        self.optimizers = OptimizerProbe(context)
        self.schedules = ScheduleProbe(context)
        self.liveness = LivenessProbe(context)
        self.token_targets = TokenTargetsProbe(context)
        self.sharpness = SharpnessProbe(context)
        self.nonfinite = NonfiniteProbe(context)
        self.operations = OperationProbe(context)
        self.hunt = Hunt(context, self.step_start)
        self.library_warnings = LibraryWarnings(context)
        self.inplace = InplaceProbe(context, self.step_start)
