"""How a seed reaches a script: by an argument, by the environment, or in place of the seeds that its own calls set."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torchdoctor.attach.target import COMMAND, Target
from torchdoctor.errors import UsageError
from torchdoctor.experiments.arguments import Declared, Options, plain_name, set_argument

PLACEHOLDER = "{seed}"
NAMES = (
    *("seed", "random_seed", "rng_seed", "manual_seed", "global_seed", "torch_seed", "seed_value", "seed_everything"),
    *("training.seed", "train.seed", "trainer.seed", "experiment.seed"),
)
"""What people call the argument, the likeliest first."""
NO_SEEDS = frozenset({"PYTHONHASHSEED"})
"""Variables whose names end in SEED and that seed something else."""
ARGUMENT, ENVIRONMENT, WRITTEN, OVERRIDE, OWN = "argument", "environment", "placeholder", "override", "own"


@dataclass(frozen=True)
class Passing:
    """One way; `found` says where it was read off, for the user to see that it is right."""

    how: str
    name: str = ""
    found: str = ""

    @property
    def words(self) -> str:
        if self.how == ARGUMENT:
            return f"as the argument {self.name}{self.found}"
        if self.how == ENVIRONMENT:
            return f"in the environment variable {self.name}{self.found}"
        if self.how == WRITTEN:
            return f"in place of {PLACEHOLDER}"
        if self.how == OWN:
            return "left as the script has it"
        return "in place of the seeds that the script sets for random, NumPy and torch"

    def set_seed(self, target: Target, seed: int) -> tuple[Target, dict[str, str]]:
        """What to run, and variables to add to its environment."""
        arguments = [word.replace(PLACEHOLDER, str(seed)) for word in target.arguments]
        if self.how == ARGUMENT:
            changed = set_argument(arguments, self.name, str(seed))
            arguments = changed if changed is not None else [*arguments, *_append(self.name, str(seed))]
        added = {self.name: str(seed)} if self.how == ENVIRONMENT else {}
        return replace(target, arguments=tuple(arguments)), added


def find_passing(
    target: Target,
    options: Options,
    *,
    argument: str | None = None,
    variable: str | None = None,
    override: bool = False,
) -> Passing:
    """The way that was asked for, or else the one that the command line or the source shows."""
    if sum((argument is not None, variable is not None, override)) > 1:
        raise UsageError("give one of --seed-arg, --seed-env and --override-seeds: a seed is passed in one way")
    if argument is not None:
        return Passing(ARGUMENT, _flag(argument, options))
    if variable is not None:
        if not variable.isidentifier():
            raise UsageError(f"--seed-env takes the name of an environment variable, not {variable!r}")
        return Passing(ENVIRONMENT, variable)
    found = None if override else _find(target, options)
    if found is not None:
        return found
    if target.kind == COMMAND:
        raise UsageError(
            f"how a seed is passed to {target.what} was not found; say so with --seed-arg NAME or --seed-env NAME, or "
            f"write {PLACEHOLDER} where it goes"
        )
    return Passing(OVERRIDE)


def find_own(target: Target, options: Options) -> Passing:
    """For starts with one and the same seed: an argument where there is one, and nothing that would set seeds which the
    script does not set."""
    return _find(target, options) or Passing(OWN)


def _find(target: Target, options: Options) -> Passing | None:
    if any(word.rpartition("=")[2] == PLACEHOLDER for word in target.arguments):
        return Passing(WRITTEN)
    for name in NAMES:
        if set_argument(target.arguments, name, "0") is not None:
            return Passing(ARGUMENT, name if _is_bare(target, name) else f"--{name}", ", as on the command line")
    declared = options.find(*NAMES)
    if declared is not None:
        return Passing(ARGUMENT, declared.flag, _where(declared))
    for name, where in options.read.items():
        if name.upper().endswith("SEED") and name not in NO_SEEDS:
            return Passing(ENVIRONMENT, name, f" (read at {where})")
    return None


def _is_bare(target: Target, name: str) -> bool:
    """Written as name=value."""
    words = [w.partition("=")[0] for w in target.arguments if "=" in w]
    return any(not w.startswith("-") and plain_name(w) == plain_name(name) for w in words)


def _flag(given: str, options: Options) -> str:
    """As the script takes it: `seed=` is Hydra's way, and anything with dashes is taken as it is."""
    if given.startswith("-") or given.endswith("="):
        return given.removesuffix("=")
    declared = options.find(given)
    return declared.flag if declared is not None else f"--{given}"


def _append(flag: str, value: str) -> list[str]:
    return Declared(flag, "", "", 0).words(value)


def _where(declared: Declared) -> str:
    return f" ({declared.style}, {declared.file.rpartition('/')[2]}:{declared.line})"
