"""What is planted in every script of this folder: the operation, its direction, its line, the samples, the diagnosis.

Kept apart from the scripts so that nothing in them gives the fault away. Operators are the dispatcher's names. A line
is named by a piece of its text that stands once in the script. For a backward birth that is the line of the forward
operation whose gradient it is, and in a backward of one's own the line inside it. benchmarks/verify_truths.py checks
all of it against what the dispatcher sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Truth:
    script: str
    operators: frozenset[str]
    """empty where what is bad came in from outside"""
    line: str
    diagnoses: tuple[str, ...]
    """codes of CATALOG.md, any of which is right; empty where the catalogue has none for it"""
    backward: bool = False
    samples: tuple[int, ...] = ()
    """rows of the batch; empty where they mean nothing"""
    source: str | None = None
    """input or target; for a parameter that its update broke, how its name begins"""
    hidden: bool = False
    """something before it is not finite, and never reaches the loss"""
    gradient_of: str = ""
    """for a backward birth: the forward operation whose gradient it is, as autograd names it"""

    @property
    def path(self) -> Path:
        return HERE / f"{self.script}.py"

    @property
    def line_number(self) -> int:
        """Of the line that holds the fragment; 0 where there is none."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return next((n for n, text in enumerate(lines, 1) if self.line and self.line in text), 0)


def _forward(script: str, operator: str, line: str, code: str, *samples: int, source: str | None = None) -> Truth:
    codes = tuple(code.split())
    return Truth(script, frozenset(operator.split()), line, codes, samples=samples, source=source)


def _backward(
    script: str, operator: str, gradient_of: str, line: str, code: str, *samples: int, hidden: bool = False
) -> Truth:
    codes, operators = tuple(code.split()), frozenset(operator.split())
    return Truth(script, operators, line, codes, True, samples, hidden=hidden, gradient_of=gradient_of)


def _outside(script: str, source: str, code: str, *samples: int) -> Truth:
    return Truth(script, frozenset(), "", (code,), samples=samples, source=source)


TRUTHS = (
    _forward("entropy_policy", "log", "surprise = probs.log()", "N001", 7),
    _forward("kl_distill", "log", "gap = torch.log(ratio)", "N001", 11),
    _forward("hf_mixture", "log", "return torch.log(mixed)", "N001", 9),
    _forward("heteroscedastic", "log", "penalty = torch.log(variance)", "N001"),
    _forward("lightning_logprob", "log", "score = torch.log(right)", "N001"),
    _forward("logistic", "log", "torch.log(1 - p)", "N001", 20),
    _backward("where_log", "div", "log", "logs = torch.log(scaled)", "N001", 30, hidden=True),
    _forward("bag_of_words", "div", "frequencies = counts /", "N002", 4),
    _forward("last_batch", "std var", "spread = x.std(dim=0)", "N002"),
    _forward("contrast", "div", "scaled = centred / contrast", "N002", 5),
    _forward("masked_attention", "_softmax", "weights = F.softmax(scores, dim=-1)", "N002", 1),
    _forward("frames_gru", "reciprocal", "inverse = 1.0 / length", "N002", 6),
    _forward("cosine_accelerate", "div", "return dot / lengths", "N002", 10),
    _forward("patch_norm", "div", "return centred / deviation", "N002", 6),
    _forward("checkpointed", "rsqrt", "inverse = torch.rsqrt(", "N002", 4),
    _forward("ignored_tokens", "div", "return total / weights.sum()", "N002"),
    _forward("temperature", "div", "return likeness / temperature", "N002"),
    _backward("custom_function", "div", "signedlog", "return grad / magnitude", "N002", 8),
    _backward("hf_pooling", "div", "div", "mean = total / count", "N002", 5, hidden=True),
    _backward("elevation", "rsqrt", "asin", "return torch.asin(scaled[:, 2] / length)", "N003", 12),
    _backward("siamese", "div", "sqrt", "distance = torch.sqrt(squared)", "N003", 9),
    _backward("spread_autoencoder", "div", "sqrt", "deviation = variance.sqrt()", "N003"),
    _backward("lightning_power", "pow", "pow", "compressed = energy**0.3", "N003", 3),
    _backward("tilt", "rsqrt", "acos", "return torch.acos(cosine)", "N003", 14),
    _forward("poisson", "exp", "rate = torch.exp(eta)", "N004", 13),
    _forward("attention_exp", "exp", "weights = torch.exp(scores)", "N004", 3),
    _forward("softplus_closure", "exp", "grown = x.exp()", "N004"),
    _forward("half_energy", "mul", "power = h * h", "N005", 21),
    _forward("autocast_cast", "_to_copy", "predicted = model(x)", "N005", 2),
    _forward("autocast_linear", "addmm", "hidden = self.first(x)", "N005", 8),
    _forward("adam_half", "addcdiv_ addcdiv", "optimizer.step()", "N006 N008", source="backbone"),
    _forward("recurrence", "mm", "carried = torch.mm(state, self.transition)", "A002"),
    _forward("growth", "cumprod", "value = torch.cumprod(factors, dim=1)", "A002"),
    _backward("rollout", "mul add", "mul", "size = rate * size * (1 - size)", "A002"),
    _forward("gamma_pow", "pow", "return torch.pow(x, self.exponent)", "", 2),
    _outside("missing_values", "input", "D001", 17),
    _outside("missing_labels", "target", "D002", 6),
)


def scripts() -> list[Path]:
    return sorted(p for p in HERE.glob("*.py") if p.name != Path(__file__).name)


def truth_of(script: str) -> Truth:
    return next(t for t in TRUTHS if t.script == script)
