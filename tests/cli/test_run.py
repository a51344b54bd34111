"""`torchdoctor run`: its options, its words, its exit status. The script's own behaviour: see attach/test_script.py."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stage import Stage

FAULT = "nan-in-inputs"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage.build(tmp_path)
    stage.write("healthy.py", "import torch\ntorch.train()\nprint('done')\n")
    stage.write("faulty.py", f"import torch\ntorch.train({FAULT!r})\nprint('done')\n")
    stage.write("plain.py", "print('done')\n")
    return stage


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of ours on stderr."""
    told = [line for line in done.stderr.splitlines() if line.startswith("torchdoctor: ")]
    assert len(told) == 1, done.stderr
    return told[0].removeprefix("torchdoctor: ")


# -- the verdict ------------------------------------------------------------------------------------------------------


def test_a_run_leaves_a_folder_and_a_verdict(stage: Stage) -> None:
    done = stage.run("faulty.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert f"It is {FAULT}" in done.stderr
    assert len(stage.runs) == 1 and stage.runs[0].startswith("faulty-2")
    assert stage.runs[0] in done.stderr


def test_out_and_name_say_where(stage: Stage) -> None:
    stage.run("--out", "here/and/there", "--name", "first try", "healthy.py")
    assert (stage.folder / "here" / "and" / "there" / "first try").is_dir()


def test_the_folder_is_where_it_was_asked_for_when_the_script_goes_elsewhere(stage: Stage) -> None:
    stage.write("wanders.py", "import os\nos.mkdir('sub')\nos.chdir('sub')\nimport torch\ntorch.train()\n")
    stage.run("--name", "n", "--json", "verdict.json", "wanders.py")
    assert stage.runs == ["n"]
    assert (stage.folder / "verdict.json").is_file()


def test_json_is_written_to_a_file(stage: Stage) -> None:
    stage.run("--json", "verdict.json", "faulty.py")
    verdict = json.loads((stage.folder / "verdict.json").read_text())
    assert verdict["findings"][0]["name"] == FAULT


def test_the_recorder_is_imported_after_torch_only(stage: Stage) -> None:
    stage.run("healthy.py")
    assert [line.rpartition(" ")[2] for line in stage.starts] == ["[]"]


@pytest.mark.parametrize(("script", "lines"), [("healthy.py", 0), ("faulty.py", 1)])
def test_quiet_says_one_line_if_something_is_wrong(script: str, lines: int, stage: Stage) -> None:
    done = stage.run("--quiet", script)
    assert len(done.stderr.splitlines()) == lines
    if lines:
        assert sentence(done).startswith(f"warning: It is {FAULT} ({FAULT}); torchdoctor diagnose ")


def test_live_says_findings_as_they_come(stage: Stage) -> None:
    stage.write("train.py", f"import sys, torch\ntorch.train({FAULT!r})\nprint('later', file=sys.stderr)\n")
    lines = stage.run("--live", "train.py").stderr.splitlines()
    assert lines[:2] == [f"torchdoctor: warning: It is {FAULT} ({FAULT})", "later"]


def test_a_line_while_bars_are_drawn_goes_through_tqdm(stage: Stage) -> None:
    source = f"""
        import sys, torch
        from tqdm import tqdm
        for i in tqdm(range(3), ascii=True, mininterval=0, miniters=1):
            if i == 1:
                torch.train({FAULT!r})
    """
    stage.write("train.py", source)
    done = stage.run("--live", "train.py")
    told = [line for line in done.stderr.replace("\r", "\n").splitlines() if "torchdoctor: " in line]
    assert told == [f"torchdoctor: warning: It is {FAULT} ({FAULT})"]


# -- the exit status --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "severity", "status"),
    [
        ("faulty.py", "warning", 3),
        ("faulty.py", "INFO", 3),
        ("faulty.py", "error", 0),
        ("healthy.py", "info", 0),
        ("fails.py", "warning", 1),
    ],
)
def test_fail_on_gives_3_where_the_script_itself_gave_0(script: str, severity: str, status: int, stage: Stage) -> None:
    stage.write("fails.py", f"import torch\ntorch.train({FAULT!r})\n1 / 0\n")
    assert stage.run("--fail-on", severity, script).returncode == status


@pytest.mark.parametrize(("more", "status"), [((), 0), (("--fail-on", "warning"), 3)])
def test_stop_on_ends_the_run_without_a_traceback(more: tuple[str, ...], status: int, stage: Stage) -> None:
    done = stage.run("--stop-on", FAULT, *more, "faulty.py")
    assert (done.returncode, done.stdout) == (status, "")
    assert "Traceback" not in done.stderr
    assert sentence(done).startswith(f"stopped on {FAULT}")
    assert stage.diary[-1] == "finish interrupted"


