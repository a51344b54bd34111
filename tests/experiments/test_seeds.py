"""Several seeds: how a seed reaches a script, what is read off its runs, and what may be concluded."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from processes import run_python
from torchdoctor import signals
from torchdoctor.attach.target import FILE, Target, read_target
from torchdoctor.engine import examine
from torchdoctor.errors import UsageError
from torchdoctor.experiments import sweep as sweeps
from torchdoctor.experiments.arguments import read_options, set_argument
from torchdoctor.experiments.metrics import MEASURED, Metric, choose, find, read_metrics, read_text
from torchdoctor.experiments.seed_passing import OVERRIDE, Passing, find_own, find_passing
from torchdoctor.experiments.seed_reading import Reader, read_spread, read_sweep
from torchdoctor.experiments.seeds import (
    FAILED,
    FINISHED,
    TIMED_OUT,
    Launch,
    Outcome,
    Surroundings,
    free_base,
    plan,
    run_all,
)
from torchdoctor.experiments.starts import Starts
from torchdoctor.experiments.trace_comparison import Traced, find_parting
from torchdoctor.experiments.variants import Variant, name_apart, read_other, read_settings, vary
from torchdoctor.facts import StartsFact
from torchdoctor.findings import Severity
from torchdoctor.rules import find as find_rule
from torchdoctor.run import Run, Seen, Trace

SOURCES = {
    "argparse": ("p = argparse.ArgumentParser()\np.add_argument('-s', '--random-seed', type=int)", "--random-seed=7"),
    "click": ("@click.command()\n@click.option('--seed', default=0)\ndef main(seed): ...", "--seed=7"),
    "fire": ("import fire\ndef train(lr=0.1, seed=0): ...\nfire.Fire(train)", "--seed=7"),
    "typer": ("import typer\napp = typer.Typer()\n@app.command()\ndef main(seed: int = 0): ...", "--seed=7"),
    "tyro": ("import tyro\nclass Config:\n    seed: int = 0\nconfig = tyro.cli(Config)", "--seed=7"),
    "transformers": ("from transformers import HfArgumentParser\nHfArgumentParser(TrainingArguments)", "--seed=7"),
    "LightningCLI": ("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net)", "--seed_everything=7"),
    "hydra": (
        "import hydra\n@hydra.main()\ndef main(cfg):\n    torch.manual_seed(cfg.training.seed)",
        "training.seed=7",
    ),
}


def script(folder: Path, text: str, *arguments: str, name: str = "train.py") -> Target:
    (folder / name).write_text(text)
    return Target(FILE, str(folder / name), arguments)


def passed(target: Target, **asked: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    found, added = find_passing(target, read_options(target), **asked).set_seed(target, 7)
    return found.arguments, added


# -- how a seed is passed ---------------------------------------------------------------


@pytest.mark.parametrize("style", SOURCES)
def test_an_argument_is_found_in_the_source(style: str, tmp_path: Path) -> None:
    source, expected = SOURCES[style]
    target = script(tmp_path, source, "--lr", "0.1")
    assert passed(target) == (("--lr", "0.1", expected), {})
    assert "train.py:" in find_passing(target, read_options(target)).words


def test_an_argument_in_a_module_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "__init__.py").write_text("from .options import parse")
    (tmp_path / "settings" / "options.py").write_text("parser.add_argument('--seed')")
    target = script(tmp_path, "from settings import parse\nimport numpy, torch")
    assert passed(target) == (("--seed=7",), {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--seed", "3", "--lr", "1"), ("--seed", "7", "--lr", "1")),
        (("--seed=3",), ("--seed=7",)),
        (("seed=3", "lr=1"), ("seed=7", "lr=1")),
        (("config.yaml", "{seed}", "--out", "runs/{seed}"), ("config.yaml", "7", "--out", "runs/7")),
    ],
)
def test_what_stands_on_the_command_line_is_replaced(given: Any, expected: Any, tmp_path: Path) -> None:
    assert passed(script(tmp_path, "import sys", *given)) == (expected, {})


def test_the_environment_and_what_is_told(tmp_path: Path) -> None:
    target = script(tmp_path, "import os\nseed = int(os.environ.get('MY_SEED', 0))\nos.getenv('PYTHONHASHSEED')")
    assert passed(target) == ((), {"MY_SEED": "7"})
    assert passed(target, argument="rng") == (("--rng=7",), {})
    assert passed(target, argument="-r") == (("-r", "7"), {})
    assert passed(target, argument="trainer.seed=") == (("trainer.seed=7",), {})
    assert passed(target, variable="OTHER") == ((), {"OTHER": "7"})
    assert find_passing(target, read_options(target), override=True).how == OVERRIDE
    with pytest.raises(UsageError, match="one of --seed-arg"):
        passed(target, argument="a", variable="b")


def test_without_any_way_the_scripts_own_calls_are_overridden(tmp_path: Path) -> None:
    target = script(tmp_path, "import torch\ntorch.manual_seed(0)\ndef helper(seed): ...")
    assert find_passing(target, read_options(target)).how == OVERRIDE
    assert find_own(target, read_options(target)).words == "left as the script has it"
    with pytest.raises(UsageError, match="--seed-arg NAME"):
        passed(read_target([sys.executable, target.what], after_dashes=True))


OVERRIDDEN = """
import json, random, sys
from torchdoctor.experiments.overrides import Overrides
overrides = Overrides(5)
overrides.place()
before = random.random()
import numpy as np
drawn = np.random.rand()
random.seed(42); np.random.seed(42)
again = random.random(), np.random.rand()
random.seed(43)
other = random.random()
np.random.seed(None); random.seed("text")
random.seed(5)
print(json.dumps([before, drawn, again, other, [c["call"] for c in overrides.calls]]))
"""


def test_seeds_of_the_script_are_replaced_and_stay_different() -> None:
    import random

    done = run_python("-c", OVERRIDDEN)
    before, drawn, again, other, calls = json.loads(done.stdout)
    generator = random.Random(5)
    assert before == again[0] == generator.random()
    assert drawn == again[1] == np.random.RandomState(5).rand()
    assert other == random.Random(5 + 1_000_003).random()
    assert calls[:3] == ["random.seed", "np.random.seed", "random.seed"]


# -- variants -----------------------------------------------------------------------------


def variant(target: Target, name: str = "train.py") -> Variant:
    return Variant(name, target, Passing(OVERRIDE))


def test_a_setting_goes_where_it_can(tmp_path: Path) -> None:
    target = script(tmp_path, "p.add_argument('--learning-rate')\np.add_argument('--betas')", "--width", "3")
    options = read_options(target)
    settings = read_settings(["lr=3e-4,clip=1.0", "betas=0.9,0.95", "width=8"])
    assert settings == {"lr": "3e-4", "clip": "1.0", "betas": "0.9,0.95", "width": "8"}
    varied = vary(variant(target), options, settings)
    assert varied.target.arguments == ("--width", "8", "--learning-rate=3e-4", "--betas=0.9,0.95")
    assert (varied.changes.rate, varied.changes.clip) == (None, 1.0)
    assert varied.name == "lr=3e-4, clip=1.0, betas=0.9,0.95, width=8"
    factor = vary(variant(target), options, {"lr": "0.1x"})
    assert (factor.changes.rate, factor.changes.relative, factor.target) == (0.1, True, target)
    with pytest.raises(UsageError, match=r"has no argument for dropout=0.3 \(it has --learning-rate"):
        vary(variant(target), options, {"dropout": "0.3"})
    with pytest.raises(UsageError, match="NAME=VALUE"):
        read_settings(["dropout"])


def test_another_script_gets_the_arguments_of_the_first(tmp_path: Path) -> None:
    first = script(tmp_path, "", "--epochs", "3")
    other = script(tmp_path, "", name="other.py")
    assert read_other(other.what, first)[0].arguments == ("--epochs", "3")
    assert read_other(f"{other.what} --width 8", first)[0].arguments == ("--width", "8")
    assert [v.name for v in name_apart([variant(first, "a")] * 2)] == ["a", "a (2)"]


def test_arguments_in_every_form() -> None:
    assert set_argument(["--lr=1", "--lr", "2"], "lr", "3") == ["--lr=1", "--lr", "3"]
    assert set_argument(["--weight-decay", "2"], "weight_decay", "3") == ["--weight-decay", "3"]
    assert set_argument(["lr", "2"], "lr", "3") is None


# -- metrics ------------------------------------------------------------------------------


def test_metrics_of_a_run() -> None:
    run = (
        RunBuilder(100)
        .scalar(signals.LOSS_TRAIN, np.linspace(2, 1, 100))
        .scalar(signals.USER, np.linspace(0, 0.9, 100), key="val_acc")
        .scalar(signals.USER, np.arange(100.0), key="epoch")
        .scalar(signals.PRINTED, np.linspace(0, 0.9, 100), key="val acc")
        .build()
    )
    found = read_metrics(run)
    assert list(found) == ["val_acc", "loss.train"]
    assert (found["val_acc"].last, found["val_acc"].most) == pytest.approx((0.9, 0.9))
    assert found["loss.train"].last == pytest.approx(np.linspace(2, 1, 100)[-10:].mean())
    assert find(found, "Val/Acc") is found["val_acc"]
    assert find(found, "train_loss") is found["loss.train"]
    assert find(found, "bleu") is None


def test_the_metric_that_is_meant_is_chosen() -> None:
    names = ["loss.train", "train acc", "val_loss", "test_f1", "accuracy.validation", "loss.validation"]
    kinds = dict(zip(names, [MEASURED, "printed", "logged", "logged", MEASURED, MEASURED], strict=True))
    metrics = {n: Metric(n, kinds[n], 1.0, 1.0, 1.0, 1) for n in names}
    order = []
    while metrics:
        order.append(choose([metrics, metrics])[0])
        del metrics[order[-1]]
    assert order == ["test_f1", "accuracy.validation", "val_loss", "loss.validation", "train acc", "loss.train"]
    with pytest.raises(UsageError, match="no metric in common"):
        choose([{}, {}])


@pytest.mark.parametrize(
    "text", ["val mae: 0.25", "Val_MAE=0.25", "epoch 3 | VAL MAE 25%", '"val/mae": 0.25,', "val-mae -> 0.25"]
)
def test_a_metric_is_read_off_the_output(text: str, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(f"interval mae 9\nval mae: 0.5\n{text}\nval mae of nothing\n")
    found = read_text(log, "val_mae")
    assert found is not None
    assert (found.last, found.most, found.looks) == (0.25, 0.5, 2)
    assert read_text(log, "rmse") is None


# -- what may be concluded ------------------------------------------------------------------


def outcomes(name: str, values: list[float | None], metric: str = "val_acc") -> list[Outcome]:
    found = []
    for seed, value in enumerate(values):
        if value is None:
            found.append(Outcome(name, seed, FAILED, error="ValueError: no"))
            continue
        metrics = {metric: Metric(metric, "logged", value, value, value, 3)}
        found.append(Outcome(name, seed, FINISHED, 1.0, metrics=metrics, beginning=f"{name}{seed}"))
    return found


def variants(*names: str) -> list[Variant]:
    return [variant(Target(FILE, "train.py"), name) for name in names]


A = [0.90, 0.91, 0.92, 0.89, 0.90]


def spread_of(second: list[float | None], metric: str = "val_acc", **asked: Any) -> Any:
    both = [*outcomes("a", list(A), metric), *outcomes("b", second, metric)]
    return read_spread(variants("a", "b"), both, Reader(**asked))


def test_a_gain_beyond_the_noise() -> None:
    result = spread_of([x + 0.03 + 0.001 * (i % 2) for i, x in enumerate(A)])
    assert result.verdict.startswith("b is better than a: val_acc by 0.03")
    assert result.findings == [] and "b is better than a" in result.ruled_out[0]
    worse = spread_of([x + 0.03 + 0.001 * (i % 2) for i, x in enumerate(A)], metric="val_loss")
    assert worse.verdict.startswith("b is worse than a")
    assert spread_of([x + 0.03 for x in A], higher_is_better=False).verdict.startswith("b is worse")


def test_a_gain_within_the_noise_is_e010() -> None:
    result = spread_of([0.93, 0.90, 0.91, 0.92, 0.895])
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("E010", Severity.WARNING)
    assert "not shown to differ" in result.verdict and "within their noise" in result.verdict
    needed = result.against[0].paired.seeds_needed
    assert needed > 5 and f"about {needed} seeds" in finding.fix.text
    assert json.loads(json.dumps(result.to_dict()))["findings"][0]["name"] == "within-seed-noise"


def test_the_picture() -> None:
    figure = spread_of([0.93, 0.90, 0.91, 0.92, 0.895]).plot()
    assert "not shown to differ" in figure.layout.title.text
    assert list(figure.layout.xaxis.ticktext) == ["a", "b"]
    assert "val_acc (higher is better)" in figure.layout.yaxis.title.text
    assert len([t for t in figure.data if t.mode == "lines"]) == 5
    alone = read_spread(variants("a"), outcomes("a", list(A)), Reader())
    assert alone.plot().data[0].y == tuple(A)


def test_a_claim_against_one_variants_own_noise() -> None:
    within = read_spread(variants("a"), outcomes("a", list(A)), Reader(), claimed=0.01)
    assert [f.code for f in within.findings] == ["E010"]
    assert within.noise == pytest.approx(2.7764451 * np.std(A, ddof=1) * math.sqrt(2))
    beyond = read_spread(variants("a"), outcomes("a", list(A)), Reader(), claimed=0.2)
    assert beyond.findings == [] and "more than seeds do" in beyond.ruled_out[0]
    assert "two single runs differ by up to" in str(within)
    both = [*outcomes("a", list(A)), *outcomes("b", [x + 0.03 + 0.001 * (i % 2) for i, x in enumerate(A)])]
    measured = read_spread(variants("a", "b"), both, Reader(), claimed=0.2)
    assert any("claimed gain of 0.2 is more than" in note for note in measured.notes)


def test_runs_that_failed_are_left_out_and_told() -> None:
    result = spread_of([0.93, None, 0.94, math.nan, 0.95])
    assert result.against[0].paired.n == 3
    assert any("2 of 5 runs of b are left out: seed 1 failed, seed 3 gave no finite value" in n for n in result.notes)
    few = spread_of([None, None, None, None, 0.9])
    assert few.against == [] and any("cannot be held against" in n for n in few.notes)
    assert few.verdict == "b cannot be compared: 1 of its 5 runs gave a finite val_acc."
    with pytest.raises(UsageError, match="no run has finished"):
        read_spread(variants("a"), [Outcome("a", 0, FAILED)], Reader())


def test_a_seed_without_effect_concludes_nothing() -> None:
    same = [Outcome("a", s, FINISHED, metrics=o.metrics, beginning="x") for s, o in enumerate(outcomes("a", [0.5] * 3))]
    result = read_spread(variants("a", "b"), [*same, *outcomes("b", [0.6, 0.7, 0.8])], Reader())
    assert result.verdict.startswith("Nothing can be said: the seed has no effect on a")
    assert result.against == [] and result.findings == [] and result.noise is None


def alike(name: str, values: list[float], beginning: str | None = "seed {}") -> list[Outcome]:
    found = outcomes(name, list(values))
    return [replace(o, beginning=beginning.format(o.seed) if beginning else None) for o in found]


def test_a_setting_without_effect_is_no_noise() -> None:
    both = [*alike("a", A), *alike("b", A)]
    result = read_spread(variants("a", "b"), both, Reader())
    assert result.verdict == (
        "b and a gave the same, to the bit, for every seed: the change does not reach the training."
    )
    assert result.findings == [] and result.ruled_out == [] and "t test" not in str(result)
    unseen = read_spread(variants("a", "b"), [*alike("a", A, None), *alike("b", A, None)], Reader())
    assert unseen.verdict == "b and a gave the same val_acc for every seed: the change does not reach it."
    assert unseen.findings == []
    tied = spread_of(list(A))  # its losses are others
    assert "they train differently, and val_acc is the same for every seed" in tied.verdict
    assert [f.code for f in tied.findings] == ["E010"]
    swept = read_sweep(variants("a", "b", "c"), [*both, *outcomes("c", [x - 0.3 for x in A])], Reader())
    assert any(note.startswith("b and a gave the same, to the bit") for note in swept.notes)
    assert {x.name: x.told_apart for x in swept.against} == {"b": False, "c": True} and swept.findings == []


def test_several_comparisons_make_a_small_chance_larger() -> None:
    """A gain that stands alone, and is no surprise among five."""
    gains = [0.010, 0.003, 0.011, 0.004, 0.002]
    second = [x + gain for x, gain in zip(A, gains, strict=True)]
    alone = spread_of(list(second))
    assert 0.01 < alone.against[0].paired.p < 0.05 and alone.against[0].p_adjusted is None
    assert alone.verdict.startswith("b is better than a") and alone.findings == []
    noise = [0.93, 0.90, 0.91, 0.92, 0.895]
    others = {name: [x + 0.001 * i for x in noise] for i, name in enumerate("cdef")}
    runs = [*outcomes("a", list(A)), *outcomes("b", second)]
    runs += [o for name, values in others.items() for o in outcomes(name, list(values))]
    several = read_spread(variants("a", "b", *others), runs, Reader())
    b = several.against[0]
    assert b.p_adjusted == pytest.approx(5 * b.paired.p) and b.paired.told_apart and not b.told_apart
    assert "b is not shown to differ from a" in several.verdict and "after Holm" in several.verdict
    assert [f.code for f in several.findings] == ["E010"] * 5 and several.ruled_out == []
    assert "after Holm" in str(several)


def test_an_unknown_metric_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="'bleu'; there are: val_acc"):
        read_spread(variants("a"), outcomes("a", [0.5, 0.6]), Reader("bleu"))


def test_a_sweep_knows_its_best_and_what_is_tied_with_it() -> None:
    values = {"lr=1": A, "lr=2": [0.93, 0.90, 0.91, 0.92, 0.895], "lr=3": [x - 0.3 for x in A]}
    found = [o for name, xs in values.items() for o in outcomes(name, list(xs))]
    result = read_sweep(variants(*values), found, Reader())
    assert [v.name for v in result.variants] == ["lr=2", "lr=1", "lr=3"]
    assert {a.name: a.told_apart for a in result.against} == {"lr=1": False, "lr=3": True}
    assert "1 of the 2 others cannot be told from it" in result.verdict
    assert [(f.code, f.severity) for f in result.findings] == [("E010", Severity.INFO)]


# -- sweeps -----------------------------------------------------------------------------------


def test_ranges() -> None:
    lr, _, kind = sweeps.read_ranges(["lr=log:1e-5:1e-1", "layers=int:1:6", "optimizer=sgd,adam,sgd"])
    assert (lr.scale, lr.low, lr.high) == ("log", 1e-5, 1e-1)
    assert kind.values == ("sgd", "adam")
    for text, said in (
        ("lr", "for a grid"),
        ("lr=log:1:0", "smaller one"),
        ("lr=log:0:1", "above 0"),
        ("lr=a:1:2", "not 'lr"),
    ):
        with pytest.raises(UsageError, match=said):
            sweeps.read_ranges([text])
    with pytest.raises(UsageError, match="given twice"):
        sweeps.read_ranges(["lr=1", "lr=2"])


def test_without_optuna_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match="pip install optuna"):
        sweeps.load_optuna()


def test_optuna_is_asked_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    target = script(tmp_path, "p.add_argument('--lr')")
    tried: list[str] = []

    def run(launches: list[Launch], *_: Any) -> tuple[list[Outcome], bool]:
        found = []
        for launch in launches:
            rate = float(dict(launch.variant.settings)["lr"])
            tried.append(launch.variant.name)
            value = -abs(math.log10(rate) + 2) + 0.01 * launch.seed
            metrics = {"val_acc": Metric("val_acc", "logged", value, value, value, 1)}
            found.append(Outcome(launch.variant.name, launch.seed, FINISHED, metrics=metrics, beginning=launch.name))
        return found, False

    monkeypatch.setattr(sweeps, "run_all", run)
    ranges = sweeps.read_ranges(["lr=log:1e-5:1"])
    at = Surroundings(tmp_path, jobs=4)
    result, _ = sweeps.sweep(variant(target), read_options(target), ranges, [0, 1], "t", Reader(), at, Board(), 25)
    assert len(tried) == 2 * len(set(tried)) <= 50
    assert abs(math.log10(float(result.variants[0].settings["lr"])) + 2) < 0.5


def test_optuna_goes_on_where_the_first_configurations_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    target = script(tmp_path, "p.add_argument('--lr')")

    def run(launches: list[Launch], *_: Any) -> tuple[list[Outcome], bool]:
        rates = [(launch, float(dict(launch.variant.settings)["lr"])) for launch in launches]
        scores = {launch.name: Metric("val_acc", "logged", -rate, -rate, -rate, 1) for launch, rate in rates}
        return [
            Outcome(one.variant.name, one.seed, FAILED, error="ValueError: too much")
            if rate > 1
            else Outcome(one.variant.name, one.seed, FINISHED, metrics={"val_acc": scores[one.name]})
            for one, rate in rates
        ], False

    monkeypatch.setattr(sweeps, "run_all", run)
    given = (variant(target), read_options(target), sweeps.read_ranges(["lr=log:1e-2:1000"]), [0, 1], "t")
    result, _ = sweeps.sweep(*given, Reader(), Surroundings(tmp_path), Board(), 12)
    failed = [v for v in result.variants if v.spread is None]
    assert result.best is not None and float(dict(result.variants[0].settings)["lr"]) <= 1
    assert failed and all(float(v.settings["lr"]) > 1 for v in failed)


# -- running ----------------------------------------------------------------------------------


class Board:
    def __init__(self) -> None:
        self.said: list[str] = []

    def begun(self, launch: Launch) -> None:
        self.said.append(f"begun {launch.name}")

    def moved(self, launch: Launch, steps: int) -> None: ...

    def ended(self, launch: Launch, outcome: Outcome) -> None:
        self.said.append(f"{outcome.status} {launch.name}")


def run_script(folder: Path, text: str, count: int = 1, **asked: Any) -> list[Outcome]:
    one = variant(script(folder, text))
    return run_all(plan([one], range(count), "t"), Surroundings(folder / "runs", **asked), Board())[0]


def test_a_script_that_fails_stops_the_rest_and_its_last_words_are_kept(tmp_path: Path) -> None:
    found = run_script(tmp_path, "print('almost')\nraise ValueError('no data here')", 4)
    assert [o.status for o in found] == [FAILED, FAILED, "left out", "left out"]
    assert found[0].error == "ValueError: no data here"
    assert "almost" in found[0].tail and found[0].log is not None
    with pytest.raises(UsageError, match=r"seed 0 failed; its output is in (?s:.*)no data here"):
        Reader().settle(found)


def test_a_variant_that_fails_stops_no_other(tmp_path: Path) -> None:
    target = script(tmp_path, "import sys\nif float(sys.argv[1]) > 1: raise ValueError('too much')")
    both = [replace(variant(replace(target, arguments=(rate,))), name=f"lr={rate}") for rate in ("100", "0.1")]
    found, _ = run_all(plan(both, range(3), "t", swept=True), Surroundings(tmp_path / "runs"), Board())
    by_name = {v.name: [o.status for o in found if o.variant == v.name] for v in both}
    assert by_name == {"lr=100": [FAILED, FAILED, "left out"], "lr=0.1": [FINISHED] * 3}


def test_a_script_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (found,) = run_script(tmp_path, "import time\ntime.sleep(60)", timeout=0.8)
    assert found.status == TIMED_OUT and found.seconds < 30


def test_names_do_not_clash_with_runs_that_are_there(tmp_path: Path) -> None:
    at = Surroundings(tmp_path)
    assert free_base("train", at) == "train"
    (tmp_path / "train-seed-0").mkdir()
    assert free_base("train", at) == "train-2"
    both = variants("train.py", "lr=3e-4, clip=1")
    assert [x.name for x in plan(both, [4], "t")] == ["t-seed-4", "t-lr=3e-4-clip=1-seed-4"]


WRITES = """
import os
import shutil
open("best.txt", "a").write("x")
assert open("best.txt").read() == "oldx"
assert "best.txt" in os.listdir(".")
os.makedirs("out")
os.remove("old.txt")
assert not os.path.exists("old.txt")
shutil.rmtree("results")
assert not os.path.exists("results/kept.txt")
os.makedirs("results")
assert os.listdir("results") == []
os.symlink("new.txt", "results/last.txt")
open("results/new.txt", "w").write("new")
assert open("results/last.txt").read() == "new"
os.close(os.open(f"{os.getpid()}.lock", os.O_CREAT | os.O_EXCL | os.O_RDWR))
os.remove(f"{os.getpid()}.lock")
"""


def test_files_are_kept_apart(tmp_path: Path) -> None:
    (tmp_path / "best.txt").write_text("old")
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "kept.txt").write_text("kept")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        found = run_script(tmp_path, WRITES, 2, jobs=2)
    finally:
        os.chdir(here)
    assert [o.status for o in found] == [FINISHED, FINISHED], found[0].tail
    assert (tmp_path / "best.txt").read_text() == "old" and (tmp_path / "old.txt").exists()
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.lock"))
    assert [p.name for p in (tmp_path / "results").iterdir()] == ["kept.txt"]
    assert (tmp_path / "runs" / "files" / "t-seed-1" / "best.txt").read_text() == "oldx"


# -- two starts ---------------------------------------------------------------------------------

TEXTS = ["mm cpu", "/x/train.py:3", "rand cpu", "/x/train.py:9", "relu cpu"]


def traced(*rows: tuple[int, ...], texts: list[str] = TEXTS) -> Traced:
    return Traced(np.array(rows, np.int64).reshape(-1, 7), texts)


def test_the_first_operation_that_differs() -> None:
    start = (0, 0, 1, 5, 10, 20, 0)
    random, other = (0, 2, 3, 5, 0, 21, 1 | 4), (0, 2, 3, 5, 0, 22, 1 | 4)
    assert find_parting(traced(start), traced(start)) is None
    parting = find_parting(traced(start, random), traced(start, other))
    assert parting is not None
    assert (parting.cause, parting.operator, parting.file, parting.line) == ("random", "rand", "/x/train.py", 9)
    cases = {
        "operation": (1, 0, 1, 5, 10, 23, 2),
        "outside": (1, 0, 1, 5, 11, 23, 2),
        "control": (1, 4, 1, 5, 10, 20, 0),
    }
    for cause, row in cases.items():
        parting = find_parting(traced(start, (1, 0, 1, 5, 10, 20, 2)), traced(start, row))
        assert parting is not None and parting.cause == cause
    moved = [TEXTS[i] for i in (1, 0, 2, 3, 4)]
    assert find_parting(traced(start), traced((0, 1, 0, 5, 10, 20, 0), texts=moved)) is None


def judge(**fields: Any) -> list[Any]:
    fact = StartsFact(**{"starts": 2, "steps": 30, "signal": "loss.train", **fields})
    run = Run({}, frozenset(), lambda _n, _k: Trace.empty(), [Seen(0, fact)])
    rules = [find_rule("R001"), find_rule("R002")]
    return list(examine(run, [r for r in rules if r is not None]).findings)


def test_which_diagnosis_it_is() -> None:
    assert judge() == []
    (random,) = judge(first_step=0, cause="random", operator="normal_", at_step=-1, file="/x/train.py", line=4)
    assert (random.code, random.severity, random.where[0].line) == ("R001", Severity.WARNING, 4)
    (operation,) = judge(first_step=7, cause="operation", operator="index_add", at_step=7)
    assert (operation.code, operation.severity) == ("R002", Severity.INFO)
    assert "index_add gives different results for the same inputs" in operation.title
    assert judge(first_step=7, apart_step=20, cause="operation", operator="index_add")[0].severity is Severity.WARNING
    assert [f.code for f in judge(first_step=0)] == ["R001"]
    assert [f.code for f in judge(first_step=9)] == ["R002"]


def test_the_picture_of_two_starts() -> None:
    fact = StartsFact(2, 3, first_step=1, signal="loss.train")
    starts = Starts("train.py", "", fact, judge(first_step=1), np.arange(3), np.array([0.0, 1e-8, 1e-3]))
    figure = starts.plot()
    assert figure.layout.yaxis.type == "log" and "part at step 1" in figure.layout.title.text
    equal = Starts("train.py", "", StartsFact(2, 3))
    assert "equal bit for bit" in equal.plot().layout.title.text and "equal bit for bit" in str(equal)


def test_from_code(tmp_path: Path) -> None:
    import torchdoctor

    target = script(tmp_path, "print('val acc 0.5')")
    with pytest.raises(UsageError, match="'last' or 'best'"):
        torchdoctor.seeds(target.what, value="mean")
    with pytest.raises(UsageError, match="leave out compare"):
        torchdoctor.seeds(target.what, sweep={"lr": [1]}, compare="other.py")
    with pytest.raises(UsageError, match="at least one is needed"):
        torchdoctor.seeds(target.what, 0)
    with pytest.raises(UsageError, match="name one that it prints with --metric"):
        torchdoctor.seeds([target.what], 1, out=tmp_path / "runs", progress=False)
    with pytest.raises(UsageError, match="leave out compare, settings and sweep"):
        torchdoctor.seeds(target.what, same=2, settings={"lr": 1})
    with pytest.raises(UsageError, match="same is 1; at least 2"):
        torchdoctor.seeds(target.what, same=1)
    asked: dict[str, Any] = {"metric": "val acc", "out": tmp_path / "runs", "progress": False}
    result = torchdoctor.seeds(target.what, seeds=[3, 4, 3], **asked)
    assert result.variants[0].values == [0.5, 0.5] and result.seeds == [3, 4]
    assert "0.5" in result._repr_html_()


SAME = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_two_starts_from_code(tmp_path: Path) -> None:
    import torchdoctor

    asked: dict[str, Any] = {"same": 2, "jobs": 2, "out": tmp_path / "runs", "progress": False}
    unseeded = torchdoctor.seeds(script(tmp_path, SAME).what, **asked)
    assert isinstance(unseeded, Starts) and [f.code for f in unseeded.findings] == ["R001"]
    seeded = torchdoctor.seeds(script(tmp_path, f"import torch\ntorch.manual_seed(1)\n{SAME}").what, **asked)
    assert isinstance(seeded, Starts) and seeded.equal and seeded.findings == []
