"""`torchdoctor.seeds`: a script under several seeds, from code as from the command line."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchdoctor.attach.options import RUNS_FOLDER
from torchdoctor.attach.target import COMMAND, Target, read_target
from torchdoctor.errors import UsageError
from torchdoctor.experiments.arguments import Options, read_options
from torchdoctor.experiments.board import show_board
from torchdoctor.experiments.metrics import LAST
from torchdoctor.experiments.seed_passing import Passing, find_own, find_passing
from torchdoctor.experiments.seed_reading import Reader, read_spread
from torchdoctor.experiments.seed_spread import SeedSpread
from torchdoctor.experiments.seeds import Surroundings, default_jobs, free_base, plan, run_all
from torchdoctor.experiments.starts import Starts, compare_starts
from torchdoctor.experiments.sweep import TRIALS, load_optuna, read_ranges, sweep
from torchdoctor.experiments.variants import Variant, name_apart, read_other, read_settings, vary
from torchdoctor.opening import absolute

SEEDS = 5
MOST_SEED = 2**32 - 1
"""NumPy takes no larger one."""
INTERRUPTED = "interrupted: only the runs that had finished count; --reuse goes on from there"


@dataclass
class Experiment:
    """One script, and how its runs are made and read."""

    target: Target
    seeds: Sequence[int] = tuple(range(SEEDS))
    reader: Reader = field(default_factory=Reader)
    seed_arg: str | None = None
    seed_env: str | None = None
    override_seeds: bool = False
    out: Path = Path(RUNS_FOLDER)
    name: str | None = None
    jobs: int | None = None
    timeout: float | None = None
    reuse: bool = False
    shared_files: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        if not self.seeds or not all(isinstance(s, int) and 0 <= s <= MOST_SEED for s in self.seeds):
            raise UsageError(f"a seed is a whole number from 0 to {MOST_SEED:,}, and at least one is needed")
        self.seeds = tuple(dict.fromkeys(self.seeds))  # a seed that is given twice is no second run
        self.options = read_options(self.target)

    def compare(
        self, others: Sequence[str] = (), settings: Sequence[str] = (), claim: float | None = None
    ) -> SeedSpread:
        """The script alone, or against other scripts, or against itself with other settings."""
        first = self._variant(self.target, self.options)
        variants = [first]
        for text in others:
            variants.append(self._variant(*read_other(text, self.target)))
        changed = read_settings(settings)
        if changed:
            variants.append(vary(first, self.options, changed))
        variants = name_apart(variants)
        at = self._surroundings(len(variants) * len(self.seeds))
        launches = plan(variants, self.seeds, free_base(self._name, at))
        with show_board(len(launches), self.progress) as board:
            outcomes, interrupted = run_all(launches, at, board)
        result = read_spread(variants, outcomes, self.reader, claim)
        result.notes[:0] = [INTERRUPTED] * interrupted
        return result

    def sweep(self, texts: Sequence[str], trials: int | None = None) -> SeedSpread:
        """Every combination of the values, or what Optuna asks for."""
        ranges = read_ranges(texts)
        count = trials or (math.prod(len(r.values) for r in ranges) or TRIALS)
        if trials is not None or not all(r.values for r in ranges):
            load_optuna()
        at = self._surroundings(count * len(self.seeds))
        base = self._variant(self.target, self.options)
        name = free_base(self._name, at)
        with show_board(count * len(self.seeds), self.progress) as board:
            result, interrupted = sweep(base, self.options, ranges, self.seeds, name, self.reader, at, board, trials)
        result.notes[:0] = [INTERRUPTED] * interrupted
        return result

    def repeat(self, starts: int) -> Starts:
        """The same seed several times."""
        given = self.seed_arg or self.seed_env or self.override_seeds
        passing = self._passing(self.target, self.options) if given else find_own(self.target, self.options)
        variant = self._variant(self.target, self.options, passing)
        with show_board(starts + 2, self.progress) as board:  # two more are traced where they differ
            return compare_starts(variant, starts, self._name, self._surroundings(starts), board, self.seeds[0])

    @property
    def _name(self) -> str:
        return self.name or self.target.stem

    def _variant(self, target: Target, options: Options, passing: Passing | None = None) -> Variant:
        name = target.stem if target.kind == COMMAND else Path(target.what).name
        if target.what == self.target.what and target.arguments != self.target.arguments:
            name = " ".join([name, *target.arguments])
        return Variant(name, target, passing or self._passing(target, options))

    def _passing(self, target: Target, options: Options) -> Passing:
        return find_passing(
            target, options, argument=self.seed_arg, variable=self.seed_env, override=self.override_seeds
        )

    def _surroundings(self, runs: int) -> Surroundings:
        return Surroundings(
            out=absolute(self.out),
            jobs=min(self.jobs or default_jobs(), runs),
            timeout=self.timeout,
            reuse=self.reuse,
            shared_files=self.shared_files,
        )


def seeds(
    script: str | os.PathLike[str] | Sequence[str],
    n: int = SEEDS,
    *,
    seeds: Sequence[int] | None = None,
    compare: str | Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    sweep: Mapping[str, Sequence[object] | str] | None = None,
    trials: int | None = None,
    same: int | None = None,
    metric: str | None = None,
    value: str = LAST,
    higher_is_better: bool | None = None,
    claim: float | None = None,
    seed_arg: str | None = None,
    seed_env: str | None = None,
    override_seeds: bool = False,
    jobs: int | None = None,
    timeout: float | None = None,
    reuse: bool = False,
    shared_files: bool = False,
    out: str | Path = RUNS_FOLDER,
    name: str | None = None,
    progress: bool = True,
) -> SeedSpread | Starts:
    """Run a script under several seeds, each in a process of its own.

    script      "train.py --epochs 3", or its words in a list; "-m package.train" for a module
    n, seeds    so many seeds from 0 on, or these
    compare     another script, or several, for the same seeds: "other.py"; without arguments it gets the first one's
    settings    the same script with these changed: {"lr": 3e-4}; as its argument where it has one
    sweep       many configurations: {"lr": [1e-4, 1e-3]}, or {"lr": "log:1e-5:1e-1"} with `trials` by Optuna
    same        instead so many starts with one seed: the first step and operation at which they part, as Starts
    metric      what is compared; by default a validation metric that all runs have; `value`: its last or best
    claim       a gain that was seen between two single runs: is it within the noise?
    seed_arg, seed_env, override_seeds   how the seed is passed, where what was found in the source is not right
    jobs, timeout   runs at a time, and the seconds that one may take
    reuse       take runs of the same command and seed that are there already
    shared_files    do not keep apart what the runs write into the current folder
    """
    if value not in ("last", "best"):
        raise UsageError(f"value is 'last' or 'best', not {value!r}")
    if sweep and (compare or settings):
        raise UsageError("sweep is an experiment of its own: leave out compare and settings")
    if same is not None and (compare or settings or sweep):
        raise UsageError("same is an experiment of its own: leave out compare, settings and sweep")
    words = [str(w) for w in script] if isinstance(script, list | tuple) else shlex.split(os.fspath(script))  # type: ignore[arg-type]
    experiment = Experiment(
        read_target(words),
        tuple(seeds) if seeds is not None else tuple(range(n)),
        Reader(metric, value, higher_is_better),
        seed_arg,
        seed_env,
        override_seeds,
        Path(out),
        name,
        jobs,
        timeout,
        reuse,
        shared_files,
        progress,
    )
    if same is not None:
        return experiment.repeat(same)
    if sweep:
        return experiment.sweep([f"{key}={_joined(v)}" for key, v in sweep.items()], trials)
    others = [compare] if isinstance(compare, str) else list(compare)
    return experiment.compare(others, [f"{key}={v}" for key, v in (settings or {}).items()], claim)


def _joined(values: Sequence[object] | str) -> str:
    return values if isinstance(values, str) else ",".join(map(str, values))
