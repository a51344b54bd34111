"""`torchdoctor run --live` in a terminal: the run is drawn under what the script prints, and nothing is left of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from processes import torchdoctor_command
from terminals import Terminal, terminal
from torchdoctor.launching import birth_of

TRAINING = """
import os, sys, time
import torch

print("terminal", sys.stdout.isatty(), sys.stderr.isatty(), os.isatty(2) and os.get_terminal_size(2))
{before}
there = os.path.exists
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)
step = 0
while {going}:
    {clear}
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    {each}
    step += 1
    time.sleep(0.02)
{after}
"""
READING_SECONDS = 5.0
"""From one picture to the next at the most; one second on a quiet machine."""
BEGUN = re.compile(r"── (\S+)  running  ([\d,]+) steps?")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(**parts: str) -> Path:
        """A training that goes on until there is a file `enough`; `each` step it does something."""
        usual = {
            "before": "",
            "going": 'not there("enough")',
            "clear": "optimizer.zero_grad()",
            "after": "print('done')",
        }
        (tmp_path / "train.py").write_text(TRAINING.format(**{"each": "print('step', step)", **usual, **parts}))
        return tmp_path

    return write


@contextmanager
def live(folder: Path, *options: str, **chosen: Any) -> Iterator[Terminal]:
    words = ("run", "--live", "--quiet", "--name", "a", *options, "train.py")
    with terminal(*words, cwd=folder, owned=True, **chosen) as opened:
        yield opened


def ours(rows: list[str]) -> list[str]:
    """Those of the view; none where it is not drawn."""
    first = next((i for i, row in enumerate(rows) if BEGUN.match(row)), len(rows))
    return rows[first:]


def drawn_steps(rows: list[str]) -> int:
    found = BEGUN.match(ours(rows)[0]) if ours(rows) else None
    return int(found[2].replace(",", "")) if found else 0


def is_drawn(rows: list[str]) -> bool:
    return drawn_steps(rows) > 0 and any("steps/s" in row for row in rows)


def view_of(opened: Terminal) -> int:
    """The process that draws on it."""
    device = os.ttyname(opened.inner)
    views = [p for p in Path("/proc").glob("[0-9]*") if b"torchdoctor.view.companion" in _words_of(p)]
    (found,) = [p for p in views if any(str(file.readlink()) == device for file in (p / "fd").iterdir())]
    return int(found.name)


def _words_of(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def assert_whole(opened: Terminal) -> None:
    assert opened.screen.margins is None
    assert not ours(opened.rows)
    assert not any("gradient flow" in row for row in [*opened.history, *opened.rows])


def test_it_is_drawn_under_the_output_and_gone_with_the_run(write: Callable[..., Path]) -> None:
    folder = write(clear="")
    with live(folder, width=90, height=30) as opened:
        rows = opened.until_shown(lambda rows: is_drawn(rows) and "missing-zero-grad" in "".join(ours(rows)))
        first = drawn_steps(rows)
        view = ours(rows)
        assert len(view) == 15
        assert "── loss  train" in view[1] and "gradient flow" in view[1]
        assert any("0.weight" in row for row in view) and any("2.weight" in row for row in view)
        assert any("ERROR missing-zero-grad" in row for row in view)
        printed = [row for row in rows if re.fullmatch(r"step \d+", row)]
        assert len(printed) > 5
        opened.until_shown(lambda rows: drawn_steps(rows) > first)
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)
        told = [*opened.history, *opened.rows]
        assert "terminal True True os.terminal_size(columns=90, lines=30)" in told
        numbers = [int(row.split()[1]) for row in told if re.fullmatch(r"step \d+", row)]
        assert numbers == list(range(len(numbers)))
        said = [i for i, row in enumerate(told) if row.startswith("torchdoctor: error")]
        assert said[0] < told.index("done") < said[-1]
        assert "another terminal" not in opened.seen


def test_the_script_runs_as_without_it(write: Callable[..., Path]) -> None:
    """The same loss, the same random numbers and no child."""
    after = """
