"""What the step that was run again says of the first NaN or Inf: the operation, its kind of trouble, and its words."""

from __future__ import annotations

import math

from torchdoctor.facts import BirthFact, HealthFact
from torchdoctor.findings import Evidence
from torchdoctor.run import Run

LOG, DIVISION, SQRT, EXP, HALF, OVERFLOW = "log", "division", "sqrt", "exp", "half", "overflow"

SOFTMAXES = (
    *("softmax", "log_softmax", "safe_softmax"),
    *(
        f"scaled_dot_product_{how}"
        for how in (
            *("attention_math", "efficient_attention", "flash_attention", "cudnn_attention"),
            *("flash_attention_for_cpu", "fused_attention_overrideable"),
        )
    ),
)
_KINDS = {
    LOG: ("log", "log2", "log10", "log1p", "logit", "atanh", "xlogy", "xlog1py", "special_xlog1py", "lgamma"),
    DIVISION: (
        *("div", "true_divide", "reciprocal", "rsqrt", "remainder", "fmod", "atan2", "mean", "nanmean", "addcdiv"),
        *("std", "var", "std_mean", "var_mean"),
        *SOFTMAXES,
    ),
    SQRT: ("sqrt", "acos", "asin", "acosh", "norm", "linalg_vector_norm", "cdist", "cdist_forward", "dist"),
    EXP: ("exp", "exp2", "expm1", "sinh", "cosh", "logcumsumexp"),
}
KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
WITH_NUMBERS = ("add", "sub", "rsub", "mul", "div", "pow", "remainder", "fmod")
"""Operations of a tensor and a number; the numbers of others are dimensions and settings."""
CHAIN_SHOWN = 6
PRODUCTS = (
    *("addmm", "mm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "linear", "matmul", "convolution"),
    *("mkldnn_convolution", "mkldnn_linear", "addmm_activation", "cudnn_convolution", "thnn_conv2d"),
)
SUMS = ("sum", "cumsum", "mean", "prod", "linalg_vector_norm", "norm")
"""Operations in which many values become one, so that no single one is to blame."""


def first_birth(run: Run) -> tuple[int, BirthFact] | None:
    return min(run.facts_at(BirthFact), key=lambda item: item[0], default=None)


def plain(operator: str) -> str:
    """The dispatcher's name without what marks its variants."""
    return operator.strip("_").removesuffix("_backward")


def forward_name(fact: BirthFact) -> str:
    """The operation as the user wrote it: in the backward pass the one whose gradient was computed."""
    if fact.node is None or "Backward" not in fact.node:
        return plain(fact.operator)
    name = fact.node.partition("Backward")[0]
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return plain(snake)


def is_before_model(fact: BirthFact) -> bool:
    """Whether the operation ran outside every module, and one of a module's operations used its result."""
    return (
        bool(fact.operator) and fact.module is None and not fact.backward and any(" in " in s for s in fact.chain[1:])
    )


def is_written_number(fact: BirthFact) -> bool:
    """Whether the script wrote a NaN or Inf of its own into a tensor, as in `x[3] = float("nan")`."""
    return not fact.operator and bool(fact.shapes) and not any(fact.shapes) and fact.module is None and bool(line(fact))


def was_given_nonfinite(fact: BirthFact) -> bool:
    """Whether an operand held Inf already: from an infinite input a product makes the first NaN."""
    return any(value is None for pair in fact.inputs for value in pair)


def trouble_of(fact: BirthFact) -> str | None:
    """Which kind of operation it was; None where what was bad came in from outside."""
    if not fact.operator:
        return None
    name = forward_name(fact) if fact.backward else plain(fact.operator)
    kind = KIND_OF.get(name) or KIND_OF.get(plain(fact.operator))
    if name == "pow":
        kind = _power(fact)
    elif name in ("sqrt", "rsqrt") and not fact.backward:
        kind = SQRT if fact.result == "nan" else DIVISION
    elif kind == DIVISION and not _is_by_nothing(name, fact):
        kind = OVERFLOW
    if fact.dtype == "float16" and (kind in (None, OVERFLOW) or _fits_single(fact, kind)):
        return HALF
    return kind or OVERFLOW


def _is_by_nothing(name: str, fact: BirthFact) -> bool:
    """What was divided by is zero, empty, or masked throughout, as far as it is known; else numbers were too large."""
    if name in ("div", "true_divide"):
        return _divisor(fact) in (None, 0.0)
    if name in ("mean", "nanmean"):
        return not fact.inputs
    return name not in SOFTMAXES or any(low is None for low, _ in fact.inputs)


def _power(fact: BirthFact) -> str:
    base = fact.at[0] if fact.at else None
    if fact.result == "nan":
        return SQRT
    if base != 0.0:
        return OVERFLOW
    return SQRT if fact.backward else DIVISION


def _divisor(fact: BirthFact) -> float | None:
    if len(fact.at) > 1:
        return fact.at[1]
    return fact.scalars[0] if fact.scalars else None


def _fits_single(fact: BirthFact, kind: str) -> bool:
    """An exponential that float32 would hold."""
    value = fact.at[0] if fact.at else None
    return kind == EXP and value is not None and value < math.log(3.4e38)


def is_masked_row(fact: BirthFact) -> bool:
    """A softmax over nothing but -inf."""
    return plain(fact.operator) in SOFTMAXES and fact.result == "nan"


def line(fact: BirthFact) -> str:
    if not fact.file or not fact.line:
        return ""
    name = fact.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{fact.line}"


def evidence(run: Run) -> list[Evidence]:
    """The birth, and the way from it to where it was noticed, in a line each."""
    found = first_birth(run)
    if found is None:
        why = next((h.unsupported["birth"] for h in run.facts(HealthFact) if "birth" in h.unsupported), None)
        return [Evidence(f"what made it was not found beside the training ({why})")] if why else []
    step, fact = found
    said = [Evidence(f"step {step} was run again with every operation checked: {words(fact)}", "birth", step)]
    if fact.samples:
        many = "samples" if len(fact.samples) > 1 else "sample"
        said.append(Evidence(f"in {many} {', '.join(map(str, fact.samples[:8]))} of that batch"))
    if len(fact.chain) > 1:
        said.append(Evidence(f"on its way to {_noticed(fact)}: {way(fact)}"))
    return said


def words(fact: BirthFact) -> str:
    where = " ".join(
        p for p in (f"at {line(fact)}" if line(fact) else "", f"in {fact.module}" if fact.module else "") if p
    )
    if fact.source is not None:
        return f"{fact.source} held {_result(fact)} when it began" + (f", first used {where}" if where else "")
    name = plain(fact.operator)
    if fact.backward:
        name = f"{name} in the backward of {forward_name(fact)}"
    return f"{_called(name, fact)}{_given(fact)} gave {_result(fact)}{f' {where}' if where else ''}"


def called(fact: BirthFact) -> str:
    """The forward operation in words that stand in a program or a sentence."""
    return _called(forward_name(fact), fact)


def _called(name: str, fact: BirthFact) -> str:
    return f"the cast to {fact.dtype}" if name == "to_copy" else name


def _given(fact: BirthFact) -> str:
    name = plain(fact.operator)
    large = [max(abs(v) for v in pair if v is not None) for pair in fact.inputs if any(v is not None for v in pair)]
    if large and name in PRODUCTS:
        return f" of values up to {' and '.join(f'{v:.3g}' for v in large[-2:])}"
    if large and name in SUMS:
        return f" of values up to {large[0]:.3g}"
    beside = fact.scalars if len(fact.at) < 2 and name in WITH_NUMBERS else []
    values = [f"{v:.3g}" for v in (*fact.at, *beside) if v is not None]
    return f" of {' and '.join(values[:2])}" if values else ""


def way(fact: BirthFact) -> str:
    steps = fact.chain if len(fact.chain) <= CHAIN_SHOWN else [*fact.chain[:4], "...", fact.chain[-1]]
    return " -> ".join(steps)


def _result(fact: BirthFact) -> str:
    return "NaN" if fact.result == "nan" else "Inf"


def _noticed(fact: BirthFact) -> str:
    return "the loss" if fact.noticed == "loss" else f"the gradient of {fact.noticed}"
