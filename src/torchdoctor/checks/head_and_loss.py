"""The model's last operation gives what the loss takes: raw scores, probabilities, log-probabilities or quantities."""

from __future__ import annotations

import math

from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import MODEL, Check, Outcome, failed, passed, skipped
from torchdoctor.checks.model.loss_wiring import LOG_SOFTMAX, Normalised, Wiring, consult, wiring_of, with_calls
from torchdoctor.checks.model.records import outcome_of
from torchdoctor.facts import GraphFact, LossCallFact
from torchdoctor.findings import Fix, Place, Severity
from torchdoctor.probes.loss_calls import LossCall
from torchdoctor.rules.architecture.misplaced_activation import OUTSIDE, RANGES
from torchdoctor.rules.loss_graph import LossGraph
from torchdoctor.rules.places import known
from torchdoctor.rules.procedure.wrong_loss_for_task import BINARY

CHECK = Check(
    name="head-and-loss",
    asks="the model's head gives what the loss takes",
    part=MODEL,
    order=15,
    diagnoses=(
        "softmax-before-cross-entropy",
        "sigmoid-before-bce-with-logits",
        "misplaced-activation",
        "wrong-loss-for-task",
    ),
)

LOGARITHMS = ("nll_loss", "kl_div")
SUMS = 0.02
"""Probabilities that sum to one do so within rounding, in half precision within a hundredth."""
KINDS = {
    "cross_entropy": "raw scores into cross_entropy",
    "nll_loss": "log-probabilities into nll_loss",
    "binary_cross_entropy_with_logits": "raw scores into binary_cross_entropy_with_logits",
    "binary_cross_entropy": "probabilities into binary_cross_entropy",
}


def is_of_head(call: LossCallFact) -> bool:
    """A call that fails for what the model gives; the others for what the targets are."""
    return call.function in (*LOGARITHMS, *BINARY) or call.classes == 1


def perform(bench: Bench) -> Outcome:
    wiring = wiring_of(bench)
    rules = ("softmax-before-cross-entropy", "sigmoid-before-bce-with-logits", "misplaced-activation")
    found = [*consult(wiring.run, *rules), *consult(with_calls(wiring.run, is_of_head), "wrong-loss-for-task")]
    found.sort(key=lambda finding: finding.severity.rank)
    if found and found[0].severity is not Severity.INFO:
        return outcome_of(found[0])
    if wiring.error is not None:
        return skipped("the loss cannot be computed; output-shape says why")
    further = _over_another_dimension(wiring) or _out_of_reach(wiring) or _raw_into_bce(wiring)
    if further is not None:
        return further
    if found:
        return outcome_of(found[0])
    if not wiring.has_graph:
        return skipped("the loss has no graph")
    functions = list(dict.fromkeys(call.function for look in wiring.looks for call in look.calls))
    if not functions:
        return passed("the loss is made by hand; in its graph no activation follows the last layer that would harm it")
    return passed(", ".join(KINDS.get(function, f"raw outputs into {function}") for function in functions))


def _over_another_dimension(wiring: Wiring) -> Outcome | None:
    """Log-probabilities that do not sum to one over the classes."""
    for call in (call for look in wiring.looks for call in look.calls if call.function in LOGARITHMS):
        source = call.input.float()
        dim = call.class_dim if call.function == "nll_loss" else source.dim() - 1
        if dim is None or source.dim() < 2 or source.shape[dim] < 2 or not _sums(call, source):
            continue
        sums = source.exp().sum(dim)
        if float((sums - 1).abs().max()) < SUMS:
            continue
        other = next((d for d in range(source.dim()) if float((source.exp().sum(d) - 1).abs().max()) < SUMS), None)
        softmax = next((s for s in wiring.softmaxes if s.dim != len(s.shape) - 1 or s.name == LOG_SOFTMAX), None)
        return _not_normalised(call, dim, other, (float(sums.min()), float(sums.max())), softmax)
    return None


def _sums(call: LossCall, source: Tensor) -> bool:
    """A divergence of a whole distribution; one of parts of it need not sum to one."""
    if call.function == "nll_loss":
        return bool((source <= 1e-3).all())
    target = call.target
    if target is None or target.shape != source.shape or not target.is_floating_point():
        return False
    given = target.float().exp() if call.options.get("log_target") else target.float()
    return bool(((given.sum(-1) - 1).abs() < SUMS).all())


def _not_normalised(
    call: LossCall, dim: int, other: int | None, sums: tuple[float, float], softmax: Normalised | None
) -> Outcome:
    shape = tuple(call.input.shape)
    what = f"the probabilities of a sample sum to {sums[0]:.3g} to {sums[1]:.3g} over the {shape[dim]} classes"
    where = known(softmax.place) if softmax is not None else ()
    if other is not None:
        said = "the batch" if other == 0 else f"dimension {other}"
        return failed(
            f"softmax runs over {said} instead of the classes: of outputs {shape} {what}, and to one over dimension "
            f"{other}",
            "misplaced-activation",
            Fix("Take it over the classes.", f"log_probabilities = F.log_softmax(scores, dim={dim})"),
            where=where,
            low=sums[0],
            high=sums[1],
        )
    return failed(
        f"{call.function} gets numbers that are no log-probabilities: {what}, not to one",
        "wrong-loss-for-task",
        Fix(
            "Let cross_entropy make them from raw scores, or put log_softmax before it.",
            "loss = F.cross_entropy(scores, target)",
        ),
        where=where,
        low=sums[0],
        high=sums[1],
    )


def _out_of_reach(wiring: Wiring) -> Outcome | None:
    """An activation before an error whose operator has no name of a loss."""
    for compared in wiring.compared:
        name, least, most = RANGES.get(compared.activation, ("", -math.inf, math.inf))
        low, high, margin = compared.low, compared.high, OUTSIDE * compared.spread
        beyond = low if low < least - margin else high if high > most + margin else None
        if beyond is None or not math.isfinite(beyond):
            continue
        bounded = f"between {least:g} and {most:g}" if math.isfinite(most) else f"at least {least:g}"
        return failed(
            f"{name} on the output, but targets reach {beyond:.3g}: the output is {bounded}, the targets go from "
            f"{low:.3g} to {high:.3g}",
            "misplaced-activation",
            Fix(
                f"Remove the {name} after the last layer, or scale the targets into its range.",
                f"return self.out(x)  # the last layer as it is, without {name}",
            ),
            where=known(compared.place),
            low=low,
            high=high,
        )
    return None


def _raw_into_bce(wiring: Wiring) -> Outcome | None:
    """Scores that lie in 0..1 for now, with nothing that keeps them there."""
    fact = wiring.run.last_fact(GraphFact)
    graph = LossGraph(fact) if fact is not None else None
    for loss in graph.named("BinaryCrossEntropy") if graph is not None else ():
        sources = list(graph.sources(loss)) if graph is not None else []
        if sources and all(source.parameters for source in sources):
            layer = sources[0].parameters[0].rpartition(".")[0]
            return failed(
                f"binary_cross_entropy takes the raw scores of {layer or 'the last layer'}: nothing keeps them "
                "between 0 and 1, and it ends with an error as soon as a score leaves that range",
                "wrong-loss-for-task",
                Fix(
                    "Use the form that applies the sigmoid itself.",
                    "loss = F.binary_cross_entropy_with_logits(logits, target)",
                ),
                where=(Place(module=layer or None),),
            )
    return None
