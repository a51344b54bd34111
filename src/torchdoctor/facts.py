"""What is observed once and holds until it changes: wiring, modes, call order, shapes, places.

A fact is written when it is first seen and again when it changes, so a run of a million steps has few. Each
kind is one dataclass; `to_dict` and `from_dict` are its form on disk. A field that could not be seen is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

F = TypeVar("F", bound="Fact")

TRAIN, VALIDATION, UNKNOWN = "train", "validation", "unknown"
"""The phases a forward pass, a loss call or a batch can belong to."""


@dataclass(frozen=True)
class Fact:
    """Base of all facts. `kind` names the class on disk; `subject` tells facts of one kind apart."""

    kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls: type[F], data: Mapping[str, Any]) -> F:
        """Build from what a reader found; unknown fields (from a newer minor version) are left out."""
        names = {f.name for f in dataclasses.fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in names})


@dataclass(frozen=True)
class ModelFact(Fact):
    """A root module: one that no other module called."""

    kind: ClassVar[str] = "model"
    name: str
    type: str
    parameters: int
    trainable: int
    modules: int
    compiled: bool = False


@dataclass(frozen=True)
class ParameterFact(Fact):
    """One parameter, by the user's own name."""

    kind: ClassVar[str] = "parameter"
    name: str
    shape: list[int]
    dtype: str
    device: str
    module: str
    module_type: str
    order: int | None = None
    """Position in the forward pass, 0 first, from the graph; None if the loss never reached it."""
    renamed: bool = False
    """it goes by another name since a second model was found"""


@dataclass(frozen=True)
class ModuleFact(Fact):
    """One module whose output is measured, or an activation function found in the graph."""

    kind: ClassVar[str] = "module"
    name: str
    type: str
    activation: str | None = None
    """relu, leaky_relu, elu, gelu, silu, sigmoid, tanh, softmax ... where it is an activation."""
    order: int | None = None
    units: int | None = None
    inside_compiled: bool = False


@dataclass(frozen=True)
class OptimizerFact(Fact):
    """An optimizer and its groups' hyperparameters (numbers and flags only)."""

    kind: ClassVar[str] = "optimizer"
    key: str
    type: str
    groups: list[dict[str, Any]]
    parameters: int
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class SchedulerFact(Fact):
    kind: ClassVar[str] = "scheduler"
    key: str
    type: str
    optimizer: str | None
    file: str | None = None
    line: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """its numbers: step_size, gamma, T_max, total_steps, milestones ..."""
    calls: int = 0
    """calls of its step() so far, the one at its creation left out"""
    called_at: list[int] = field(default_factory=list)
    """updates that had been made at each of its first calls"""
    last_at: int = 0
    """the same at its last call"""
    nested: bool = False
    """another scheduler steps it"""
    made_file: str | None = None
    made_line: int | None = None


@dataclass(frozen=True)
class WiringFact(Fact):
    """Which parameters are trained, seen after `updates` updates. Lists hold parameter names."""

    kind: ClassVar[str] = "wiring"
    updates: int
    total: int
    frozen: list[str] = field(default_factory=list)
    """do not require gradients"""
    unheld: list[str] = field(default_factory=list)
    """require gradients, and no optimizer that was ever stepped or built holds them"""
    unreached: list[str] = field(default_factory=list)
    """require gradients, held by an optimizer that stepped, and never got a gradient from any backward"""
    used: list[str] = field(default_factory=list)
    """of the unheld: those that got a gradient, so the loss depends on them"""
    unregistered: list[str] = field(default_factory=list)
    """nn.Parameters the loss reached that no module and no optimizer holds (a module in a plain list), by place or
    shape; plain tensors that require gradients (inputs of a gradient penalty, points of a physics loss) do not count"""
    stale: int = 0
    """parameters in an optimizer that belong to no module seen in a forward pass and never got a gradient"""
    unchanged: list[str] = field(default_factory=list)
    """held, and bit-for-bit equal to what they were at the first look"""
    changed_outside: list[str] = field(default_factory=list)
    """changed between the end of one update and the start of the next"""
    frozen_changed: list[str] = field(default_factory=list)
    detached_at: str | None = None
    """file:line of a detach or no_grad block that cuts the unreached off, where it could be seen"""
    loaded: list[str] | None = None
    """of the unheld and unreached: those that load_state_dict filled before the first update (pretrained, so leaving
    them alone may be meant); None where loading was not watched"""