print("random", float(torch.rand(1)), float(loss))
while not there("enough"):
    time.sleep(0.1)
try:
    os.wait()
except ChildProcessError:
    print("no child")
"""
    folder = write(going="step < 100", after=after)
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        (folder / "enough").touch()
        assert opened.finish() == 0
        told = [*opened.history, *opened.rows]
    plain = torchdoctor_command("run", "--quiet", "train.py", cwd=folder).stdout.splitlines()
    assert [row for row in told if row.startswith("random")] == [row for row in plain if row.startswith("random")] != []
    assert "no child" in told


def test_a_progress_bar_stays_above_it(write: Callable[..., Path]) -> None:
    folder = write(
        before="from tqdm import tqdm\nbar = tqdm(total=1000, dynamic_ncols=True)",
        each="bar.update(1)",
        after="bar.close()",
    )
    with live(folder) as opened:
        rows = opened.until_shown(lambda rows: is_drawn(rows) and drawn_steps(rows) > 100)
        assert sum("it/s]" in row for row in rows) == 1
        assert not any("it/s]" in row for row in ours(rows))
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)
        assert sum("it/s]" in row for row in opened.rows) == 1


def test_bars_of_rich_are_not_torn_by_what_is_said(write: Callable[..., Path]) -> None:
    """Findings are said while it draws; Lightning's progress is drawn so."""
    before = (
        "from rich.progress import Progress; import rich; bars = Progress(console=rich.get_console()); bars.start()"
    )
    folder = write(
        before=f"{before}; bar = bars.add_task('epoch', total=1000); bars.add_task('whole', total=1000)",
        clear="",
        each="bars.advance(bar)",
        after="bars.stop()",
    )
    with live(folder, height=30) as opened:
        opened.until_shown(lambda rows: is_drawn(rows) and "missing-zero-grad" in "".join(ours(rows)))
        said = opened.until_shown(lambda rows: any(row.startswith("torchdoctor: error") for row in rows))
        assert sum("epoch" in row for row in said) == sum("whole" in row for row in said) == 1
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)
        assert sum("epoch" in row for row in [*opened.history, *opened.rows]) == 1


def test_what_is_typed_reaches_the_script(write: Callable[..., Path]) -> None:
    folder = write(each="if there('now'): os.remove('now'); print('hello', input('who? '))")
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        opened.until_shown(lambda rows: any("live page" in row for row in rows))  # or it comes while the script asks
        (folder / "now").touch()
        opened.until_shown(lambda rows: "who?" in rows)
        time.sleep(1.5)  # a few pictures, while the cursor waits
        opened.press(b"me\n")
        rows = opened.until_shown(lambda rows: "hello me" in rows)
        assert "who? me" in rows
        (folder / "enough").touch()
        assert opened.finish() == 0


def test_a_new_size_is_divided_anew(write: Callable[..., Path]) -> None:
    folder = write()
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        opened.resize(120, 40)
        opened.until_shown(
            lambda rows: len(rows) == 40 and len(ours(rows)) == 20 and "speed and memory" in "".join(rows)
        )
        opened.resize(50, 10)
        opened.until_shown(lambda rows: not ours(rows))
        opened.resize(80, 24)
        opened.until_shown(lambda rows: len(ours(rows)) == 12)
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)


def test_ctrl_c_ends_the_script_and_the_view(write: Callable[..., Path]) -> None:
    with live(write()) as opened:
        opened.until_shown(is_drawn)
        opened.press(b"\x03")
        assert opened.finish() == -signal.SIGINT
        assert "KeyboardInterrupt" in opened.seen
        assert_whole(opened)


def test_a_traceback_is_read_on_a_whole_terminal(write: Callable[..., Path]) -> None:
    folder = write(each="if there('now'): 1 / 0")
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        (folder / "now").touch()
        assert opened.finish() == 1
        assert any("ZeroDivisionError" in row for row in opened.rows)
        assert_whole(opened)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)", "os.execlp('sleep', 'sleep', '4')"])
