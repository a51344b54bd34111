"""torchdoctor seeds: the same script under several seeds, and whether two variants of it can be told apart."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from torchdoctor.attach.options import RUNS_FOLDER
from torchdoctor.attach.target import read_target
from torchdoctor.cli.wishes import check_folder, check_output, check_page, read_run_name, read_severity
from torchdoctor.errors import UsageError
from torchdoctor.opening import absolute

if TYPE_CHECKING:
    from torchdoctor.experiments.seed_spread import SeedSpread
    from torchdoctor.experiments.starts import Starts
    from torchdoctor.findings import Finding, Severity

FOUND_STATUS = 3
WORDS_KEY = "torchdoctor.words"
SEEDS = 5
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
@click.option("--quiet", "-q", is_flag=True, help="Print the verdict and its notes alone.")
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
        from torchdoctor.experiments.seed_experiment import Experiment, Reader

        self.wishes = wishes
        self.fail_on: Severity | None = read_severity(wishes["fail_on"])
        self.json = wishes["json_file"]
        if self.json not in (None, "-"):
            check_output(self.json, "--json")
        self.plot = check_page(wishes["plot_file"]) if wishes["plot_file"] is not None else None
        asked = [flag for flag, key in EXPERIMENTS.items() if wishes[key]]
        if len(asked) > 1:
            raise UsageError(f"{' and '.join(asked)} are different experiments; ask for one at a time")
        if wishes["trials"] is not None and not wishes["sweep"]:
            raise UsageError("--trials belongs to --sweep, such as --sweep lr=log:1e-5:1e-1 --trials 20")
        goal = wishes["goal"]
        same = ("seed_arg", "seed_env", "override_seeds", "jobs", "timeout", "reuse", "shared_files")
        self.experiment = Experiment(
            target=read_target(words.script, after_dashes=words.after_dashes),
            seeds=read_seeds(wishes["number"], wishes["listed"]),
            reader=Reader(wishes["metric"], wishes["which"], None if goal is None else goal == "max"),
            out=check_folder(absolute(wishes["out"])),
            name=read_run_name(wishes["name"]) if wishes["name"] is not None else None,
            progress=not wishes["quiet"],
            **{key: wishes[key] for key in same},
        )
        self._refuse_clashes(words.late)

    def perform(self) -> int:
        result: SeedSpread | Starts
        if self.wishes["same"]:
            result = self.experiment.repeat(self.wishes["same"])
        elif self.wishes["sweep"]:
            result = self.experiment.sweep(self.wishes["sweep"], self.wishes["trials"])
        else:
            result = self.experiment.compare(self.wishes["compare"], self.wishes["settings"], self.wishes["claim"])
        return self._tell(result, result.findings)

    def _tell(self, result: SeedSpread | Starts, findings: Sequence[Finding]) -> int:
        from torchdoctor.cli.seed_table import render_spread, render_starts
        from torchdoctor.experiments.seed_spread import SeedSpread
        from torchdoctor.report import json
        from torchdoctor.report.sheet import show

        paper = sys.stderr if self.json == "-" else sys.stdout
        if self.wishes["quiet"]:
            said = [result.verdict, *result.notes] if isinstance(result, SeedSpread) else str(result).splitlines()[:1]
            print(*said, sep="\n", file=paper)
        else:
            sheet = render_spread(result) if isinstance(result, SeedSpread) else render_starts(result)
            show(sheet, paper)
        if self.json is not None:
            json.write_text(json.encode(result.to_dict()), self.json)
        if self.plot is not None:
            from torchdoctor.plots.offline import to_html

            json.write_text(to_html(result.plot()), self.plot)
        if self.fail_on is not None and any(f.severity.at_least(self.fail_on) for f in findings):
            return FOUND_STATUS
        return 0

    def _refuse_clashes(self, late: Sequence[str]) -> None:
        """An option that both have and that stands after the script: whose is it?"""
        options, script = self.experiment.options, self.experiment.target.what
        both = [flag for flag in late if (found := options.find(flag)) is not None and found.flag == flag]
        if both:
            raise UsageError(
                f"{both[0]} is an option of torchdoctor seeds and of {script}; write ours before the script, "
                f"and the script's own after --: torchdoctor seeds {both[0]} ... {script} -- {both[0]} ..."
            )


def read_seeds(number: int | None, listed: str | None) -> list[int]:
    if listed is None:
        return list(range(number or SEEDS))
    if number is not None:
        raise UsageError("give -n for so many seeds from 0 on, or --seeds for these, not both")
    try:
        return list(dict.fromkeys(int(part) for part in listed.split(",") if part.strip()))
    except ValueError:
        raise UsageError(
            f"--seeds takes whole numbers with commas between them, such as 1,7,42, not {listed!r}"
        ) from None