@dataclass(frozen=True)
class OrderFact(Fact):
    """The calls of one step, in order, run-length encoded: ["zero_grad", "forward", "backward", "clip", "step"]."""

    kind: ClassVar[str] = "order"
    optimizer: str
    calls: list[str]
    closure: bool = False


@dataclass(frozen=True)
class CallSiteFact(Fact):
    """Where the user's code calls something (backward, step, zero_grad, clip, eval, train, scheduler)."""

    kind: ClassVar[str] = "call_site"
    call: str
    file: str
    line: int
    code: str = ""


@dataclass(frozen=True)
class LossCallFact(Fact):
    """A call of a torch loss function, seen at the call or in the graph."""

    kind: ClassVar[str] = "loss_call"
    function: str
    """cross_entropy, nll_loss, mse_loss, binary_cross_entropy_with_logits, binary_cross_entropy, l1_loss ..."""
    phase: str
    input_shape: list[int]
    input_dtype: str
    target_shape: list[int] | None
    target_dtype: str | None
    reduction: str | None = None
    label_smoothing: float | None = None
    ignore_index: int | None = None
    weighted: bool = False
    """class weights or pos_weight were given"""
    input_low: float | None = None
    input_high: float | None = None
    rows_sum_to_one: bool | None = None
    """every row of the input sums to one and lies in 0..1"""
    target_low: float | None = None
    target_high: float | None = None
    target_integral: bool | None = None
    """every target is a whole number"""
    ignored: float | None = None
    """share of targets equal to ignore_index"""
    classes: int | None = None
    """width of the class dimension, for classification losses"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class GraphFact(Fact):
    """The operators between the loss and the last parametrised layer, nearest to the loss first.

    `nodes` holds {"op": "SoftmaxBackward0", "file", "line", "depth", "shape"}; depth is the distance from the root;
    `file`, `line`, `shape` (of the operator's output, or None) where known. The walk stops at operators that use a
    parameter directly; these are listed too, with "parameters": [names]. "inputs" holds the positions in `nodes` of
    the operators whose output this one takes (next_functions); without it only an unbranched graph can be read.
    """

    kind: ClassVar[str] = "graph"
    root: str
    """the root operator"""
    loss_shape: list[int]
    nodes: list[dict[str, Any]]
    operators: dict[str, int]
    """how often each operator occurs in the whole graph"""
    file: str | None = None
    line: int | None = None
    truncated: bool = False
    opaque: bool = False
    """the graph runs through a compiled region whose inside cannot be seen"""


@dataclass(frozen=True)
class ModesFact(Fact):
    """How forward passes of one phase ran. Written when any of it changes."""

    kind: ClassVar[str] = "modes"
    model: str
    phase: str
    training: bool
    """the root's flag"""
    grad_enabled: bool
    dropout_training: list[str] = field(default_factory=list)
    """dropout modules (p > 0) in train mode"""
    dropout_eval: list[str] = field(default_factory=list)
    norm_training: list[str] = field(default_factory=list)
    """normalisation modules that keep running statistics, in train mode"""
    norm_eval: list[str] = field(default_factory=list)
    norm_frozen: list[str] = field(default_factory=list)
    """of norm_eval: those whose own weight does not require gradients either (frozen on purpose)"""
    passes: int = 1
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class DropoutFact(Fact):
    """The share that each dropout module of a model drops, by name; those that drop nothing are left out."""

    kind: ClassVar[str] = "dropout"
    model: str
    shares: dict[str, float]


@dataclass(frozen=True)
class InputsFact(Fact):
    """One look at a batch as the model got it. Statistics over finite elements.

    `features` describes the columns of a 2-D input or the channels (dimension 1) of a 3-D to 5-D one, at most 256
    of them: lists of mean, std, low, high. None for token ids (integer inputs).
    """

    kind: ClassVar[str] = "inputs"
    phase: str
    role: str
    """"input" or "target" """
    shape: list[int]
    dtype: str
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None
    nonfinite: int = 0
    feature_dim: int | None = None
    feature_mean: list[float] | None = None
    feature_std: list[float] | None = None
    feature_low: list[float] | None = None
    feature_high: list[float] | None = None
    fingerprints: list[int] = field(default_factory=list)
    """a 64-bit hash of each sample's bytes, at most 256 samples"""


@dataclass(frozen=True)
class NonfiniteFact(Fact):
    """The first time something held NaN or Inf."""

    kind: ClassVar[str] = "nonfinite"
    role: str
    """loss, gradient, weight, buffer, input, target, activation"""
    name: str
    phase: str
    count: int
    nan: int
    samples: list[int] = field(default_factory=list)
    """indices in the batch, at most 16"""
    features: list[int] = field(default_factory=list)
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class LabelsFact(Fact):
    """Label counts of integer targets since the fact before it."""

    kind: ClassVar[str] = "labels"
    phase: str
    counts: dict[str, int]
    batches: int


@dataclass(frozen=True)
class PredictionsFact(Fact):
    """Predictions against labels over one validation pass, or over a window of training looks."""

    kind: ClassVar[str] = "predictions"
    phase: str
    classes: int
    samples: int
    support: list[int]
    correct: list[int]
    predicted: list[int]
    confidence: float | None = None


@dataclass(frozen=True)
class SamplesFact(Fact):
    """Predictions sample by sample over one validation pass, a window of training looks, or what the user logged."""

    kind: ClassVar[str] = "samples"
    phase: str
    task: str
    """classes, regression, multilabel"""
    samples: int
    loss: float
    classes: int | None = None
    correct: int | None = None
    logged: bool = False
    """given to doctor.log_predictions"""
    site: str = ""
    """the loss call it was seen at"""
    whole: bool = True
    """every row is a sample (not a token or pixel), and none was left out"""
    metrics: dict[str, float] = field(default_factory=dict)
    """the usual metrics: accuracy, balanced_accuracy, macro_f1, ... or mse, rmse, mae, r2"""
    ece: float | None = None
    """expected calibration error over `bins`"""
    bins: list[list[float]] = field(default_factory=list)
    """by confidence in equal steps from 0 to 1: [samples, mean confidence, share right]"""
    tenths: list[list[float]] = field(default_factory=list)
    """by confidence in groups of equal size, least first: [samples, wrong, mean confidence]"""
    ranks: list[int] = field(default_factory=list)
    """of the wrong ones: how many classes scored above the true one, 1 first; the last counts all beyond"""
    unlikely: int = 0
    """of the wrong ones: those whose true class scored in the lower half of all classes"""
    confused: list[list[int]] = field(default_factory=list)
    """[true class, predicted class, samples], most frequent first"""
    rescaled: list[float] = field(default_factory=list)
    """mean loss with the logits divided by each of TEMPERATURES"""
    worst: list[dict[str, Any]] = field(default_factory=list)
    """samples of the largest loss: {"index" in the order of the pass, "loss", "label", "predicted", "confidence"}"""
    slices: list[dict[str, Any]] = field(default_factory=list)
    """{"by", "low", "high", "samples", "loss", "correct", "spread"}: groups by an attribute of the input or target"""


TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True)
class FixedSamplesFact(Fact):
    """The model's outputs for the first few samples of a validation pass, by their fingerprints."""

    kind: ClassVar[str] = "fixed_samples"
    fingerprints: list[int]
    outputs: list[list[float]]