def test_a_script_that_vanishes_leaves_a_whole_terminal(write: Callable[..., Path], end: str) -> None:
    folder = write(each=f"if there('now'): {end}")
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        (folder / "now").touch()
        opened.until_shown(lambda rows: not ours(rows) and opened.screen.margins is None)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_view_that_is_killed_or_hangs_does_no_harm(write: Callable[..., Path], sent: signal.Signals) -> None:
    folder = write()
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        view = view_of(opened)
        os.kill(view, sent)
        opened.until(lambda text: text.count("step ") > 20)
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert opened.screen.margins is None
        assert not ours(opened.rows)
        assert "done" in opened.rows
        assert birth_of(view) is None


@pytest.mark.parametrize("sent", [None, signal.SIGKILL])
def test_a_script_for_which_a_broken_pipe_is_deadly_lives_on(
    write: Callable[..., Path], sent: signal.Signals | None
) -> None:
    folder = write(before="import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)")
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        if sent is not None:
            os.kill(view_of(opened), sent)
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert opened.screen.margins is None and not ours(opened.rows)


def test_pictures_come_soon_and_keep_up(write: Callable[..., Path]) -> None:
    """The first look loads what it needs; that is not made up for by waiting."""
    with live(write(each="")) as opened:
        first = drawn_steps(opened.until_shown(is_drawn))
        opened.until_shown(lambda rows: drawn_steps(rows) > first, READING_SECONDS)


def test_nothing_but_pictures_comes_from_the_view(write: Callable[..., Path]) -> None:
    """Its standard error is not the terminal, so that nothing it dies of is written there."""
    with live(write()) as opened:
        opened.until_shown(is_drawn)
        assert str(Path(f"/proc/{view_of(opened)}/fd/2").readlink()) == os.devnull


@pytest.mark.parametrize("told", [{"JPY_PARENT_PID": "1"}, {"TERM": "xterm-color", "PAGER": "cat"}])
def test_in_a_notebooks_cell_nothing_is_drawn(write: Callable[..., Path], told: dict[str, str]) -> None:
    folder = write(going="step < 60")
    with live(folder, **told) as opened:
        assert opened.finish() == 0
    assert "\x1b7" not in opened.seen and "in another terminal" in opened.seen


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="makes a namespace of processes")
def test_as_process_1_the_script_has_no_child_of_ours(write: Callable[..., Path]) -> None:
    """In a container whatever is nobody's child is the first process's."""
    after = "print('children', open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split())"
    folder = write(going="step < 100", after=after)
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not to be had here")
    command = [*inside, sys.executable, "-m", "torchdoctor", "run", "--live", "--quiet", "train.py"]
    with terminal(command=command, cwd=folder, owned=True) as opened:
        assert opened.finish() == 0
    assert "children []" in opened.seen and "no live page, because this is process 1" in opened.seen


def test_while_another_program_is_in_the_foreground_it_is_away(write: Callable[..., Path]) -> None:
    folder = write()
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with terminal(command=shell, cwd=folder, owned=True, PS1="prompt ") as opened:
        opened.until_shown(lambda rows: "prompt" in rows)
        opened.press(f"{sys.executable} -m torchdoctor run --live --quiet train.py\n".encode())
        opened.until_shown(is_drawn)
        opened.press(b"\x1a")
        opened.until_shown(lambda rows: not ours(rows) and opened.screen.margins is None and "prompt" in rows)
        opened.press(b"echo my $((40 + 2))\n")
        opened.until_shown(lambda rows: "my 42" in rows)
        opened.press(b"fg\n")
        opened.until_shown(is_drawn)
        (folder / "enough").touch()
        opened.until_shown(lambda rows: "done" in rows and not ours(rows) and opened.screen.margins is None)
        opened.press(b"exit\n")
        assert opened.finish() == 0


