from __future__ import annotations

import json

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.compare import compare, with_baseline
from torchdoctor.compare.traces import part
from torchdoctor.engine import examine
from torchdoctor.facts import InputsFact, LoaderFact, ModelFact
from torchdoctor.findings import Finding, Severity
from torchdoctor.report.comparison import render
from torchdoctor.report.json import encode
from torchdoctor.report.sheet import show
from torchdoctor.rules import find
from torchdoctor.run import Run

RANDOM = np.random.default_rng(7)
NOISE = 0.05 * RANDOM.standard_normal(300)
LOSS = 2.3 * np.exp(-np.arange(300) / 80) + 0.3 + NOISE
PACKAGES = {"torch": "2.6.0", "rich": "13.7"}


def make_run(
    loss: np.ndarray = LOSS, lr: float = 0.1, samples: int = 1000, batch_size: int = 64, **info: object
) -> Run:
    record = {"argv": ["train.py", "--lr", str(lr)], "packages": PACKAGES, "git": {"commit": "abc", "diff": ""}}
    return (
        RunBuilder(len(loss))
        .info(**{**record, **info})
        .optimizer("SGD", lr=lr, momentum=0.9)
        .fact(ModelFact("model", "Net", 1000, 1000, 3))
        .fact(LoaderFact("loader", "train", 16, samples, batch_size, 0, True, "TensorDataset"))
        .scalar(signals.LOSS_TRAIN, loss)
        .scalar(signals.LEARNING_RATE, lr, key="0.0")
        .scalar(signals.TIME_STEP, 0.01 + 0.001 * RANDOM.random(len(loss)))
        .matrix(signals.GRADIENT_L2, {"fc1.weight": 1.0, "fc2.weight": loss})
        .build()
    )


def judge(good: Run, bad: Run) -> tuple[Finding, ...]:
    rule = find("R003")
    assert rule is not None
    return examine(with_baseline(bad, compare(good, bad, ("a", "b"))), [rule]).findings


def test_equal_runs_are_called_equal() -> None:
    comparison = compare(make_run(), make_run(name="other", started="later", pid=7))
    assert comparison.differences == ()
    assert comparison.deviations == ()
    assert comparison.same == ("gradient.l2", "group.lr of 0.0", "loss.train")
    assert comparison.conclusion.startswith("Nothing recorded about configuration or environment differs")
    assert "equal bit for bit" in comparison.conclusion
    assert judge(make_run(), make_run()) == ()


def test_one_change_is_found_as_one_and_its_effect_from_its_step() -> None:
    parted = LOSS.copy()
    parted[20:] += 1e-7
    parted[150:] += 1.0
    comparison = compare(make_run(), make_run(parted, lr=0.2))
    assert [(d.part, d.name, d.good, d.bad) for d in comparison.differences] == [
        ("arguments", "--lr", "0.1", "0.2"),
        ("configuration", "optimizer lr", 0.1, 0.2),
    ]
    assert comparison.changes == ["--lr"]
    assert comparison.first is not None
    assert comparison.first.first_step == 20
    assert comparison.apart is not None
    assert (comparison.apart.signal, comparison.apart.apart_step) == ("loss.train", 150)
    assert comparison.apart.bad - comparison.apart.good == pytest.approx(1.0, abs=1e-3)
    assert comparison.conclusion == (
        "One thing changed, --lr from 0.1 to 0.2, and the runs differ from step 20 on (loss.train) and part "
        "beyond their noise at step 150 (loss.train): look there first."
    )


def run_with(argv: str = "", *facts: object, seed: int = 0, lr: float | None = 0.1, **info: object) -> Run:
    builder = RunBuilder(5).info(argv=["t.py", *argv.split()], seeds={"torch": seed}, **info)
    for fact in facts:
        builder = builder.fact(fact)
    if lr is not None:
        builder = builder.optimizer("SGD", lr=lr)
    return builder.scalar(signals.LOSS_TRAIN, 1.0).build()