@dataclass(frozen=True)
class ClipFact(Fact):
    kind: ClassVar[str] = "clip"
    how: str
    """norm or value"""
    threshold: float
    norm_type: float | None
    parameters: int
    after_step: bool = False
    """called between the step and the next backward"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class TokenTargetsFact(Fact):
    """Token ids that a model was given, against the ids that its loss wanted for the same sequences."""

    kind: ClassVar[str] = "token_targets"
    input_shape: list[int]
    target_shape: list[int]
    same: float
    """share of targets equal to the input at their own position, where the next one differs"""
    following: float
    """share of targets equal to the next input"""
    causal: int = 0
    """attention operators over the sequence that see nothing ahead"""
    ahead: int = 0
    """those that do"""
    both_ways: list[str] = field(default_factory=list)
    """recurrent modules that run in both directions"""
    by_position: bool | None = None
    """outputs hang on inputs along the sequence, not through one code for all of it; None where it cannot be seen"""
    single: bool = True
    """these ids are all that the model was given beside the targets"""
    ignored: float = 0.0
    """share of negative targets, which the loss skips"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class LoaderFact(Fact):
    kind: ClassVar[str] = "loader"
    name: str
    phase: str
    batches: int | None
    samples: int | None
    batch_size: int | None
    workers: int
    shuffled: bool | None
    """by its sampler's type; None for an iterable dataset or a sampler of the user's"""
    dataset: str
    pin_memory: bool = False