def test_a_command_in_a_session_of_its_own_is_drawn_too(write: Callable[..., Path]) -> None:
    """torchrun starts its workers so: they cannot see who is in the foreground, the command that started them can."""
    folder = write()
    words = ("run", "--live", "--quiet", "--", "setsid", "--wait", sys.executable, "train.py")
    with terminal(*words, cwd=folder, owned=True) as opened:
        opened.until_shown(is_drawn)
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)
        assert "another terminal" not in opened.seen


def test_where_the_output_goes_to_a_file_nearly_all_is_the_views(write: Callable[..., Path]) -> None:
    folder = write()
    command = f"exec {sys.executable} -m torchdoctor run --live --quiet train.py > log"
    with terminal(command=["bash", "-c", command], cwd=folder, owned=True, height=40) as opened:
        rows = opened.until_shown(is_drawn)
        assert len(ours(rows)) == 34
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)
    assert "\x1b" not in (folder / "log").read_text()
    assert (folder / "log").read_text().endswith("done\n")


def test_a_second_run_in_the_same_terminal_is_pointed_elsewhere(write: Callable[..., Path]) -> None:
    folder = write(each="")
    one = f"{sys.executable} -m torchdoctor run --live --quiet --name"
    with terminal(
        command=["bash", "-c", f"{one} a train.py & {one} b train.py; wait"], cwd=folder, owned=True
    ) as opened:
        opened.until_shown(is_drawn)
        opened.until(lambda text: "another" in opened.seen)
        assert sum(1 for row in opened.rows if BEGUN.match(row)) == 1
        (folder / "enough").touch()
        assert opened.finish() == 0
        assert_whole(opened)


def test_as_many_rows_as_were_wished(write: Callable[..., Path]) -> None:
    folder = write()
    with live(folder, "--view-rows", "16") as opened:
        assert len(ours(opened.until_shown(is_drawn))) == 16
        (folder / "enough").touch()
        assert opened.finish() == 0


@pytest.mark.parametrize("why", ["none wished", "small", "dumb", "not ours"])
def test_elsewhere_the_terminal_is_the_scripts_alone(write: Callable[..., Path], why: str) -> None:
    folder = write(going="step < 60")
    chosen: dict[str, Any] = {"small": {"height": 15}, "dumb": {"TERM": "dumb"}}.get(why, {})
    options = ("--view-rows", "0") if why == "none wished" else ()
    with terminal(
        *("run", "--live", "--quiet", *options, "train.py"), cwd=folder, owned=why != "not ours", **chosen
    ) as opened:
        assert opened.finish() == 0
    assert "gradient flow" not in opened.seen
    assert "\x1b7" not in opened.seen
    assert "in another terminal: torchdoctor top" in "".join(opened.seen.split("\r\n"))


def test_a_script_that_closes_every_file_finds_nothing_of_ours_in_its_own(write: Callable[..., Path]) -> None:
    reopening = "os.remove('now'); os.closerange(3, 256); files = [open(f'{i}', 'w') for i in range(40)]"
    folder = write(each=f"if there('now'): {reopening}")
    with live(folder) as opened:
        opened.until_shown(is_drawn)
        (folder / "now").touch()
        opened.until_shown(lambda rows: not ours(rows) and opened.screen.margins is None)
        (folder / "enough").touch()
        opened.finish()
    assert [(folder / str(i)).read_text() for i in range(40)] == [""] * 40


def test_a_script_that_never_trains_is_told_so_and_nothing_drawn(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint('hello')\n")
    with live(tmp_path) as opened:
        assert opened.finish() == 0
    assert "\x1b7" not in opened.seen
    assert "nothing to diagnose" in opened.seen


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--view-rows", "12"), "give --live, too"),
        (("--live", "--view-rows", "5"), "takes 10 or more, or 0"),
        (("--live", "--view-rows", "-1"), "x>=0"),
    ],
)
def test_wrong_use(write: Callable[..., Path], options: tuple[str, ...], words: str) -> None:
    done = torchdoctor_command("run", *options, "train.py", cwd=write())
    assert done.returncode == 2
    assert words in done.stderr
