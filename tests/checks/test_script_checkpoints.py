"""A script's own saving and resuming, in the styles that people write them: whole, with a part left out, or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.scripts_that_resume import (
    BEGINNING,
    BEST,
    CHECKPOINTING,
    FUNCTIONS,
    INLINE,
    MADE,
    METHODS,
    loading,
    outcome_of,
    parts,
)
from torchdoctor.checks.check import Outcome
from torchdoctor.findings import Severity

LOST = {"optimizer": "optimizer state", "scheduler": "schedule", "scaler": "gradient scaler"}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def inline(folder: Path, saved: tuple[str, ...] = (), loaded: tuple[str, ...] = (), **more: object) -> Outcome:
    """Without those parts."""
    script = INLINE.replace("{parts}", parts(*saved)).replace("{loading}", loading(8, *loaded))
    return outcome_of(folder, script, **more)  # type: ignore[arg-type]


def functions(folder: Path, saved: tuple[str, ...] = (), loaded: tuple[str, ...] = ()) -> Outcome:
    given = "optimizer, scheduler=scheduler, scaler=scaler"
    script = FUNCTIONS.replace("{parts}", parts(*saved)).replace("{given}", given)
    return outcome_of(folder, script, checkpointing=CHECKPOINTING.replace("{loading}", loading(4, *loaded)))


def methods(folder: Path, saved: tuple[str, ...] = (), loaded: tuple[str, ...] = ()) -> Outcome:
    script = METHODS.replace("{parts}", parts(*saved)).replace("{loading}", loading(8, *loaded))
    return outcome_of(folder, script)


STYLES = {"inline": inline, "functions": functions, "methods": methods}


@pytest.mark.parametrize("style", STYLES)
def test_a_whole_checkpoint_comes_back_to_the_bit(style: str, tmp_path: Path) -> None:
    outcome = STYLES[style](tmp_path)
    assert outcome.passed and "same bits" in outcome.text and outcome.figures["random"] is True
    assert "optimizer state, schedule, gradient scaler come back" in outcome.text
    assert not any((tmp_path / "work").glob("**/last.pt"))


@pytest.mark.parametrize("lacks", LOST)
@pytest.mark.parametrize("style", STYLES)
def test_a_part_that_is_saved_and_not_loaded(style: str, lacks: str, tmp_path: Path) -> None:
    outcome = STYLES[style](tmp_path, (), (lacks,))
    assert outcome.passed is False and outcome.diagnosis == "resume-without-state"
    assert outcome.severity is Severity.WARNING and LOST[lacks] in outcome.text
    assert f"{LOST[lacks]}: in the file, and not loaded" in [e.text for e in outcome.evidence]
    assert outcome.fix is not None and "torch.save" not in (outcome.fix.listing or "")
    assert [Path(p.file or "").name for p in outcome.where] == ["train.py", "train.py"]


@pytest.mark.parametrize("lacks", LOST)
@pytest.mark.parametrize("style", STYLES)
def test_a_part_that_is_not_saved(style: str, lacks: str, tmp_path: Path) -> None:
    outcome = STYLES[style](tmp_path, (lacks,), (lacks,))
    assert outcome.passed is False and outcome.severity is Severity.WARNING
    assert f"{LOST[lacks]}: not in the file" in [e.text for e in outcome.evidence]
    assert outcome.fix is not None and f'"{lacks}": ' in (outcome.fix.listing or "")


@pytest.mark.parametrize("style", STYLES)
def test_random_numbers_are_told_of(style: str, tmp_path: Path) -> None:
    outcome = STYLES[style](tmp_path, ("random",), ("random",))
    assert outcome.passed and "random state is not in it" in outcome.text


def test_a_save_that_has_not_been_reached(tmp_path: Path) -> None:
    outcome = inline(tmp_path, epoch=0)
    assert outcome.passed and "same bits" in outcome.text
    outcome = inline(tmp_path, ("optimizer",), ("optimizer",), epoch=0)
    assert outcome.passed is False


def test_the_best_model_alone_is_no_fault(tmp_path: Path) -> None:
    for epoch in (0, 1):
        outcome = outcome_of(tmp_path, BEST, epoch=epoch)
        assert outcome.passed is None and "no code that resumes from it was found" in outcome.text


LOOP = """
for epoch in range(start_epoch, 10):
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    scheduler.step()
    torch.save(model.state_dict(), "best.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
"""
START = BEGINNING + MADE.replace('scaler = torch.amp.GradScaler("cpu")', "start_epoch = 0")


def resume(folder: Path, text: str, loop: str = LOOP, **more: object) -> Outcome:
    return outcome_of(folder, START + text + loop, **more)  # type: ignore[arg-type]


def test_weights_alone_of_what_is_called_a_resume(tmp_path: Path) -> None:
    outcome = resume(tmp_path, 'if args.resume:\n    model.load_state_dict(torch.load(args.resume)["model"])\n')
    assert outcome.passed is False and outcome.severity is Severity.WARNING
    assert "optimizer state" in outcome.text and "schedule" in outcome.text


def test_weights_alone_of_the_file_that_the_training_writes(tmp_path: Path) -> None:
    text = "if os.path.exists({0}):\n    model.load_state_dict(torch.load({0}))\n"
    outcome = resume(tmp_path, text.format("'weights.pt'"), LOOP.replace('"best.pt"', '"weights.pt"'))
    assert outcome.passed is False and "optimizer state" in outcome.text
    assert "no code that resumes" in resume(tmp_path, text.format("'best.pt'")).text
    assert "no code that resumes" in resume(tmp_path, text.format("'other.pt'")).text


def test_the_count_of_epochs_tells_of_a_resume(tmp_path: Path) -> None:
    text = (
        "if os.path.exists('x.pt'):\n    ckpt = torch.load('x.pt')\n    model.load_state_dict(ckpt['model'])\n    {}\n"
    )
    assert resume(tmp_path, text.format("start_epoch = ckpt['epoch'] + 1")).passed is False
    assert resume(tmp_path, text.format("print('trained for', ckpt['epoch'])")).passed is None


BRANCHES = """
if args.resume:
    if not os.path.exists(args.resume):
        raise FileNotFoundError(args.resume)
    if torch.cuda.is_available():
        where = "cuda"
        ckpt = torch.load(args.resume, map_location=where)
    else:
        where = "cpu"
        ckpt = torch.load(args.resume, map_location=where)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
"""


def test_branches_around_the_load(tmp_path: Path) -> None:
    outcome = resume(tmp_path, BRANCHES)
    assert outcome.passed is False and "schedule" in outcome.text and "optimizer" not in outcome.text


def test_a_file_for_each_part(tmp_path: Path) -> None:
    text = """
if args.resume is not None:
    folder = Path(args.resume)
    model.load_state_dict(torch.load(folder / "model.pt"))
    optimizer.load_state_dict(torch.load(folder / "optimizer.pt"))
"""
    parts = [f'    torch.save({name}.state_dict(), Path("runs") / "{name}.pt")' for name in ("model", "optimizer")]
    Path("runs").mkdir()
    loop = "\n".join([LOOP.partition("    scheduler.step()")[0].rstrip(), *parts, ""])
    outcome = resume(tmp_path, "del scheduler\n" + text, loop)
    assert outcome.passed and "same bits" in outcome.text


BOTH = """
if args.resume:
    ckpt = torch.load(args.resume)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    start_epoch = ckpt["epoch"] + 1
"""


@pytest.mark.parametrize(
    "schedule",
    [
        "    for _ in range(start_epoch):\n        scheduler.step()\n",
        "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10, last_epoch=start_epoch - 1)\n",
        "    scheduler.last_epoch = ckpt['epoch']\n",
    ],
    ids=["stepped", "made anew", "set"],
)
def test_a_schedule_that_is_brought_back_by_a_count(schedule: str, tmp_path: Path) -> None:
    outcome = resume(tmp_path, BOTH + schedule)
    assert outcome.passed and "come back" in outcome.text
    assert resume(tmp_path, BOTH).passed is False


def test_a_schedule_that_is_told_the_epoch(tmp_path: Path) -> None:
    assert resume(tmp_path, BOTH, LOOP.replace("scheduler.step()", "scheduler.step(epoch)")).passed


@pytest.mark.parametrize(
    "text",
    [
        'if args.pretrained:\n    model.load_state_dict(torch.load(args.pretrained)["model"])\n',
        'if args.evaluate:\n    model.load_state_dict(torch.load(args.resume)["model"])\n',
        'weights = torch.load("backbone.pt")\nmodel.load_state_dict(weights, strict=False)\n'.replace(
            "weights =", "if args.pretrained:\n    weights ="
        ).replace("\nmodel", "\n    model"),
    ],
)
def test_loads_that_a_training_does_not_go_on_from(text: str, tmp_path: Path) -> None:
    outcome = resume(tmp_path, text)
    assert outcome.passed is None and "no code that resumes" in outcome.text


def test_a_load_after_the_loop_or_in_the_other_branch(tmp_path: Path) -> None:
    after = "\nckpt = torch.load('last.pt')\nmodel.load_state_dict(ckpt['model'])\nepoch = ckpt['epoch']\n"
    assert "no code that resumes" in resume(tmp_path, "", LOOP + after).text
    other = "if os.path.exists('resume.pt'):\n    model.load_state_dict(torch.load('resume.pt')['model'])\nelse:"
    assert "no code that resumes" in resume(tmp_path, other, LOOP.replace("\n", "\n    ")).text


def test_a_model_of_its_own_is_not_compared(tmp_path: Path) -> None:
    outcome = resume(tmp_path, "if args.resume:\n    model = torch.load(args.resume, weights_only=False)\n")
    assert outcome.passed is None and "could not be tried" in outcome.text


def test_two_loads_and_a_loop_without_schedule(tmp_path: Path) -> None:
    text = """
def load_model(path, model):
    model.load_state_dict(torch.load(path)["model"])
    return model


def load_optimizer(path, optimizer):
    optimizer.load_state_dict(torch.load(path)["optimizer"])


del scheduler
if args.resume:
    model = load_model(args.resume, model)
    load_optimizer(args.resume, optimizer)
"""
    outcome = resume(tmp_path, text, LOOP.replace("    scheduler.step()\n", ""))
    assert outcome.passed and "same bits" in outcome.text
    outcome = resume(
        tmp_path, text.replace("    load_optimizer(", "    print("), LOOP.replace("    scheduler.step()\n", "")
    )
    assert outcome.passed is False and "optimizer state" in outcome.text


HIDDEN = """
def maybe_resume(config, model, optimizer, scheduler):
    if not config.resume:
        return 0
    assert os.path.exists(config.resume)
    ckpt = torch.load(config.resume, map_location="cpu")
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
    {schedule}
    return ckpt["epoch"] + 1


start_epoch = maybe_resume(args, model, optimizer, scheduler)
"""


def test_questions_inside_of_the_function(tmp_path: Path) -> None:
    whole = LOOP.replace('"epoch": epoch', '"epoch": epoch, "scheduler": scheduler.state_dict()')
    outcome = resume(tmp_path, HIDDEN.replace("{schedule}", 'scheduler.load_state_dict(ckpt["scheduler"])'), whole)
    assert outcome.passed and "same bits" in outcome.text
    assert "schedule (" in resume(tmp_path, HIDDEN.replace("{schedule}", "pass"), whole).text


def test_a_load_that_fails_on_what_is_saved(tmp_path: Path) -> None:
    outcome = resume(tmp_path, BOTH.replace('ckpt["optimizer"]', 'ckpt["optim"]'))
    assert outcome.passed is False and "KeyError: 'optim'" in outcome.text and outcome.severity is Severity.WARNING
    outcome = resume(tmp_path, BOTH, LOOP.replace('"epoch": epoch', '"epoch": epoch, "args": args'))
    assert outcome.passed is False and "UnpicklingError" in outcome.text


def test_a_function_that_nobody_has_called_is_a_note_at_most(tmp_path: Path) -> None:
    text = """
def load_checkpoint(path, model, optimizer):
    ckpt = torch.load(path)
    model.load_state_dict(ckpt["model"])
    optimizer.load_state_dict(ckpt["optimizer"])
"""
    outcome = resume(tmp_path, text)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "schedule" in outcome.text


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    inline(tmp_path)
    assert [p.name for p in (tmp_path / "work").iterdir()] == ["checkpoint_0.pt"]  # of the script's own first epoch
