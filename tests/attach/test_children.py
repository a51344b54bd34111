"""Training is followed into child processes, and into no process that does not train."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from stage import Stage
from torchdoctor.attach.children import is_launcher

PYTHON = sys.executable


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage.build(tmp_path)


SPAWNING = """
    import multiprocessing, sys
    def work(number):
        import torch
        torch.train("fault" if number else None)
        print("worked")
    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        for i in range(int(sys.argv[2])):
            p = context.Process(target=work, args=(i,)); p.start(); p.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_spawned_process_is_followed_and_closed(method: str, stage: Stage) -> None:
    stage.write("train.py", SPAWNING)
    done = stage.run("--name", "n", "train.py", method, "1")
    assert done.stdout == "worked\n"
    assert done.returncode == 0, done.stderr
    assert [line.split(" in ")[0] for line in stage.diary] == ["train n 0", "finish finished"]
    assert "NO FAULT FOUND" in done.stderr


def test_processes_that_are_not_ranks_get_a_run_each_and_the_gravest_is_told(stage: Stage) -> None:
    stage.write("train.py", SPAWNING)
    done = stage.run("--name", "n", "train.py", "spawn", "3")
    assert stage.runs == ["n", "n-2", "n-3"]
    assert "It is fault" in done.stderr
    assert "other processes trained as well; for their verdicts: torchdoctor diagnose " in done.stderr


def test_a_process_pool_is_followed(stage: Stage) -> None:
    source = """
        import multiprocessing
        def work(x):
            import torch
            torch.train()
            return x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1]))
                pool.close(); pool.join()
    """
    stage.write("train.py", source)
    done = stage.run("--name", "n", "train.py")
    assert (done.returncode, done.stdout) == (0, "[1]\n")
    assert [line.split(" in ")[0] for line in stage.diary] == ["train n 0", "finish finished"]


