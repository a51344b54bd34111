"""torchdoctor seeds: the same script under several seeds, and whether two variants of it can be told apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchdoctor.attach.options import RUNS_FOLDER
from torchdoctor.attach.target import Target, read_target
from torchdoctor.cli.wishes import check_folder, check_output, read_run_name, read_severity
from torchdoctor.errors import UsageError

if TYPE_CHECKING:
    from torchdoctor.experiments.arguments import Options
    from torchdoctor.experiments.seed_passing import Passing
    from torchdoctor.experiments.seed_spread import SeedSpread
    from torchdoctor.experiments.seeds import Surroundings
    from torchdoctor.experiments.starts import Starts
    from torchdoctor.experiments.variants import Variant
    from torchdoctor.findings import Finding, Severity

FOUND_STATUS = 3
WORDS_KEY = "torchdoctor.words"
SEEDS = 5
MOST_SEED = 2**32 - 1
EXPERIMENTS = {"--compare": "compare", "--with": "settings", "--sweep": "sweep", "--same": "same"}


@dataclass(frozen=True)
class Words:
    """The command line, taken apart."""

    script: list[str]
    after_dashes: bool
    late: list[str]
    """options of ours that stand after the script"""


class SeedsCommand(click.Command):
    """Our options may stand before the script and, by their long names, after it; what follows `--` is the script's."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "SCRIPT | -m MODULE | -- COMMAND", "[ARGUMENTS]..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, words = self.take_apart(args)
        ctx.meta[WORDS_KEY] = words
        return super().parse_args(ctx, ours)

    def take_apart(self, args: Sequence[str]) -> tuple[list[str], Words]:
        options = [p for p in self.get_params(click.Context(self)) if isinstance(p, click.Option)]
        takes_value = {name: not option.is_flag and not option.is_eager for option in options for name in option.opts}
        ours: list[str] = []
        script: list[str] = []
        late: list[str] = []
        i = 0
        while i < len(args):
            word, i = args[i], i + 1
            flag = word.partition("=")[0] if word.startswith("--") else word
            if word == "--":
                return ours, Words([*script, *args[i:]], not script, late)
            if (flag in takes_value) and (not script or flag.startswith("--")):
                late += [flag] * bool(script)
                ours.append(word)
                if takes_value[flag] and "=" not in word and i < len(args):
                    ours.append(args[i])
                    i += 1
            elif not script and word.startswith("-") and word != "-" and word[:2] not in ("-m", "-c"):
                ours.append(word)
            else:
                script.append(word)
        return ours, Words(script, False, late)


@click.command(
    cls=SeedsCommand,
    epilog="{seed} among the script's arguments stands for the seed. What a script writes into this folder is kept "
    "apart under torchdoctor-runs/files, so that no run reads another's checkpoint.",
)
@click.option("-n", "number", type=click.IntRange(1), metavar="N", help=f"How many seeds; {SEEDS} by default.")
@click.option("--seeds", "listed", metavar="LIST", help="These seeds instead of 0 to N-1: 1,7,42.")
@click.option("--compare", metavar="SCRIPT", multiple=True, help='Another script: other.py, or "other.py --width 64".')
@click.option("--with", "settings", metavar="NAME=VALUE", multiple=True, help="The same script with this changed.")
@click.option("--sweep", metavar="NAME=VALUES", multiple=True, help="lr=1e-4,1e-3 or lr=log:1e-5:1e-1.")
@click.option(
    "--trials", type=click.IntRange(1), metavar="N", help="Configurations that Optuna may try; 20 by default."
)
@click.option("--same", type=click.IntRange(2), metavar="N", help="N starts with one seed: where do they part?")
@click.option("--metric", metavar="NAME", help="What is compared; by default a validation metric that is found.")
@click.option("--value", "which", type=click.Choice(["last", "best"]), default="last", help="Which of its values.")
@click.option("--goal", type=click.Choice(["max", "min"]), help="Which way is better; read off the name by default.")
@click.option("--claim", type=float, metavar="GAIN", help="A gain seen between two single runs: is it noise?")
@click.option("--seed-arg", metavar="NAME", help="The script's argument for its seed; found by default.")
@click.option("--seed-env", metavar="NAME", help="The environment variable for its seed.")
@click.option("--override-seeds", is_flag=True, help="Replace what the script seeds itself with.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs at a time; one a GPU, or for two cores.")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="The most one run may take."
)
@click.option("--reuse", is_flag=True, help="Take runs of the same command and seed that are there.")
@click.option("--shared-files", is_flag=True, help="Do not keep apart what the runs write.")
@click.option("--out", metavar="DIR", default=RUNS_FOLDER, show_default=True, help="Folder that runs go to.")
@click.option("--name", metavar="NAME", help="Runs are called NAME-seed-K; by default the script's name.")
@click.option("--json", "json_file", metavar="FILE", help="Write what was found as JSON, too.")
@click.option("--plot", "plot_file", metavar="FILE", help="Write the figure as a page: seeds.html.")
@click.option("--fail-on", metavar="SEVERITY", help="Exit with 3 on a finding: error, warning or info.")
@click.option("--quiet", "-q", is_flag=True, help="Print the verdict alone.")
@click.pass_context
def command(ctx: click.Context, /, **wishes: Any) -> None:
    """Run your script under several seeds: mean, spread and interval of its metric.

    With --compare or --with a second variant gets the same seeds, and a paired test says whether the difference is more
    than noise, and how many seeds it would take. --sweep does so for many configurations. --same starts the script
    again with one seed and names the first step and operation that differ.
    """
    request = Request(ctx.meta[WORDS_KEY], **wishes)
    sys.exit(request.perform())