@dataclass(frozen=True)
class PhaseFact(Fact):
    """What the loop was taken to be; the last one stands. Shown to the user so that a wrong inference shows."""

    kind: ClassVar[str] = "phase"
    updates: int
    backwards: int
    passes_train: int
    passes_validation: int
    passes_unknown: int
    validations: int
    """number of validation phases"""
    updates_between_validations: float | None
    """median"""
    loss_sites: list[str] = field(default_factory=list)
    validation_sites: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what was not understood, in words"""


@dataclass(frozen=True)
class HealthFact(Fact):
    """What torchdoctor itself dropped, switched off or does not support; and the overhead reached."""

    kind: ClassVar[str] = "own_health"
    UNNOTICED_SECONDS: ClassVar[float] = 0.5
    """of our own time in a whole run; until then a share of a short run says little"""
    overhead: float | None
    """share of the bare step time, after the first steps"""
    budget: float
    dropped: dict[str, int] = field(default_factory=dict)
    disabled: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    cadence: dict[str, int] = field(default_factory=dict)
    settling_seconds: float | None = None
    """what the first steps were slowed down by, once: they are looked at closely whatever it costs"""
    own_seconds: float | None = None
    """what all steps after them were slowed down by"""


@dataclass(frozen=True)
class OverwriteFact(Fact):
    """Parameters that an optimizer goes on with were found other than its last update had left them."""

    kind: ClassVar[str] = "overwrite"
    optimizer: str
    parameters: list[str]
    share: float
    """of the elements that the optimizers hold"""
    restored: list[str] = field(default_factory=list)
    """of them: bit for bit what an earlier update had found or left"""
    restored_step: int | None = None
    """the step of the oldest of these states"""
    copies: dict[str, str] = field(default_factory=dict)
    """of them: bit for bit equal to another parameter, by name"""
    evaluated: bool | None = None
    """the validation in between ran on these very values; None where there was none"""
    how: str | None = None
    """load_state_dict or init, where one of them was called since; None: by other means"""
    within: bool = False
    """between two updates that follow each other, not across the end of an epoch or a load"""
    looks: int = 1
    """how often it was looked at this kind of place, so far"""
    hits: int = 1
    """how often something was found there, so far"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class FrozenChangeFact(Fact):
    """Something that does not require gradients, and what training did to it."""

    kind: ClassVar[str] = "frozen_change"
    updates: int
    changed: list[str] = field(default_factory=list)
    """parameters that an optimizer's own step changed"""
    gradients: str | None = None
    """what they had for a gradient then: "zero" or "old" """
    optimizer: str | None = None
    norms: list[str] = field(default_factory=list)
    """normalisation modules behind frozen layers only, frozen themselves, whose running statistics moved"""
    drift: float | None = None
    """largest move of a running mean since it was first seen, in its standard deviations"""


