"""Several configurations with several seeds each: all of a grid, or those that Optuna asks for."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchdoctor.errors import UsageError
from torchdoctor.experiments.arguments import Options
from torchdoctor.experiments.seed_reading import Reader, read_sweep
from torchdoctor.experiments.seed_spread import SeedSpread
from torchdoctor.experiments.seeds import FINISHED, Board, Outcome, Surroundings, plan, run_all
from torchdoctor.experiments.variants import Variant, grid, name_apart, vary

LOG, LINEAR, WHOLE = "log", "lin", "int"
TRIALS = 20
MOST_RUNS = 2000
"""A grid of more runs than this is taken for a slip."""
EXAMPLE = "lr=1e-4,1e-3,1e-2 for a grid, or lr=log:1e-5:1e-1, dropout=lin:0:0.5, layers=int:1:6 with --trials"


@dataclass(frozen=True)
class Range:
    """What one setting may be: these values, or anything between two."""

    name: str
    values: tuple[str, ...] = ()
    scale: str = ""
    low: float = 0.0
    high: float = 0.0

    def ask(self, trial: Any) -> str:
        """For the value that Optuna wants to try, as the command line takes it."""
        if self.values:
            return str(trial.suggest_categorical(self.name, list(self.values)))
        if self.scale == WHOLE:
            return str(trial.suggest_int(self.name, int(self.low), int(self.high)))
        return f"{trial.suggest_float(self.name, self.low, self.high, log=self.scale == LOG):.4g}"


def read_ranges(texts: Iterable[str]) -> list[Range]:
    """As given after --sweep, in any number."""
    found: dict[str, Range] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        name = name.strip()
        if not equals or not name or not rest.strip():
            raise UsageError(f"--sweep takes {EXAMPLE}; not {text!r}")
        if name in found:
            raise UsageError(f"--sweep is given twice for {name}; write all of its values in one")
        found[name] = _read_range(name, rest.strip(), text)
    return list(found.values())


def _read_range(name: str, rest: str, text: str) -> Range:
    scale, *ends = rest.split(":")
    if not ends:
        values = [v.strip() for v in rest.split(",") if v.strip()]
        return Range(name, tuple(dict.fromkeys(values)))
    if scale not in (LOG, LINEAR, WHOLE) or len(ends) != 2:
        raise UsageError(f"--sweep takes {EXAMPLE}; not {text!r}")
    try:
        low, high = map(float, ends)
    except ValueError:
        raise UsageError(f"the ends of {text!r} are no numbers; --sweep takes {EXAMPLE}") from None
    if not low < high or (scale == LOG and low <= 0):
        raise UsageError(f"{text!r}: the first end has to be the smaller one{', and above 0' * (scale == LOG)}")
    return Range(name, (), scale, low, high)


def sweep(
    variant: Variant,
    options: Options,
    ranges: Sequence[Range],
    seeds: Sequence[int],
    base: str,
    reader: Reader,
    surroundings: Surroundings,
    board: Board,
    trials: int | None = None,
) -> tuple[SeedSpread, bool]:
    """All combinations, or as many trials as Optuna is given: it has to be for a range, and may be for a grid. Also,
    whether it was interrupted."""
    if trials is None and all(r.values for r in ranges):
        settings = grid({r.name: r.values for r in ranges})
        if len(settings) * len(seeds) > MOST_RUNS:
            raise UsageError(
                f"that is {len(settings):,} configurations with {len(seeds)} seeds each; give --trials to try some"
            )
        variants = name_apart([vary(variant, options, one) for one in settings])
        outcomes, interrupted = run_all(plan(variants, seeds, base, swept=True), surroundings, board)
        return read_sweep(variants, outcomes, reader), interrupted
    search = Search(variant, options, ranges, seeds, base, reader, surroundings, board)
    variants, outcomes = search.run(trials or TRIALS)
    return read_sweep(variants, outcomes, reader), search.interrupted


def load_optuna() -> Any:
    """Only where it is asked for; a sentence how to get it where it is not there."""
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise UsageError(
            "a range, and --trials, need Optuna: pip install optuna; a grid such as --sweep lr=1e-4,1e-3 does not"
        ) from error


class Search:
    """Optuna asks for configurations and is told the mean over their seeds; as many at once as keep all jobs busy."""

    def __init__(
        self,
        variant: Variant,
        options: Options,
        ranges: Sequence[Range],
        seeds: Sequence[int],
        base: str,
        reader: Reader,
        surroundings: Surroundings,
        board: Board,
    ) -> None:
        self._optuna = load_optuna()
        self._variant, self._options, self._ranges = variant, options, ranges
        self._seeds, self._base, self._reader = seeds, base, reader
        self._at, self._board = surroundings, board
        self._variants: dict[str, Variant] = {}
        self._outcomes: list[Outcome] = []
        self.interrupted = False

    def run(self, trials: int) -> tuple[list[Variant], list[Outcome]]:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=0))
        at_once = max(1, self._at.jobs // len(self._seeds))
        while trials > 0 and not self.interrupted:
            asked = [study.ask() for _ in range(min(at_once, trials))]
            trials -= len(asked)
            variants = [self._vary(trial) for trial in asked]
            self._try(variants)
            for trial, variant in zip(asked, variants, strict=True):
                mean = self._mean(variant)
                if mean is None:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, -mean if self._reader.higher_is_better else mean)
        return list(self._variants.values()), self._outcomes

    def _vary(self, trial: Any) -> Variant:
        return vary(self._variant, self._options, {r.name: r.ask(trial) for r in self._ranges})

    def _try(self, variants: Sequence[Variant]) -> None:
        """Those that were not tried before."""
        new = {v.name: v for v in variants if v.name not in self._variants}
        self._variants |= new
        launches = plan(list(new.values()), self._seeds, self._base, swept=True)
        outcomes, self.interrupted = run_all(launches, self._at, self._board)
        self._outcomes += outcomes
        if any(o.status == FINISHED for o in self._outcomes):
            self._reader.settle(self._outcomes)  # the first configurations may all have been too much for the script

    def _mean(self, variant: Variant) -> float | None:
        values = [self._reader.value(o) for o in self._outcomes if o.variant == variant.name]
        finite = [v for v in values if v is not None and math.isfinite(v)]
        return sum(finite) / len(finite) if finite else None