def loader(batch_size: int, samples: int = 1000) -> LoaderFact:
    return LoaderFact("l", "train", -(-samples // batch_size), samples, batch_size, 0, True, "TensorDataset")


def batch(*marks: int) -> InputsFact:
    return InputsFact("train", "input", [len(marks), 3], "float32", fingerprints=list(marks))


def model(parameters: int) -> ModelFact:
    return ModelFact("model", "Net", parameters, parameters, 3)


def test_an_argument_left_at_its_default_is_one_change_with_what_it_sets() -> None:
    given, left_out = run_with("--lr 0.010", lr=0.01), run_with()
    assert compare(left_out, given).changes == ["--lr"]
    assert "One thing changed, --lr from 0.1 (its default) to 0.010, and" in compare(left_out, given).conclusion
    assert "--lr from 0.010 to 0.1 (its default)" in compare(given, left_out).conclusion


def cycled(argv: str, lr: float) -> Run:
    """A schedule of one cycle begins at a part of the rate that was given."""
    builder = RunBuilder(5).info(argv=["t.py", *argv.split()]).optimizer("SGD", lr=0.0, initial_lr=lr / 25)
    return builder.scalar(signals.LOSS_TRAIN, 1.0).build()


@pytest.mark.parametrize(
    ("good", "bad", "changes"),
    [
        (run_with("--bs 32", loader(32), batch(1, 2)), run_with("--bs 64", loader(64), batch(1, 2, 3)), ["--bs"]),
        (run_with("", loader(32)), run_with("--bs 64", loader(64)), ["--bs"]),
        (run_with("--n 900", loader(8, 900)), run_with("--n 500", loader(8, 500)), ["--n"]),
        (run_with("--seed 1", batch(1, 2), seed=1), run_with("--seed 2", batch(3, 4), seed=2), ["--seed"]),
        (run_with("", batch(1), seed=0), run_with("--seed 2", batch(3), seed=2), ["--seed"]),
        (run_with("--wide 8", model(10)), run_with("--wide 9", model(12)), ["--wide"]),
        (
            run_with(git={"diff": "a"}, script_sha256="a" * 64),
            run_with(git={"diff": "b"}, script_sha256="b" * 64),
            ["code"],
        ),
        (run_with(script_sha256="a" * 64), run_with(script_sha256="b" * 64), ["code"]),
        (cycled("--lr 0.05", 0.05), cycled("--lr 0.3", 0.3), ["--lr"]),
        (cycled("", 0.05), cycled("--lr 0.3", 0.3), ["--lr"]),
        (cycled("", 0.05), cycled("--learning-rate 0.3", 0.3), ["--learning-rate"]),
    ],
)
def test_what_follows_from_a_change_is_not_a_second_one(good: Run, bad: Run, changes: list[str]) -> None:
    assert compare(good, bad).changes == changes
    assert compare(bad, good).changes == changes
    assert compare(good, bad).conclusion.startswith("One thing changed, ")


@pytest.mark.parametrize(
    ("good", "bad", "changes"),
    [
        (run_with(), run_with("--fast --deep"), ["--fast", "--deep"]),
        (run_with("--a 1 --b 1"), run_with("--a 2 --b 2"), ["--a", "--b"]),
        (run_with("", lr=0.1), run_with("--epochs 1", lr=1.0), ["--epochs", "optimizer lr"]),
        (run_with("--lr 0.1", model(10)), run_with("--lr 0.2", model(12), lr=0.2), ["--lr", "model parameters"]),
        (run_with("--bs 32", loader(32)), run_with("--bs 64", loader(64, 5000)), ["--bs", "data"]),
        (run_with("", batch(1, 2)), run_with("", batch(3, 4)), ["first batch"]),
        (run_with("", script_sha256="a" * 64), run_with(""), []),
    ],
)
def test_what_the_values_do_not_join_stays_apart(good: Run, bad: Run, changes: list[str]) -> None:
    assert sorted(compare(good, bad).changes) == sorted(changes)


def test_another_optimizer_brings_its_own_hyperparameters() -> None:
    good = RunBuilder(5).info(argv=["t.py", "--opt", "sgd"]).optimizer("SGD", lr=0.1, momentum=0.9).build()
    bad = RunBuilder(5).info(argv=["t.py", "--opt", "adam"]).optimizer("Adam", lr=0.1, betas=[0.9, 0.99]).build()
    assert compare(good, bad).changes == ["--opt"]


def test_a_change_that_may_have_made_another_is_told_with_it() -> None:
    words = compare(run_with("--wide 8", model(10)), run_with("--wide 9", model(12))).conclusion
    assert "One thing changed, --wide from 8 to 9 (and model parameters with it), and" in words
    assert "--fast (not given before)" in compare(run_with(), run_with("--fast")).conclusion


def test_several_changes_are_told_apart_and_warned_of() -> None:
    good = make_run()
    bad = make_run(
        LOSS + 1, lr=0.2, packages={**PACKAGES, "torch": "2.7.0"}, git={"commit": "abd", "diff": "+ x\n- y\n"}
    )
    comparison = compare(good, bad)
    assert comparison.changes == ["--lr", "code", "torch"]
    assert "3 things changed (--lr, code, torch)" in comparison.conclusion
    assert "change one thing at a time" in comparison.conclusion
    (finding,) = judge(good, bad)
    assert finding.severity is Severity.WARNING
    assert finding.confidence == 0.9
    assert finding.title == "the runs differ in code and packages"
    assert any("torch was 2.6.0, now 2.7.0" in e.text for e in finding.evidence)
    assert not any("--lr" in e.text for e in finding.evidence)


def test_a_diff_is_compared_whole_and_shown_by_its_size() -> None:
    comparison = compare(make_run(git={"diff": "a\n" * 90}), make_run(git={"diff": "b\n" * 90}))
    (difference,) = comparison.differences
    assert difference.bad == "90 lines, 180 characters"
    assert "without effect" not in comparison.conclusion
    assert comparison.conclusion.startswith("One thing changed, code, and the 3 signals")


def test_a_different_environment_without_effect_is_worth_knowing_only() -> None:
    (finding,) = judge(make_run(), make_run(packages={**PACKAGES, "rich": "14"}))
    assert finding.severity is Severity.INFO
    assert finding.confidence == 0.6
    assert judge(make_run(), make_run(lr=0.3)) == ()


def test_what_an_argument_was_given_for_is_the_purpose() -> None:
    good, bad = (run_with(f"--seed {n}", batch(n, n + 1), seed=n) for n in (1, 3))
    assert not judge(good, bad)
    unasked = run_with("", batch(1, 2), seed=1), run_with("", batch(3, 4), seed=3)
    assert [f.name for f in judge(*unasked)] == ["environment-differs"]


def test_batch_size_and_data_count_as_environment() -> None:
    (finding,) = judge(make_run(), make_run(LOSS + 1, batch_size=8, samples=900))
    assert finding.title == "the runs differ in batch size and data" or finding.title.endswith("data and batch size")


def test_another_seed_explains_another_first_batch() -> None:
    def seeded(seed: int) -> Run:
        batch = InputsFact("train", "input", [4, 3], "float32", fingerprints=[seed, 1, 2, 3])
        return RunBuilder(10).info(seeds={"torch": seed}).fact(batch).scalar(signals.LOSS_TRAIN, float(seed)).build()

    comparison = compare(seeded(1), seeded(2))
    assert {d.name for d in comparison.differences} == {"seeds torch", "first batch"}
    assert comparison.changes == ["seeds"]


def test_without_a_recorded_change_the_unrecorded_is_suspected() -> None:
    assert "unseeded randomness" in compare(make_run(), make_run(LOSS + 1e-6)).conclusion


def test_nothing_in_common() -> None:
    bare = RunBuilder(5).scalar(signals.LOSS_VALIDATION, 1.0).build()
    assert "no signal in common" in compare(RunBuilder(5).scalar(signals.LOSS_TRAIN, 1.0).build(), bare).conclusion


def test_times_count_only_beyond_noise() -> None:
    slow = RunBuilder(300).scalar(signals.TIME_STEP, 0.02 + 0.001 * RANDOM.random(300)).build()
    fast = RunBuilder(300).scalar(signals.TIME_STEP, 0.01 + 0.001 * RANDOM.random(300)).build()
    again = RunBuilder(300).scalar(signals.TIME_STEP, 0.01 + 0.001 * RANDOM.random(300)).build()
    assert compare(fast, again).deviations == ()
    (deviation,) = compare(fast, slow).deviations
    assert (deviation.first_step, deviation.apart_step) == (None, 0)


def test_of_many_parameters_the_first_to_differ_is_named() -> None:
    late, early = np.ones(300), np.ones(300)
    late[200:] = 2
    early[100:] = 2
    good = RunBuilder(300).matrix(signals.WEIGHT_L2, {"a": 1.0, "b": 1.0, "c": 1.0}).build()
    bad = RunBuilder(300).matrix(signals.WEIGHT_L2, {"c": early, "b": late, "new": 5.0}).build()
    (deviation,) = compare(good, bad).deviations
    assert (deviation.column, deviation.first_step, deviation.apart_step) == ("c", 100, 100)


def test_a_run_that_breaks_is_apart_from_there() -> None:
    broken = LOSS.copy()
    broken[77:] = np.nan
    assert part(LOSS, broken) == 77
    assert compare(make_run(), make_run(broken)).apart.apart_step == 77


def test_runs_of_different_length_and_merged_ones_compare_where_both_have_steps() -> None:
    long = np.ones(10_000)
    other = long[:6_000].copy()
    other[3_000:] = 2.0
    comparison = compare(make_run(long), make_run(other))
    apart = comparison.apart
    assert apart is not None
    assert abs(apart.apart_step - 3_000) <= 8


def test_same_curve_with_other_noise_is_within_noise() -> None:
    for seed in range(20):
        other = LOSS - NOISE + 0.05 * np.random.default_rng(seed).standard_normal(300)
        assert part(LOSS, other) is None, seed


@pytest.mark.parametrize("n", [0, 1, 2, 4, 6])
def test_short_traces(n: int) -> None:
    assert part(np.ones(n), np.ones(n)) is None
    assert part(np.ones(n), np.full(n, 2.0)) == (0 if n else None)


@pytest.mark.parametrize(
    ("argv", "other", "name"),
    [
        (["t.py", "--lr=1"], ["t.py", "--lr=2"], "--lr"),
        (["t.py", "lr=1"], ["t.py", "lr=2"], "lr"),
        (["t.py", "--fast"], ["t.py"], "--fast"),
        (["t.py", "--shift", "-1"], ["t.py", "--shift", "-2"], "--shift"),
        (["t.py", "a"], ["t.py", "b"], "argument 1"),
        (["t.py"], ["u.py"], "script"),
    ],
)
def test_arguments_are_compared_by_name(argv: list[str], other: list[str], name: str) -> None:
    good, bad = RunBuilder(1).info(argv=argv).build(), RunBuilder(1).info(argv=other).build()
    (difference,) = compare(good, bad).differences
    assert (difference.part, difference.name) == ("arguments", name)


def test_odd_records_do_not_stop_it() -> None:
    odd = RunBuilder(1).info(argv="train.py", git=None, packages=[1, 2], seeds={"torch": {"a": float("nan")}}).build()
    assert "train.py" in str(compare(odd, make_run()).to_dict())
    assert compare(make_run(), odd).to_dict()["changes"]


def test_the_table_and_the_json_tell_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = make_run(), make_run(LOSS + 1, lr=0.2)
    comparison = compare(good, bad, ("runs/a", "runs/b"))
    show(render(comparison, judge(good, bad), width=100))
    table = capsys.readouterr().out
    for words in ("runs/a", "--lr", "0.2", "loss.train", "beyond", "One thing changed"):
        assert words in table
    data = json.loads(encode(comparison.to_dict()))
    assert data["changes"] == ["--lr"]
    assert [s["signal"] for s in data["signals"]] == ["loss.train", "gradient.l2", "group.lr"]
    assert data["conclusion"] == comparison.conclusion


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_keeps_all_its_columns(capsys: pytest.CaptureFixture[str], width: int) -> None:
    bad = make_run(LOSS + 1, argv=["/a/very/long/path/to/the/script/train.py"])
    show(render(compare(make_run(), bad), width=width))
    lines = capsys.readouterr().out.splitlines()
    heading = next(i for i, line in enumerate(lines) if "what" in line)
    assert all(word in " ".join(lines[heading - 1 : heading + 1]) for word in ("good", "bad", "from", "beyond"))
    assert all(len(line) <= width for line in lines)


def test_a_single_run_lists_it_as_not_examined() -> None:
    verdict = examine(make_run(), [find("environment-differs")])
    assert [(n.name, n.needs) for n in verdict.not_examined] == [("environment-differs", ("comparison",))]


def test_another_first_batch_alone_is_not_called_other_data() -> None:
    first, second = (
        RunBuilder(20)
        .fact(InputsFact("train", "input", [4, 3], "float32", fingerprints=[n, 1, 2, 3]))
        .scalar(signals.LOSS_TRAIN, LOSS[:20] + n)
        .build()
        for n in (0, 5)
    )
    words = compare(first, second).conclusion
    assert words.startswith(
        "The first batch differs (the random state was used differently, or the data), and the runs"
    )