@dataclass(frozen=True)
class ResumeFact(Fact):
    """An optimizer made its first update on parameters that load_state_dict had filled just before."""

    kind: ClassVar[str] = "resume"
    optimizer: str
    share: float
    """of its elements that were loaded"""
    empty: bool
    """it had no state"""
    loaded: bool
    """its load_state_dict was called"""
    start: bool
    """the values are those that a training of this process began with or was given before: a new start"""
    saved_optimizer: bool
    """the checkpoint held an optimizer's state, or this process asked an optimizer for it"""
    saved_scheduler: bool
    saved_progress: str | None
    """the checkpoint's entry that counts epochs or steps, such as "epoch = 12" """
    file_written: bool
    """this process writes checkpoints to the same path, or reads them from memory"""
    saved_rates: list[float] = field(default_factory=list)
    """learning rates of the groups in the checkpoint, and of the optimizer that trained before in this process"""
    saved_initial_rates: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    earlier: str | None = None
    """key of the optimizer that trained before in this process"""
    scheduler_loaded: bool = False
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class PrecisionFact(Fact):
    """Mixed precision as it was asked for, and in which type the matrix products of a step were made."""

    kind: ClassVar[str] = "precision"
    device: str
    """of the parameters"""
    asked: list[str]
    """device types of the autocast blocks that were entered in the step, as the script gave them"""
    switched_off: bool
    """blocks with enabled=False were entered"""
    scaler: bool
    """a gradient scaler scaled the loss, or was asked to"""
    products: dict[str, int]
    """matrix products and convolutions in the graph, by type"""
    parameters: list[str]
    """types of the parameters"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class PauseFact(Fact):
    """Calls of one kind and place that hold the training up: saving, collecting garbage, emptying a cache."""

    kind: ClassVar[str] = "pause"
    call: str
    count: int
    seconds: float
    updates: int
    """updates made when it was last called"""
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class SynchronisationFact(Fact):
    """Calls that wait for the device, in watched training steps, by place."""

    kind: ClassVar[str] = "synchronisation"
    call: str
    count: int
    steps: int
    """watched steps so far"""
    elements: int
    """elements read, on average"""
    file: str | None = None
    line: int | None = None
    code: str = ""


@dataclass(frozen=True)
class ComparisonFact(Fact):
    """How this run differs from another one. Never recorded: `torchdoctor diff` hands it to the rules that need it."""

    kind: ClassVar[str] = "comparison"
    baseline: str
    differences: list[dict[str, Any]]
    """of the records: {"part", "name", "good", "bad"}; part is arguments, configuration, data, code, packages,
    hardware, environment (variables), seeds or other; good is the baseline's, bad this run's"""
    first_step: int | None = None
    """the first step at which any signal differs by even a bit"""
    apart_step: int | None = None
    """the first step from which on a signal differs beyond noise"""
    apart_signal: str | None = None


@dataclass(frozen=True)
class FrozenFact(Fact):
    """Parameters without gradients as an optimizer is about to step. Written when any of it changes."""

    kind: ClassVar[str] = "frozen"
    optimizer: str
    frozen: list[str]
    fresh: list[str] = field(default_factory=list)
    """of these: weights whose spread is that of torch's own initialisation, to within chance"""
    loaded: list[str] = field(default_factory=list)
    """of these: filled by load_state_dict"""
    trained_before: list[str] = field(default_factory=list)
    """of these: required gradients at an earlier update"""
    groups: list[dict[str, Any]] = field(default_factory=list)
    """of this optimizer: {"parameters", "frozen", "lr"}"""


@dataclass(frozen=True)
class LayersFact(Fact):
    """Layers with weights, and what lies between two of which one takes the other's output and nobody else does.

    `layers` holds {"name" (of the weight), "op", "fan_in", "fan_out", "groups", "kernel", "plain_matrix" (multiplied as
    it is, not transposed as by nn.Linear)}; `links` holds {"above", "below", "ops"}: names of weights and the operators
    between them, nearest to `above` first. Paths that join or part (residuals, gates, attention) make no link.
    """

    kind: ClassVar[str] = "layers"
    layers: list[dict[str, Any]]
    links: list[dict[str, Any]]


@dataclass(frozen=True)
class MembershipFact(Fact):
    """Fingerprints of samples that were trained on or validated, those new since the fact before it."""

    kind: ClassVar[str] = "membership"
    phase: str
    group: str
    """the loader, or the position of the pass in its validation ("#0"); "" for all of training"""
    kept: list[int]
    """of all fingerprints those that, as unsigned numbers, lie below `rate` of their range"""
    rate: float
    seen: int
    """samples fingerprinted so far, in `batches` batches"""
    batches: int
    repeats: int
    """samples that occurred again in a batch (training) or in a validation that should hold each once"""
    pairs: int
    """pairs of samples among which `repeats` were found"""
    code: str = ""
    """the user's line that calls the model in this validation"""