def test_a_forked_process_is_inert_and_its_parent_still_closes_once(stage: Stage) -> None:
    source = """
        import multiprocessing, os, torch
        torch.train()
        def work():
            torch.train("fault")
        p = multiprocessing.get_context("fork").Process(target=work); p.start(); p.join()
        if os.fork() == 0:
            torch.train("fault")
            raise SystemExit(5)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    stage.write("train.py", source)
    done = stage.run("--name", "n", "train.py")
    assert done.stdout == "5\n"
    assert [line.split(" in ")[0] for line in stage.diary] == ["train n 0", "finish finished"]
    assert done.stderr.count("NO FAULT FOUND") == 1


def test_a_torch_that_is_first_imported_in_a_forked_process_starts_nothing(stage: Stage) -> None:
    source = """
        import os
        if os.fork() == 0:
            import torch
            torch.train()
            os._exit(0)
        os.wait()
    """
    stage.write("train.py", source)
    done = stage.run("train.py")
    assert stage.starts == []
    assert "without importing torch" in done.stderr


@pytest.mark.parametrize(
    ("module", "attached"),
    [("torch.utils.data._utils.worker", 0), ("multiprocessing.managers", 0), ("some.other.module", 1)],
)
def test_processes_that_serve_are_not_attached(module: str, attached: int, stage: Stage) -> None:
    source = f"""
        import multiprocessing, sys
        def work():
            import torch
            torch.train()
        work.__module__ = "__mp_main__" if __name__ == "__mp_main__" else {module!r}
        sys.modules.setdefault({module!r}, sys.modules[__name__])
        class Process(multiprocessing.get_context("spawn").Process):
            def __getstate__(self):
                state = dict(self.__dict__, _target=None)
                return state
            def run(self):
                work()
        if __name__ == "__main__":
            p = Process(target=work); p.start(); p.join(); print(p.exitcode)
    """
    stage.write("train.py", source)
    done = stage.run("train.py")
    assert done.stdout == "0\n", done.stderr
    assert len(stage.starts) == attached


def test_a_manager_and_a_resource_tracker_are_not_attached(stage: Stage) -> None:
    source = """
        import multiprocessing
        if __name__ == "__main__":
            import torch
            torch.train()
            with multiprocessing.get_context("spawn").Manager() as manager:
                print(list(manager.list([1, 2])))
    """
    stage.write("train.py", source)
    assert stage.run("train.py").stdout == "[1, 2]\n"
    assert len(stage.starts) == 1
    assert stage.run("--", PYTHON, "train.py").stdout == "[1, 2]\n"
    assert len(stage.starts) == 2


def test_how_a_spawned_process_ended_is_recorded(stage: Stage) -> None:
    source = """
        import multiprocessing
        def work():
            import torch
            torch.train()
            raise ValueError("broken")
        if __name__ == "__main__":
            p = multiprocessing.get_context("spawn").Process(target=work); p.start(); p.join(); print(p.exitcode)
    """
    stage.write("train.py", source)
    done = stage.run("train.py")
    assert done.stdout == "1\n"
    known = " ValueError at train.py:5" if sys.version_info < (3, 13) else ""
    assert stage.diary[-1] == f"finish crashed{known}"
    assert "ValueError: broken" in done.stderr
    assert "torchdoctor/attach" not in done.stderr


def test_grandchildren_are_followed(stage: Stage) -> None:
    source = """
        import multiprocessing
        context = multiprocessing.get_context("spawn")
        def train():
            import torch
            torch.train()
        def middle():
            p = context.Process(target=train); p.start(); p.join()
        if __name__ == "__main__":
            p = context.Process(target=middle); p.start(); p.join()
    """
    stage.write("train.py", source)
    stage.run("--name", "n", "train.py")
    assert [line.split(" in ")[0] for line in stage.diary] == ["train n 0", "finish finished"]


def test_a_child_that_cannot_import_torchdoctor_runs_all_the_same(stage: Stage) -> None:
    stage.write("torchdoctor.py", "raise ImportError('not the one you look for')\n")
    source = """
        import multiprocessing
        def work(): print("worked")
        if __name__ == "__main__":
            p = multiprocessing.get_context("spawn").Process(target=work); p.start(); p.join(); print(p.exitcode)
    """
    stage.write("train.py", source)
    done = stage.call(PYTHON, str(Path(PYTHON).parent / "torchdoctor"), "run", "train.py")
    assert done.stdout == "worked\n0\n", done.stderr


# -- torchdoctor run -- COMMAND ---------------------------------------------------------------------------------------


def test_a_command_is_followed_and_the_parent_tells(stage: Stage) -> None:
    stage.write("train.py", "import sys, torch\ntorch.train('fault')\nprint(sys.argv, sys.stdin.read())\n")
    done = stage.run("--name", "n", "--", PYTHON, "train.py", "--json", given="text")
    assert done.stdout == "['train.py', '--json'] text\n"
    assert done.returncode == 0
    assert [line.split(" in ")[0] for line in stage.diary] == ["train n 0", "finish finished"]
    assert "It is fault" in done.stderr


def test_ranks_of_a_command_share_one_run(stage: Stage) -> None:
    stage.write("train.py", "import os, torch\ntorch.train('fault' if os.environ['RANK'] == '1' else None)\n")
    launcher = """
        import os, subprocess, sys
        if __name__ == "__main__":
            for rank in "01":
                subprocess.run([sys.executable, "train.py"], env={**os.environ, "RANK": rank}, check=True)
    """
    stage.write("torchrun.py", launcher)
    done = stage.run("--name", "n", "--", PYTHON, "torchrun.py")
    assert [line.split(" in ")[0] for line in stage.diary if "train" in line] == ["train n 0", "train n 1"]
    assert stage.runs == ["n"]
    assert "It is fault" in done.stderr


def test_a_command_inside_a_command_is_followed_from_any_folder(stage: Stage) -> None:
    stage.write("deep/train.py", "import torch\ntorch.train()\n")
    done = stage.run("--name", "n", "--", "sh", "-c", f"cd deep && {PYTHON} train.py && {PYTHON} -m train")
    assert done.returncode == 0, done.stderr
    assert stage.runs == ["n", "n-2"]


@pytest.mark.parametrize(
    ("source", "status", "diary"),
    [
        ("1 / 0", 1, "finish crashed ZeroDivisionError at train.py:3"),
        ("import sys; sys.exit(4)", 4, "finish finished"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, None),
        ("raise KeyboardInterrupt", -2, "finish interrupted"),
    ],
)
def test_how_a_command_ended_is_kept(source: str, status: int, diary: str | None, stage: Stage) -> None:
    stage.write("train.py", f"import torch\ntorch.train('fault')\n{source}\n")
    done = stage.run("--", PYTHON, "train.py")
    assert done.returncode == status
    assert [line for line in stage.diary if line.startswith("finish")] == ([diary] if diary else [])
    assert "It is fault" in done.stderr


def test_a_command_sees_its_own_environment_but_for_two_variables(stage: Stage) -> None:
    show = "import os; print(sorted(k for k in os.environ)); import sys; print(sys.path)"
    plain = stage.call(PYTHON, "-c", show).stdout.splitlines()
    ours = stage.run("--", PYTHON, "-c", show).stdout.splitlines()
    assert ours[1] == plain[1]
    assert set(ast.literal_eval(ours[0])) - set(ast.literal_eval(plain[0])) == {"TORCHDOCTOR_OPTIONS"}


def test_another_sitecustomize_still_runs_and_its_absence_is_seen(stage: Stage, tmp_path: Path) -> None:
    show = "import sys; print('sitecustomize' in sys.modules and sys.modules['sitecustomize'].__file__)"
    done = stage.run("--", PYTHON, "-c", show)
    assert done.stdout.strip() == str(stage.folder / "cardboard" / "sitecustomize.py")
    plain = stage.call(PYTHON, "-c", show, PYTHONPATH="")
    done = stage.run("--", PYTHON, "-c", show, PYTHONPATH="")
    assert done.stdout == plain.stdout
    assert "Error in sitecustomize" not in done.stderr


def test_a_sitecustomize_that_fails_fails_as_ever(stage: Stage) -> None:
    stage.write("cardboard/sitecustomize.py", "1 / 0\n")
    plain = stage.call(PYTHON, "-c", "pass").stderr
    ours = stage.run("--", PYTHON, "-c", "pass").stderr
    assert plain.splitlines()[-1] in ours


def test_python_without_our_path_is_not_followed_and_that_is_said(stage: Stage) -> None:
    stage.write("train.py", "print('trained')\n")
    done = stage.run("--", PYTHON, "-I", "train.py")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "no python process that the command started made a backward" in done.stderr


def test_stopping_on_a_finding_in_a_command_is_not_a_crash(stage: Stage) -> None:
    name = "nan-in-inputs"
    stage.write("train.py", f"import torch\ntorch.train({name!r})\nprint('not reached')\n")
    done = stage.run("--stop-on", name, "--", PYTHON, "train.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    assert f"torchdoctor: stopped on {name}" in done.stderr
    assert stage.diary[-1] == "finish interrupted"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"], True),
        (["python", "-u", "-X", "dev", "/venv/bin/accelerate", "launch", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "-m", "torch.distributed.launch", "train.py"], True),
        (["python", "-W", "ignore", "-c", "from multiprocessing.spawn import spawn_main; ...", "--x"], True),
        (["python", "/site-packages/torch/_inductor/compile_worker/__main__.py", "--pickler=x"], True),
        (["python", "-m", "torchdoctor", "run", "train.py"], True),
        (["python", "train.py"], False),
        (["python", "-u", "train.py", "torchrun"], False),
        (["python", "-m", "package.train"], False),
        (["python", "-mpackage.train"], False),
        (["python", "-c", "import torch"], False),
        (["python"], False),
    ],
)
def test_launchers_are_told_from_training_scripts(command: list[str], expected: bool) -> None:
    assert is_launcher(command) is expected


# -- with torch itself ------------------------------------------------------------------------------------------------

TRAINING = """
    import os, sys, torch
    import torch.nn.functional as F
    from torch.utils.data import DataLoader, TensorDataset
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 64
        def __getitem__(self, i):
            if i == 0:
                print("sessions in a worker:", "torchdoctor.attach.session" in sys.modules, flush=True)
            return torch.full((8,), i / 64), i % 3
    if __name__ == "__main__":
        if "RANK" in os.environ:
            torch.distributed.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(Data(), batch_size=8, num_workers=1, multiprocessing_context=sys.argv[1]):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        print("weights", model.weight.sum().item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_real_loader_are_inert(method: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("train.py", TRAINING)
    plain = stage.call(PYTHON, "train.py", method)
    ours = stage.run("--name", "n", "train.py", method)
    assert "sessions in a worker: False" in plain.stdout
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr
    assert stage.runs == ["n"]


@pytest.mark.slow
@pytest.mark.parametrize("outside", [True, False])
def test_ranks_under_a_real_torchrun_write_one_run_and_one_speaks(outside: bool, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.write("train.py", TRAINING)
    torchrun = [str(Path(PYTHON).parent / "torchrun"), "--nproc-per-node", "2", "--standalone"]
    if outside:
        done = stage.run("--", *torchrun, "train.py", "fork")
    else:
        done = stage.call(*torchrun, "-m", "torchdoctor", "run", "train.py", "fork")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("weights") == 2
    (name,) = stage.runs
    files = [p.name for p in (tmp_path / "torchdoctor-runs" / name).iterdir()]
    assert {"run.json", "run-r1.json"} <= set(files)
    assert done.stderr.count(f"torchdoctor diagnose torchdoctor-runs/{name}") == 1