@pytest.mark.parametrize(
    "spelling", ["D007", "d007", FAULT.upper(), FAULT.replace("-", "_"), f"data-not-shuffled,{FAULT}"]
)
def test_a_diagnosis_may_be_named_by_its_code(spelling: str, stage: Stage) -> None:
    from torchdoctor.settings import known_rules

    known = {name: rule.code for name, rule in known_rules().items()}
    spelling = spelling.replace("D007", known[FAULT]).replace("d007", known[FAULT].lower())
    spelling = spelling.replace("data-not-shuffled", next(iter(known)))
    assert stage.run("--stop-on", spelling, "faulty.py").stdout == ""


def test_names_read_from_source_are_the_catalogue() -> None:
    from torchdoctor.rules import catalogue
    from torchdoctor.settings import known_rules

    read = {name: (rule.code, rule.family) for name, rule in known_rules().items()}
    assert read == {r.rule.name: (r.rule.code, r.rule.family) for r in catalogue()}


@pytest.mark.parametrize(
    ("source", "status", "diary"),
    [
        ("raise ValueError('x')", 1, "finish crashed ValueError at ends.py:3"),
        ("import sys; sys.exit(0)", 0, "finish finished"),
        ("import sys; sys.exit(6)", 6, "finish crashed"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "finish interrupted"),
    ],
)
def test_however_it_ends_the_record_is_closed_once_and_told(source: str, status: int, diary: str, stage: Stage) -> None:
    stage.write("ends.py", f"import torch\ntorch.train({FAULT!r})\n{source}\n")
    done = stage.run("ends.py")
    assert done.returncode == status
    assert [line for line in stage.diary if line.startswith("finish")] == [diary]
    assert f"It is {FAULT}" in done.stderr


