"""The gallery's trainings: which, where they are kept, one at a time, ended with the page; and where a curve tells."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gallery_stand_in import LOG, standing_in
from torchdoctor import signals, zoo
from torchdoctor.attach import ranks
from torchdoctor.cli.wishes import read_settings
from torchdoctor.engine import examine
from torchdoctor.errors import LabError
from torchdoctor.lab.gallery import cabinet as cabinets
from torchdoctor.lab.gallery import tell_tales
from torchdoctor.lab.gallery.cabinet import Cabinet, usual_folder
from torchdoctor.lab.gallery.drawing import draw_curve, draw_exhibit
from torchdoctor.lab.gallery.exhibits import EXHIBITS, Training, all_trainings
from torchdoctor.lab.gallery.quiz import ask
from torchdoctor.lab.gallery.training import ABSENT, FAILED, QUEUED, READY, UNDER_WAY, Trainer, command_of
from torchdoctor.launching import own_module
from torchdoctor.plots import DRAWN
from torchdoctor.rules import catalogue
from torchdoctor.run import Run, Trace
from torchdoctor.settings import Settings
from torchdoctor.store.reader import open_run

TRAININGS = all_trainings()
ONE, TWO = TRAININGS[:2]


@pytest.fixture
def cabinet(tmp_path: Path) -> Cabinet:
    return Cabinet(tmp_path / "cache" / "lab")


@pytest.fixture
def trainer(cabinet: Cabinet) -> Iterator[Callable[..., Trainer]]:
    made = []

    def make(way: str = "well", **options: Any) -> Trainer:
        made.append(Trainer(cabinet, standing_in(way), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def wait(until: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def test_every_exhibit_is_a_training_of_the_zoo_with_its_twin() -> None:
    known = {found.rule.name for found in catalogue()}
    assert len(EXHIBITS) == 8
    for exhibit in EXHIBITS.values():
        assert exhibit.look and exhibit.do and set(exhibit.charts) <= set(DRAWN)
        assert exhibit.training.case.path.is_file()
        if exhibit.name == "healthy":
            assert exhibit.training.case.healthy and exhibit.twin is None
        else:
            assert exhibit.training.case.truth in known
            assert exhibit.twin is not None and exhibit.twin.case.healthy
    assert len({each.name for each in TRAININGS}) == len(TRAININGS)


def test_an_update_trains_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "sick_x.py"
    script.write_text("one")
    case = replace(ONE.case, path=script)
    names = {Training(case).name, Training(case, "mild").name, Training(case, every_step=False).name}
    script.write_text("another")
    names.add(Training(case).name)
    monkeypatch.setattr("torchdoctor.lab.gallery.exhibits.__version__", "99.0")
    names.add(Training(case).name)
    assert len(names) == 5


def test_the_command_is_torchdoctors_own(cabinet: Cabinet) -> None:
    words = command_of(ONE, cabinet)
    begin = own_module("torchdoctor", "run")
    assert words[: len(begin)] == begin and words[-1] == str(ONE.case.path)
    assert words[words.index("--name") + 1] == ONE.name and words[words.index("--out") + 1] == str(cabinet.folder)


def test_settings_above_the_folder_are_not_the_gallerys(
    cabinet: Cabinet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.torchdoctor]\nfail-on = "warning"\n')
    cabinet.prepare()
    monkeypatch.chdir(cabinet.folder)
    words = command_of(ONE, cabinet)
    config = words[words.index("--config") + 1]
    assert read_settings(None, (), (), (), (), ()).fail_on == "warning"
    assert read_settings(config, (), (), (), (), ()) == replace(Settings(), folders=(str(cabinet.folder),))


def test_trainings_come_one_after_the_other_and_are_kept(trainer: Callable[..., Trainer], cabinet: Cabinet) -> None:
    first = trainer()
    assert first.standing(ONE.name).state == ABSENT and not cabinet.folder.exists()
    first.train([ONE, TWO, ONE])
    assert {first.standing(each.name).state for each in (ONE, TWO)} <= {QUEUED, UNDER_WAY}
    wait(lambda: not first.is_busy)
    assert first.standing(ONE.name).state == first.standing(TWO.name).state == READY
    order = [f"{word} {each.name}" for each in (ONE, TWO) for word in ("begin", "end")]
    assert (cabinet.folder / LOG).read_text().splitlines() == order
    second = trainer()
    second.train([ONE])
    assert not second.is_busy and second.standing(ONE.name).state == READY


def test_what_was_kept_is_for_this_user_alone(trainer: Callable[..., Trainer], cabinet: Cabinet) -> None:
    cabinet.folder.mkdir(parents=True, mode=0o755)
    cabinet.prepare()
    assert cabinet.folder.stat().st_mode & 0o777 == 0o700


def test_the_users_environment_changes_no_training(
    trainer: Callable[..., Trainer], cabinet: Cabinet, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = (*ranks.RANK_KEYS, *ranks.SIZE_KEYS, *ranks.NODE_KEYS, "TORCHELASTIC_RUN_ID", "LOCAL_RANK")
    for name in ("SEED", "GRADE", "TORCHDOCTOR_DISABLE", *launched):
        monkeypatch.setenv(name, "1")
    seen = cabinet.folder / "environment"
    script = f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text(repr(dict(os.environ)) + str(os.nice(0)))"
    found = Trainer(cabinet, lambda training, _: [*standing_in()(training, cabinet)[:1], "-c", script])
    found.train([replace(ONE, grade="mild")])
    wait(lambda: not found.is_busy)
    said = seen.read_text()
    assert "'GRADE': 'mild'" in said and "SEED" not in said and "TORCHDOCTOR" not in said and said.endswith("}10")
    assert not [name for name in launched if f"'{name}'" in said]


def test_a_training_that_fails_says_why_and_the_next_one_comes(trainer: Callable[..., Trainer]) -> None:
    found = trainer("fails")
    found.train([ONE])
    wait(lambda: not found.is_busy)
    standing = found.standing(ONE.name)
    assert standing.state == FAILED and "ValueError: no such luck" in standing.why and "Traceback" not in standing.why
    found._command = standing_in()
    found.train([ONE])
    wait(lambda: not found.is_busy)
    assert found.standing(ONE.name).state == READY


def test_a_record_that_is_not_whole_is_told(cabinet: Cabinet) -> None:
    found = Trainer(cabinet, lambda *_: ["true"])
    found.train([ONE])
    wait(lambda: not found.is_busy)
    assert "not whole" in found.standing(ONE.name).why


def test_a_package_that_is_missing_is_named_with_what_brings_it(
    trainer: Callable[..., Trainer], cabinet: Cabinet, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = next(each for each in TRAININGS if "sklearn" in each.case.path.read_text())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = trainer()
    found.train([needs])
    wait(lambda: not found.is_busy)
    assert "pip install 'torchdoctor[demo]'" in found.standing(needs.name).why
    assert not (cabinet.folder / LOG).exists()


def test_a_training_that_takes_too_long_is_ended(trainer: Callable[..., Trainer]) -> None:
    found = trainer("hangs", seconds=0.3)
    found.train([ONE])
    wait(lambda: not found.is_busy)
    assert "not done after 0.3 s" in found.standing(ONE.name).why


def under_way(found: Trainer, cabinet: Cabinet) -> int:
    found.train([ONE, TWO])
    wait(lambda: (cabinet.folder / LOG).exists())
    assert found._process is not None
    return found._process.pid


def test_the_end_of_the_page_ends_the_training(trainer: Callable[..., Trainer], cabinet: Cabinet) -> None:
    found = trainer("hangs")
    pid = under_way(found, cabinet)
    found.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    found.train([TWO])
    wait(lambda: not found.is_busy)
    assert TWO.name not in (cabinet.folder / LOG).read_text()


def test_removing_ends_what_is_under_way_and_goes_on_with_the_next(
    trainer: Callable[..., Trainer], cabinet: Cabinet
) -> None:
    found = trainer("slow")
    pid = under_way(found, cabinet)
    wait(lambda: (cabinet.folder / ONE.name).exists())
    found.remove([ONE.name])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert found.standing(ONE.name).state == ABSENT and not (cabinet.folder / ONE.name).exists()
    (cabinet.folder / "go").touch()
    wait(lambda: not found.is_busy)
    assert found.standing(TWO.name).state == READY


def test_what_another_page_trains_is_not_trained_twice(trainer: Callable[..., Trainer], cabinet: Cabinet) -> None:
    first, second = trainer("slow"), trainer()
    first.train([ONE])
    wait(lambda: cabinet.is_running(ONE.name))
    second.train([ONE])
    (cabinet.folder / "go").touch()
    wait(lambda: not first.is_busy and not second.is_busy)
    assert second.standing(ONE.name).state == READY
    assert (cabinet.folder / LOG).read_text().count("begin") == 1


def test_the_cache_is_where_xdg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert usual_folder() == tmp_path / "torchdoctor" / "lab"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert usual_folder() == Path.home() / ".cache" / "torchdoctor" / "lab"


def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)


def test_without_a_home_nothing_is_kept_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    found = Trainer(Cabinet())
    assert found.standing(ONE.name).state == ABSENT and found.cabinet.size() == 0
    found.clear()
    with pytest.raises(LabError, match="HOME is not set"):
        found.train([ONE])


def test_a_cache_that_cannot_be_written_to_is_told(
    tmp_path: Path, cabinet: Cabinet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="XDG_CACHE_HOME"):
        Trainer(Cabinet(tmp_path / "file" / "lab")).train([ONE])
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(LabError, match="not a folder of yours"):
        Trainer(Cabinet(tmp_path / "link")).train([ONE])
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(LabError, match="has 1 MB left"):
        Trainer(cabinet).train([ONE])


def test_earlier_versions_make_room_and_links_are_left_alone(
    tmp_path: Path, trainer: Callable[..., Trainer], cabinet: Cabinet, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trainer()
    found.train([ONE, TWO])
    wait(lambda: not found.is_busy)
    shutil.copytree(cabinet.folder / ONE.name, cabinet.folder / "of-an-earlier-version")
    cabinet.make_room({ONE.name, TWO.name})
    assert (cabinet.folder / "of-an-earlier-version").exists()
    monkeypatch.setattr(cabinets, "MOST_BYTES", 10)
    cabinet.make_room({ONE.name, TWO.name})
    assert not (cabinet.folder / "of-an-earlier-version").exists() and cabinet.holds(ONE.name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    (cabinet.folder / "link").symlink_to(elsewhere)
    found.clear()
    assert (elsewhere / "mine").exists() and cabinet.size() == 0


def run_of(train: np.ndarray, validation: np.ndarray | None = None) -> Run:
    every = max(1, len(train) // len(validation)) if validation is not None else 1
    traces = {signals.LOSS_TRAIN.name: Trace.raw(range(len(train)), train)}
    if validation is not None:
        traces[signals.LOSS_VALIDATION.name] = Trace.raw(range(0, len(validation) * every, every), validation)
    return Run({}, frozenset((name, "") for name in traces), lambda name, _: traces[name], (), len(train))


def test_marks_stand_where_the_curve_gives_itself_away() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 200)
    falling = 2 * np.exp(-np.arange(200) / 40) + 0.2
    parting = run_of(falling + noise, np.array([2.0, 1.0, 0.8, 1.1, 1.5]))
    best, last, _ = tell_tales.parts(parting)
    assert best.step == 80 and best.value == 0.8 and "best here: 0.8" in best.text
    assert last.step == 160 and "rises to 1.5" in last.text
    spiky = falling + noise
    spiky[[50, 120]] += 5
    assert [mark.step for mark in tell_tales.spikes(run_of(spiky))] == [50, 120]
    assert "a guess among 2 scores 0.693" in tell_tales.stays(run_of(np.log(2) + noise))[0].text
    assert "guess" not in tell_tales.stays(run_of(0.9 + noise))[0].text
    assert "99% of the loss is left" in tell_tales.crawls(run_of(np.linspace(2.0, 1.97, 200)))[0].text
    leap = np.r_[2.3, 900.0, np.full(198, 2.3)]
    assert tell_tales.leaps(run_of(leap))[0].step == 1
    top, low = tell_tales.swings(run_of(falling, np.array([1.0, 0.5, 0.2, 0.9, 0.1, 0.4])))
    assert (top.value, low.value) == (0.9, 0.1)


@pytest.mark.parametrize("exhibit", EXHIBITS.values(), ids=lambda exhibit: exhibit.name)
def test_a_run_of_which_little_is_known_yet_is_drawn(exhibit: Any) -> None:
    for train in ([], [2.3], [2.3, np.nan], [2.3, 2.2, 2.4]):
        run = run_of(np.array(train, float), np.array(train[:1], float) if train else None)
        draw_exhibit(exhibit, run, run)
    assert draw_curve(run_of(np.array([]))) is None


def test_the_twin_lies_behind_and_beside(trainer: Callable[..., Trainer], cabinet: Cabinet) -> None:
    found = trainer()
    found.train([ONE])
    wait(lambda: not found.is_busy)
    run = open_run(cabinet.folder / ONE.name)
    alone, both = (draw_exhibit(EXHIBITS["overfitting"], run, twin) for twin in (None, run))
    assert [chart.name for chart in alone] == ["loss", "gradient-norm"]
    assert [chart.name for chart in both] == ["loss", "gradient-norm", "gradient-norm-twin"]
    names = [trace["name"] for trace in both[0].data]
    assert names[:2] == ["healthy twin, training", "healthy twin, validation"]
    assert both[0].layout["yaxis"].get("type") != "log" and both[0].layout["annotations"]
    assert (
        "annotations" not in draw_exhibit(EXHIBITS["overfitting"], run, marked=False)[0].layout
        or not (draw_exhibit(EXHIBITS["overfitting"], run, marked=False)[0].layout["annotations"])
    )


def test_a_question_has_its_answer_among_four_and_is_not_asked_twice() -> None:
    everything = {each.name for each in TRAININGS}
    assert ask(0, set()) is None
    seen, last = set(), ""
    for seed in range(60):
        question = ask(seed, everything, last)
        assert question is not None and question.training.name != last
        assert len(question.options) == 4 and question.answer in question.options
        assert (question.answer.name == "healthy") == question.training.case.healthy
        seen.add(question.answer.name)
        last = question.training.name
    assert seen == set(EXHIBITS)
    only = ask(1, {ONE.name}, ONE.name)
    assert only is not None and only.training == ONE


@pytest.mark.sweep
@pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.name)
def test_torchdoctor_says_what_the_card_says(training: Training, cabinet: Cabinet) -> None:
    found = Trainer(cabinet)
    found.train([training])
    wait(lambda: not found.is_busy, 180)
    assert found.standing(training.name).state == READY, found.standing(training.name).why
    slow = {each.rule.name for each in catalogue() if each.rule.family == "throughput"}
    findings = [f for f in examine(open_run(cabinet.folder / training.name)).findings if f.name not in slow]
    named = next((f.name for f in findings if f.severity.value != "info"), None)
    assert named == training.case.truth
    assert zoo.find(training.case.name) == training.case