class Request:
    """What the user asked for, checked, and carried out."""

    def __init__(self, words: Words, /, **wishes: Any) -> None:
        from torchdoctor.experiments.arguments import read_options

        self.wishes = wishes
        self.target = read_target(words.script, after_dashes=words.after_dashes)
        self.options = read_options(self.target)
        self._refuse_clashes(words.late)
        self.seeds = read_seeds(wishes["number"], wishes["listed"])
        self.fail_on: Severity | None = read_severity(wishes["fail_on"])
        self.name = read_run_name(wishes["name"]) if wishes["name"] is not None else self.target.stem
        self.json = wishes["json_file"]
        if self.json not in (None, "-"):
            check_output(self.json, "--json")
        self.plot = check_output(wishes["plot_file"], "--plot") if wishes["plot_file"] is not None else None
        asked = [flag for flag, key in EXPERIMENTS.items() if wishes[key]]
        if len(asked) > 1:
            raise UsageError(f"{' and '.join(asked)} are different experiments; ask for one at a time")

    def perform(self) -> int:
        if self.wishes["same"]:
            starts = self._start()
            return self._tell(starts, starts.findings)
        spread = self._sweep() if self.wishes["sweep"] else self._compare()
        return self._tell(spread, spread.findings)

    def _tell(self, result: SeedSpread | Starts, findings: Sequence[Finding]) -> int:
        from torchdoctor.cli.seed_table import render_spread, render_starts
        from torchdoctor.experiments.seed_spread import SeedSpread
        from torchdoctor.report import json
        from torchdoctor.report.sheet import show

        paper = sys.stderr if self.json == "-" else sys.stdout
        if self.wishes["quiet"]:
            print(result.verdict if isinstance(result, SeedSpread) else str(result).splitlines()[0], file=paper)
        else:
            sheet = render_spread(result) if isinstance(result, SeedSpread) else render_starts(result)
            show(sheet, paper)
        if self.json is not None:
            json.write_text(json.encode(result.to_dict()), self.json)
        if self.plot is not None:
            json.write_text(result.plot().to_html(include_plotlyjs=True), self.plot)
        if self.fail_on is not None and any(f.severity.at_least(self.fail_on) for f in findings):
            return FOUND_STATUS
        return 0

    def _compare(self) -> SeedSpread:
        from torchdoctor.experiments.board import show_board
        from torchdoctor.experiments.seed_reading import read_spread
        from torchdoctor.experiments.seeds import free_base, plan, run_all

        variants = self._variants()
        at = self._surroundings(len(variants) * len(self.seeds))
        launches = plan(variants, self.seeds, free_base(self.name, at))
        with show_board(len(launches), not self.wishes["quiet"]) as board:
            outcomes, interrupted = run_all(launches, at, board)
        result = read_spread(variants, outcomes, self._reader(), self.wishes["claim"])
        if interrupted:
            result.notes.insert(0, "interrupted: only the runs that had finished count; --reuse goes on from there")
        return result

    def _sweep(self) -> SeedSpread:
        from torchdoctor.experiments.board import show_board
        from torchdoctor.experiments.seeds import free_base
        from torchdoctor.experiments.sweep import TRIALS, load_optuna, read_ranges, sweep

        ranges = read_ranges(self.wishes["sweep"])
        trials = self.wishes["trials"]
        if trials is not None or not all(r.values for r in ranges):
            load_optuna()
            count = trials or TRIALS
        else:
            count = 1
            for one in ranges:
                count *= len(one.values)
        at = self._surroundings(count * len(self.seeds))
        base = self._variant(self.target, self.options)
        with show_board(count * len(self.seeds), not self.wishes["quiet"]) as board:
            name = free_base(self.name, at)
            result, _ = sweep(base, self.options, ranges, self.seeds, name, self._reader(), at, board, trials)
        return result

    def _start(self) -> Starts:
        from torchdoctor.experiments.board import show_board
        from torchdoctor.experiments.seed_passing import find_own
        from torchdoctor.experiments.starts import compare_starts

        given = self.wishes["seed_arg"] or self.wishes["seed_env"] or self.wishes["override_seeds"]
        passing = self._passing(self.target, self.options) if given else find_own(self.target, self.options)
        variant = self._variant(self.target, self.options, passing)
        count = self.wishes["same"]
        with show_board(count + 2, not self.wishes["quiet"]) as board:  # two more are traced where they differ
            return compare_starts(variant, count, self.name, self._surroundings(count), board, self.seeds[0])

    def _variants(self) -> list[Variant]:
        from torchdoctor.experiments.variants import name_apart, read_other, read_settings, vary

        first = self._variant(self.target, self.options)
        variants = [first]
        for text in self.wishes["compare"]:
            target, options = read_other(text, self.target)
            variants.append(self._variant(target, options))
        settings = read_settings(self.wishes["settings"])
        if settings:
            variants.append(vary(first, self.options, settings))
        return name_apart(variants)

    def _variant(self, target: Target, options: Options, passing: Passing | None = None) -> Variant:
        from torchdoctor.experiments.variants import Variant

        return Variant(self._call(target), target, passing or self._passing(target, options))

    def _call(self, target: Target) -> str:
        """The script's name; with its arguments where the same one is compared under others."""
        name = Path(target.what).name
        if target.what == self.target.what and target.arguments != self.target.arguments:
            return " ".join([name, *target.arguments])
        return name

    def _passing(self, target: Target, options: Options) -> Passing:
        from torchdoctor.experiments.seed_passing import find_passing

        return find_passing(
            target,
            options,
            argument=self.wishes["seed_arg"],
            variable=self.wishes["seed_env"],
            override=self.wishes["override_seeds"],
        )

    def _reader(self) -> Any:
        from torchdoctor.experiments.seed_reading import Reader

        goal = self.wishes["goal"]
        return Reader(self.wishes["metric"], self.wishes["which"], None if goal is None else goal == "max")

    def _surroundings(self, runs: int) -> Surroundings:
        from torchdoctor.experiments.seeds import Surroundings, default_jobs

        return Surroundings(
            out=check_folder(Path(self.wishes["out"]).absolute()),
            jobs=min(self.wishes["jobs"] or default_jobs(), runs),
            timeout=self.wishes["timeout"],
            reuse=self.wishes["reuse"],
            shared_files=self.wishes["shared_files"],
        )

    def _refuse_clashes(self, late: Sequence[str]) -> None:
        """An option that both have and that stands after the script: whose is it?"""
        both = [flag for flag in late if (found := self.options.find(flag)) is not None and found.flag == flag]
        if both:
            raise UsageError(
                f"{both[0]} is an option of torchdoctor seeds and of {self.target.what}; write ours before the script, "
                f"and the script's own after --: torchdoctor seeds {both[0]} ... {self.target.what} -- {both[0]} ..."
            )


def read_seeds(number: int | None, listed: str | None) -> list[int]:
    if listed is None:
        return list(range(number or SEEDS))
    if number is not None:
        raise UsageError("give -n for so many seeds from 0 on, or --seeds for these, not both")
    try:
        seeds = list(dict.fromkeys(int(part) for part in listed.split(",") if part.strip()))
    except ValueError:
        raise UsageError(
            f"--seeds takes whole numbers with commas between them, such as 1,7,42, not {listed!r}"
        ) from None
    if not seeds or not all(0 <= seed <= MOST_SEED for seed in seeds):
        raise UsageError(f"a seed is a whole number from 0 to {MOST_SEED:,}; --seeds got {listed!r}")
    return seeds