@dataclass(frozen=True)
class FeaturesFact(Fact):
    """Mean and standard deviation of each feature over the first validations, all their watched batches together."""

    kind: ClassVar[str] = "features"
    phase: str
    group: str
    samples: int
    shape: list[int]
    """of a batch; integer inputs (token ids) count as one feature"""
    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class TokensFact(Fact):
    """How often token ids occurred so far, counted by their remainder."""

    kind: ClassVar[str] = "tokens"
    phase: str
    group: str
    samples: int
    counts: list[int]
    """of ids whose remainder by the length of this list is 0, 1, 2 ..."""


@dataclass(frozen=True)
class ValidationBatchFact(Fact):
    """The first samples of one of the first batches of a validation: fingerprints of inputs and targets, in order."""

    kind: ClassVar[str] = "validation_batch"
    group: str
    number: int
    """of the validation"""
    position: int
    inputs: list[int]
    targets: list[int] = field(default_factory=list)
    target_shape: list[int] | None = None


@dataclass(frozen=True)
class SplitFact(Fact):
    """What a loader draws from: its place in the stored data, and what its workers would draw alike."""

    kind: ClassVar[str] = "split"
    loader: str
    base: str
    """equal for loaders over the same stored data"""
    samples: int
    indices: list[int]
    """of the indices into the base those that are divisible by `every`"""
    every: int
    workers: int = 0
    generators: list[str] = field(default_factory=list)
    """random generators in the dataset, used after its creation, that every worker gets the same copy of"""
    seeded_alike: str | None = None
    """the worker_init_fn that seeds every worker with the same number"""
    iterable: bool = False
    sharded: bool | None = None
    """an iterable dataset that asks which worker it is in"""


@dataclass(frozen=True)
class LeakageFact(Fact):
    """How well single input features tell the target, over the training batches looked at so far."""

    kind: ClassVar[str] = "leakage"
    task: str
    """classes or regression"""
    samples: int
    shape: list[int]
    """of a sample; features count its elements"""
    features: list[int]
    """those that tell most, first the best"""
    told: list[float]
    """share of their variance between classes, or squared correlation with the target"""
    median: float
    """of all features"""


@dataclass(frozen=True)
class SpikeFact(Fact):
    """The batch of a training step whose loss stood far above those before it."""

    kind: ClassVar[str] = "spike"
    loss: float
    usual: float
    noise: float
    input_shape: list[int] | None = None
    input_size: float | None = None
    """root mean square"""
    input_high: float | None = None
    """largest absolute value"""
    sample_sizes: list[float] = field(default_factory=list)
    """root mean square of the largest samples, largest first"""
    samples: list[int] = field(default_factory=list)
    """their indices in the batch"""
    sample_typical: float | None = None
    """median root mean square of the samples"""
    target_high: float | None = None
    target_typical: float | None = None
    """median absolute target of the batch"""
    target_samples: list[int] = field(default_factory=list)
    target_integral: bool | None = None


@dataclass(frozen=True)
class OperationFact(Fact):
    """An operation that can give NaN or Inf from finite numbers, or whose gradient can, as the graph had it.

    Written when it is first seen, when it first goes over its edge, and when the loss broke on it.
    """

    kind: ClassVar[str] = "operation"
    trouble: str
    """log, division, sqrt, exp or half"""
    operator: str
    """the forward operator, such as Log"""
    over: bool
    """a value lies where the operation or its gradient is not finite"""
    born: bool
    """the loss of that step is not finite, and this is the first operation, in the order of the forward pass, whose
    result is not finite while what went into it was"""
    count: int = 0
    """such values"""
    total: int = 0
    low: float | None = None
    """smallest value that went in (for exp and half: the largest that came out)"""
    dtype: str | None = None
    samples: list[int] = field(default_factory=list)
    """indices in the batch, at most 16"""
    module: str | None = None
    """the layer that feeds it"""
    file: str | None = None
    line: int | None = None


def _subclasses(cls: type[Fact]) -> list[type[Fact]]:
    return [cls, *(s for c in cls.__subclasses__() for s in _subclasses(c))]


KINDS: dict[str, type[Fact]] = {c.kind: c for c in _subclasses(Fact) if c.kind}