def hear_ctrl_c() -> None:
    """A suite that a shell started in the background ignores it, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_gives_the_verdict_and_dies_by_the_signal(stage: Stage) -> None:
    stage.write("long.py", f"import time, torch\ntorch.train({FAULT!r})\nprint('go', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchdoctor", "run", "long.py"],
        cwd=stage.folder,
        env=stage.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert told.splitlines()[-1 - told.splitlines()[::-1].index("KeyboardInterrupt")] == "KeyboardInterrupt"
    assert f"It is {FAULT}" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_command_reaches_the_training_and_the_verdict_is_told(
    number: signal.Signals, stage: Stage
) -> None:
    stage.write("long.py", f"import time, torch\ntorch.train({FAULT!r})\nprint('go', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchdoctor", "run", "--", sys.executable, "long.py"],
        cwd=stage.folder,
        env=stage.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == -number
    assert f"It is {FAULT}" in told


def test_ctrl_c_at_a_terminal_reaches_a_command_once(stage: Stage) -> None:
    source = """
        import signal, time, torch
        torch.train()
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        print("go", flush=True)
        time.sleep(1.5)
        print("seen", len(seen), flush=True)
    """
    stage.write("counts.py", source)
    command = [sys.executable, "-m", "torchdoctor", "run", "--", sys.executable, "counts.py"]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(stage.folder)
        os.execve(command[0], command, stage.environment())
    told, sent = b"", False
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        told += part
        if b"go" in told and not sent:
            sent = True
            time.sleep(0.2)
            os.write(terminal, b"\x03")
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"seen 1" in told
    assert b"NO FAULT FOUND" in told


def test_the_verdict_comes_after_threads_and_before_atexit(stage: Stage) -> None:
    source = """
        import atexit, sys, threading, time, torch
        atexit.register(print, "at exit", file=sys.stderr)
        def work():
            time.sleep(0.3)
            torch.train()
            print("thread done", file=sys.stderr)
        threading.Thread(target=work).start()
    """
    stage.write("threads.py", source)
    told = stage.run("threads.py").stderr
    assert told.index("thread done") < told.index("NO FAULT FOUND") < told.index("at exit")


def test_os_exit_is_respected(stage: Stage) -> None:
    stage.write("leaves.py", "import os, torch\ntorch.train()\nos._exit(9)\n")
    done = stage.run("leaves.py")
    assert (done.returncode, done.stdout) == (9, "")
    assert done.stderr.count("NO FAULT FOUND") == 1


# -- ranks ------------------------------------------------------------------------------------------------------------


def test_only_rank_0_speaks_and_all_agree_on_the_name(stage: Stage) -> None:
    source = """
        import os, subprocess, sys
        for rank in sys.argv[1:]:
            environment = {**os.environ, "RANK": rank, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
            command = [sys.executable, "-m", "torchdoctor", "run", "faulty.py"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            print(rank, done.returncode, "It is" in done.stderr, len(done.stderr) > 0)
    """
    launcher = str(stage.write("launch.py", source))
    done = stage.call(sys.executable, launcher, "1", "0")
    assert done.stdout == "1 0 False False\n0 0 True True\n"
    assert [line.split()[2] for line in stage.diary if line.startswith("train")] == ["1", "0"]
    assert len(stage.runs) == 1
    stage.call(sys.executable, launcher, "0")
    assert len(stage.runs) == 2


def test_a_rank_other_than_0_is_silent_about_mistakes(stage: Stage) -> None:
    done = stage.run("nowhere.py", RANK="1")
    assert (done.returncode, done.stderr) == (2, "")


# -- nothing to diagnose ----------------------------------------------------------------------------------------------


def test_ctrl_c_before_the_script_begins_ends_it_by_sigint_as_python_does(stage: Stage) -> None:
    source = """
        import os, signal, subprocess
        subprocess.run = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)  # as the observer is started
    """
    stage.write("early/sitecustomize.py", source)
    done = stage.run("plain.py", PYTHONPATH=str(stage.folder / "early"))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_script_without_torch(stage: Stage) -> None:
    done = stage.run("plain.py", "--lr", "a b")
    assert (done.returncode, done.stdout) == (0, "done\n")
    told = sentence(done)
    assert told.startswith("the script ended without importing torch: nothing to diagnose.")
    assert told.endswith("plain.py --lr 'a b'")


def test_a_script_that_never_trains(stage: Stage) -> None:
    stage.write("idle.py", "import torch\n")
    done = stage.run("idle.py")
    assert done.returncode == 0
    assert sentence(done).startswith("no backward pass to parameters and no optimizer step was seen")
    assert not (stage.folder / "torchdoctor-runs").exists()


@pytest.mark.parametrize("source", ["raise SystemExit(5)", "import sys; sys.exit('usage: ...')", "1 / 0"])
def test_a_script_that_fails_early_keeps_its_status(source: str, stage: Stage) -> None:
    stage.write("early.py", f"import torch\n{source}\n")
    done = stage.run("early.py")
    assert done.returncode in (1, 5)
    assert sentence(done).startswith("the script failed before a backward pass or an optimizer step was seen")


def test_a_script_that_is_interrupted_early(stage: Stage) -> None:
    stage.write("early.py", "import torch\nraise KeyboardInterrupt\n")
    done = stage.run("early.py")
    assert done.returncode == -signal.SIGINT
    assert sentence(done).startswith("the script was interrupted before a backward pass")


def test_training_in_a_subprocess_is_told_from_the_time_it_took(stage: Stage) -> None:
    source = """
        import subprocess, sys
        code = "import time\\nend = time.process_time() + 1.3\\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-c", code])
    """
    stage.write("starts.py", source)
    done = stage.run("starts.py")
    assert done.returncode == 0
    assert "Its child processes worked for 1 s" in sentence(done)
    command = sentence(done).partition("use torchdoctor ")[2]
    assert command.startswith("run -- ") and command.endswith("starts.py")


def test_a_script_that_replaces_itself_is_told_of(stage: Stage) -> None:
    stage.write("again.py", "import os, sys\nos.execvp(sys.executable, [sys.executable, 'plain.py'])\n")
    done = stage.run("again.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert sentence(done).startswith("the script is replacing itself with another program (os.exec)")


def test_an_old_run_of_that_name_is_not_taken_for_a_new_one(stage: Stage) -> None:
    stage.run("--name", "n", "faulty.py")
    time.sleep(0.1)
    done = stage.run("--name", "n", "plain.py")
    assert done.returncode == 0
    assert "nothing to diagnose" in sentence(done)


def test_children_that_outlive_the_script_are_told_of(stage: Stage) -> None:
    source = """
        import multiprocessing, time
        def work():
            time.sleep(1.5)
            print("worked", flush=True)
        if __name__ == "__main__":
            multiprocessing.get_context("spawn").Process(target=work).start()
    """
    stage.write("leaves.py", source)
    done = stage.run("leaves.py")
    assert done.stdout == "worked\n"
    assert "Its child processes still run; later see torchdoctor runs list" in sentence(done)


@pytest.mark.parametrize("key", ["STAGE_START_FAILS", "STAGE_FINISH_FAILS"])
def test_when_we_fail_the_script_does_not(key: str, stage: Stage) -> None:
    stage.write("train.py", "import torch\ntorch.train()\nprint('done')\n")
    done = stage.run("train.py", **{key: "1"})
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "Traceback" not in done.stderr
    assert "the disk is full" in done.stderr or "too strange" in done.stderr


@pytest.mark.parametrize("out", ["healthy.py", "/dev/null/x", "healthy.py/deeper"])
def test_a_folder_that_cannot_be_written_does_not_keep_the_script_from_starting(out: str, stage: Stage) -> None:
    done = stage.run("--out", out, "healthy.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert sentence(done).startswith("cannot write runs to")
    assert stage.starts == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_files_that_may_not_be_written_do_not_keep_the_script_from_starting(stage: Stage) -> None:
    (stage.folder / "closed").mkdir(mode=0o500)
    done = stage.run("--out", "closed/runs", "healthy.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    done = stage.run("--json", "closed/x", "healthy.py")
    assert (done.returncode, done.stdout) == (0, "done\n")


@pytest.mark.parametrize("command", [["run"], ["run", "--out", "{out}"], ["run", "--json", "{out}/v.json"]])
def test_a_script_runs_in_a_current_folder_that_has_been_deleted(command: list[str], stage: Stage) -> None:
    words = [word.format(out=stage.folder) for word in command]
    code = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); os.execv(sys.argv[1], sys.argv[1:])"
    )
    ours = [sys.executable, "-c", "from torchdoctor.cli import main; main()", *words]
    done = stage.call(sys.executable, "-c", code, *ours, str(stage.folder / "faulty.py"))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert ("It is" in done.stderr) == ("--out" in words)


def test_a_verdict_is_told_where_the_script_has_closed_its_standard_error(stage: Stage) -> None:
    stage.write("closes.py", f"import sys, torch\ntorch.train({FAULT!r})\nsys.stderr.close()\n")
    done = stage.run("--json", "verdict.json", "closes.py")
    assert done.returncode == 0
    assert f"It is {FAULT}" in done.stderr
    assert (stage.folder / "verdict.json").is_file()


def test_nothing_is_written_to_a_file_that_took_the_place_of_the_standard_error(stage: Stage) -> None:
    source = f"""
        import os, sys, torch
        torch.train({FAULT!r})
        sys.stderr.close()
        os.close(2)
        mine = open("mine", "w")
        assert mine.fileno() == 2
    """
    stage.write("reopens.py", source)
    assert stage.run("reopens.py").returncode == 0
    assert (stage.folder / "mine").read_text() == ""


@pytest.mark.parametrize("words", [["--", sys.executable, "-c", "pass"], ["-c", "pass"]])
def test_a_program_without_training_keeps_its_status(words: list[str], stage: Stage) -> None:
    assert stage.run(*words).returncode == 0


def test_a_verdict_that_cannot_be_written_changes_nothing_else(stage: Stage) -> None:
    stage.write("train.py", f"import os, torch\ntorch.train({FAULT!r})\nos.mkdir('verdict.json')\n")
    done = stage.run("--json", "verdict.json", "--fail-on", "warning", "train.py")
    assert done.returncode == 3
    assert f"It is {FAULT}" in done.stderr and "no JSON was written" in done.stderr


def test_require_recording_leaves_no_trace_of_its_trial(stage: Stage) -> None:
    done = stage.run("--require-recording", "--out", "deep/runs", "-c", "print('done')")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert not (stage.folder / "deep").exists()


def test_disabled_means_not_there(stage: Stage) -> None:
    done = stage.run("--live", "faulty.py", TORCHDOCTOR_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    done = stage.run("--", sys.executable, "faulty.py", TORCHDOCTOR_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert stage.starts == []


# -- what was typed ---------------------------------------------------------------------------------------------------


def test_options_end_at_the_script(stage: Stage) -> None:
    stage.write("show.py", "import sys, torch\ntorch.train()\nprint(sys.argv[1:])\n")
    words = ["--help", "--json", "--out", "-m", "--", "-c", "--quiet", "*.py"]
    assert stage.run("--quiet", "show.py", *words).stdout == f"{words}\n"
    assert stage.run("--quiet", "-m", "show", *words).stdout == f"{words}\n"
    assert stage.run("--quiet", "-mshow", *words).stdout == f"{words}\n"
    assert stage.run("--quiet", "--", "show.py", *words).stdout == f"{words}\n"
    assert (
        stage.run("--out=x", "-c", "import sys, torch; torch.train(); print(sys.argv)", "a").stdout == "['-c', 'a']\n"
    )


def test_help_names_every_way_to_run(stage: Stage) -> None:
    done = stage.run("--help")
    assert done.returncode == 0
    for words in ("-m MODULE", "-c CODE", "-- COMMAND", "--fail-on SEVERITY", "--stop-on NAME", "torchrun"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no script was given; write torchdoctor run train.py"),
        (["--quiet"], "no script was given"),
        (["-m"], "nothing follows -m"),
        (["helthy.py"], "there is no file 'helthy.py'; did you mean healthy.py?"),
        (["healthy"], "there is no file 'healthy'; did you mean healthy.py?"),
        (["nowhere/train.py"], "there is no file 'nowhere/train.py': there is no folder 'nowhere' either"),
        (["package.train"], "there is no file 'package.train'; for a module write torchdoctor run -m package.train"),
        (["python", "healthy.py"], "there is no file 'python'; leave python out: torchdoctor run healthy.py"),
        (["torchrun", "healthy.py"], "torchdoctor run -- torchrun ..."),
        (["x" * 300], "cannot read"),
        (["folder"], "folder is a folder without a __main__.py; name the script in it, for example folder/a.py"),
        (["-"], "save it in a file and run that"),
        (["-m", "no_such_module_here"], "cannot run -m no_such_module_here: No module named"),
        (["-m", "empty.py"], "try 'empty' instead of 'empty.py'"),
        (["--", "no-such-program", "x"], "cannot start 'no-such-program': there is no such program"),
        (["--", "torchrun", "-m", "torchdoctor", "run", "x.py"], "torchdoctor stands twice in this command"),
        (["--fail-on", "fatal", "healthy.py"], "--fail-on takes error, warning or info, not 'fatal'"),
        (["--stop-on", "nan-in-input", "healthy.py"], "did you mean nan-in-inputs"),
        (["--stop-on", "qqqq", "healthy.py"], "there is no diagnosis 'qqqq'"),
        (["--name", "a/b", "healthy.py"], "--name must be the name of a folder"),
        (["--require-recording", "--out", "healthy.py", "healthy.py"], "healthy.py is a file; give another folder"),
        (["--require-recording", "--name", "n" * 300, "healthy.py"], "File name too long"),
        (["--json", "nowhere/x.json", "healthy.py"], "there is no folder"),
        (["--json", "folder", "healthy.py"], "it is a folder; name a file in it"),
        (["--json", "-", "healthy.py"], "the standard output belongs to the script"),
        (["--overhead", "2", "healthy.py"], "overhead is a share"),
    ],
)
def test_a_mistake_gets_one_sentence_and_status_2(words: list[str], said: str, stage: Stage) -> None:
    stage.write("folder/a.py", "")
    stage.write("empty.py", "")
    done = stage.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in sentence(done)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_a_script_that_may_not_be_read_gets_one_sentence(stage: Stage) -> None:
    stage.write("secret.py", "").chmod(0)
    done = stage.run("secret.py")
    assert done.returncode == 2
    assert sentence(done)


def test_a_syntax_error_is_pythons_own_to_show(stage: Stage) -> None:
    stage.write("bad.py", "def f(:\n")
    done = stage.run("bad.py")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr and "Traceback" not in done.stderr


# -- settings and formats ---------------------------------------------------------------------------------------------


def test_another_format_takes_the_letters_place(stage: Stage) -> None:
    done = stage.run("--format", "github", "faulty.py")
    assert done.stdout == "done\n"
    assert done.stderr.startswith(f"::warning title=It is {FAULT} ({FAULT})::")


def test_a_format_in_a_file_leaves_the_letter(stage: Stage) -> None:
    done = stage.run("--format", "markdown", "--output", "verdict.md", "faulty.py")
    assert f"WARNING  {FAULT}" in done.stderr
    assert (stage.folder / "verdict.md").read_text().startswith("## torchdoctor")


@pytest.mark.parametrize(
    ("file", "words", "said"),
    [
        ("[tool.torchdoctor]\nselct = []\n", (), "did you mean select"),
        ("", ("--select", "nothing-such"), "no diagnosis 'nothing-such'"),
        ("", ("--threshold", "dead-relu.lest=1"), "it has: least"),
        ("", ("--output", "-"), "--output needs a file"),
    ],
)
def test_wrong_settings_end_it_before_the_script(file: str, words: tuple[str, ...], said: str, stage: Stage) -> None:
    stage.write("pyproject.toml", file)
    done = stage.run(*words, "healthy.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in sentence(done)


def test_the_project_may_say_what_fails(stage: Stage) -> None:
    stage.write("pyproject.toml", "[tool.torchdoctor]\nfail-on = 'warning'\n")
    assert stage.run("faulty.py").returncode == 3
    assert stage.run("--fail-on", "error", "faulty.py").returncode == 0
