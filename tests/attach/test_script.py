"""The user's program behaves under `torchdoctor run` as under python: output, errors, status, and what it sees."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

Result = tuple[int, str, str]

OUR_WORDS = "torchdoctor: "


def run(arguments: list[str], folder: Path, given: str = "", **environment: str) -> Result:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TORCHDOCTOR_DISABLE": "1", **environment},
    )
    return done.returncode, done.stdout, done.stderr


def both(words: list[str], folder: Path, given: str = "") -> tuple[Result, Result]:
    """The same words given to python and, attached, to torchdoctor run; our sentence at the end is left out."""
    plain = run(words, folder, given)
    status, out, err = run(["-m", "torchdoctor", "run", *words], folder, given, TORCHDOCTOR_DISABLE="0")
    told = err.splitlines(keepends=True)
    assert sum(line.startswith(OUR_WORDS) for line in told) <= 1
    status = 0 if status == 2 and plain[0] == 0 else status  # 2: we had nothing to diagnose
    return plain, (status, out, "".join(line for line in told if not line.startswith(OUR_WORDS)))


SCRIPTS = {
    "what it sees of itself": """
        import sys, os
        print(list(globals()), __name__, __file__, __spec__, __package__, type(__loader__), __builtins__, __cached__)
        print(sys.argv, sys.path, os.getcwd(), sys.orig_argv)
        print(sys.modules["__main__"].__dict__ is globals())
    """,
    "exit with nothing": "import sys; sys.exit()",
    "exit with a number": "import sys; sys.exit(7)",
    "exit with true": "import sys; sys.exit(True)",
    "exit with a negative number": "import sys; sys.exit(-1)",
    "exit with a text": "import sys; print('out'); sys.exit('no data found')",
    "exit with an object": "raise SystemExit(['a', 1])",
    "exit in a function in a try": """
        import sys
        def main():
            try:
                sys.exit(3)
            finally:
                print("cleaned")
        main()
    """,
    "exception": """
        def inner(x):
            return 1 / x
        def main():
            inner(0)
        print("before")
        main()
    """,
    "exception with causes": """
        try:
            {}["key"]
        except KeyError as error:
            raise RuntimeError("no such thing") from error
    """,
    "exception while handling another": """
        try:
            int("x")
        except ValueError:
            [][1]
    """,
    "exception group": """
        import sys
        if sys.version_info >= (3, 11):
            raise ExceptionGroup("several", [ValueError(1), TypeError(2)])
    """,
    "exception of its own class": """
        class Failure(Exception):
            def __str__(self): return "two\\nlines"
        raise Failure
    """,
    "exception from an import": "import helper_that_fails",
    "missing import": "import no_such_module_anywhere",
    "assertion": "assert 1 == 2, 'not equal'",
    "syntax error": "def f(:\n    pass\n",
    "indentation error": "if True:\nprint(1)\n",
    "syntax error in an import": "import helper_with_bad_syntax",
    "latin-1 source": b"# -*- coding: latin-1 -*-\nprint(len('\xe9\xe8'))\n",
    "keyboard interrupt": "raise KeyboardInterrupt",
    "keyboard interrupt with atexit": """
        import atexit
        atexit.register(print, "at exit")
        raise KeyboardInterrupt
    """,
    "a real Ctrl-C": """
        import os, signal, time
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    """,
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)",
    "its own handler for SIGTERM": """
        import os, signal, sys, time
        print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    """,
    "os._exit": "import os; print('now', flush=True); os._exit(5)",
    "excepthook": """
        import sys
        def hook(kind, error, trace):
            print("hook:", kind.__name__, error, trace.tb_frame.f_code.co_name, trace.tb_lineno)
        sys.excepthook = hook
        raise ValueError("seen")
    """,
    "excepthook that raises": """
        import sys
        def hook(kind, error, trace):
            raise RuntimeError("hook is broken")
        sys.excepthook = hook
        raise ValueError("seen")
    """,
    "excepthook that exits": """
        import sys
        def hook(kind, error, trace):
            sys.exit(11)
        sys.excepthook = hook
        raise ValueError("seen")
    """,
    "last exception for post mortem": """
        import atexit, sys
        atexit.register(lambda: print(sys.last_type, sys.last_value, sys.last_traceback.tb_frame.f_code.co_name))
        raise ValueError("seen")
    """,
    "atexit in reverse order": """
        import atexit
        for i in range(3):
            atexit.register(print, "at exit", i)
        print("main ends")
    """,
    "atexit after an exception": """
        import atexit
        atexit.register(print, "at exit")
        1 / 0
    """,
    "threads are joined before atexit": """
        import atexit, threading, time
        atexit.register(print, "at exit")
        def work():
            time.sleep(0.3)
            print("thread ends", threading.main_thread().is_alive())
        threading.Thread(target=work).start()
        print("main ends")
    """,
    "daemon threads are not waited for": """
        import threading, time
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    """,
    "exception in a thread": """
        import threading
        t = threading.Thread(target=lambda: 1 / 0, name="worker")
        t.start(); t.join()
        print("main goes on")
    """,
    "executor that nobody shut down": """
        import atexit
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        future = pool.submit(lambda: "done")
        atexit.register(lambda: print(future.result()))
    """,
    "stdin": "import sys; print(input('name? ')); print(sys.stdin.read().upper())",
    "pickle of classes in main": """
        import pickle
        from dataclasses import dataclass
        @dataclass
        class Config:
            lr: float
        text = pickle.dumps(Config(0.1))
        print(b"__main__" in text, pickle.loads(text))
    """,
    "runpy inside": """
        import runpy
        if __name__ == "__main__":
            print(runpy.run_path(__file__, run_name="other")["__name__"])
    """,
    "warnings": """
        import warnings
        print(warnings.filters)
        warnings.warn("old", DeprecationWarning)
        warnings.warn("take care")
    """,
    "logging is not set up": "import logging; print(logging.root.handlers); logging.warning('hello')",
    "introspection": """
        import inspect
        def f(): return 1
        print(inspect.getsource(f), inspect.getfile(f), inspect.getmodule(f).__name__)
    """,
    "annotations": "x: int = 1\nprint(__annotations__)",
    "no future imports leak in": "def f(a: print('evaluated')): pass",
    "fork": """
        import os, sys
        print("before", flush=True)
        child = os.fork()
        if child == 0:
            print("child", flush=True)
            sys.exit(4)
        print("parent saw", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "a crash in a forked child": """
        import os
        child = os.fork()
        if child == 0:
            1 / 0
        print("parent saw", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    "multiprocessing by fork": """
        import multiprocessing
        def work(q): q.put("from the child")
        context = multiprocessing.get_context("fork")
        q = context.Queue()
        p = context.Process(target=work, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)
    """,
    "multiprocessing by spawn": """
        import multiprocessing, sys
        class Job:
            def __call__(self): return __name__, sys.argv[1:]
        def work(q, job): q.put(job())
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            q = context.Queue()
            p = context.Process(target=work, args=(q, Job())); p.start(); print(q.get()); p.join(); print(p.exitcode)
    """,
    "multiprocessing by forkserver": """
        import multiprocessing
        def work(q): q.put(__name__)
        if __name__ == "__main__":
            context = multiprocessing.get_context("forkserver")
            q = context.Queue()
            p = context.Process(target=work, args=(q,)); p.start(); print(q.get()); p.join(); print(p.exitcode)
    """,
    "a crash in a spawned child": """
        import multiprocessing
        def work(): 1 / 0
        if __name__ == "__main__":
            p = multiprocessing.get_context("spawn").Process(target=work); p.start(); p.join(); print(p.exitcode)
    """,
    "a process pool": """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing
        if __name__ == "__main__":
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                print(list(pool.map(abs, [-1, -2])))
    """,
    "a module of its own that hides one of ours": "import click, inspect; print(click.own, inspect.__name__)",
    "stderr is replaced": "import io, sys; sys.stderr = io.StringIO(); print('lost', file=sys.stderr)",
    "stdout is closed": "import sys; sys.stdout.close()",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper_that_fails.py").write_text("def f():\n    raise OSError(5, 'no disk')\nf()\n")
    (tmp_path / "helper_with_bad_syntax.py").write_text("x = = 1\n")
    (tmp_path / "click.py").write_text("own = 'the click beside the script'\n")
    (tmp_path / "logging").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_run_as_python_runs_it(name: str, folder: Path) -> None:
    source = SCRIPTS[name]
    script = folder / "train.py"
    script.write_bytes(source if isinstance(source, bytes) else textwrap.dedent(source).lstrip("\n").encode())
    plain, ours = both(["./train.py", "--lr", "0.1", "--help", "-m", "--", "--json", "x y"], folder, "Ada\nand more\n")
    assert ours == plain


def test_a_file_that_is_not_text_is_a_syntax_error(folder: Path) -> None:
    """Python's own words for it differ between its two readers of source; the kind of error does not."""
    (folder / "train.py").write_text("# -*- coding: no-such-encoding -*-\n")
    (plain, _, said), (ours, _, told) = both(["train.py"], folder)
    assert ours == plain == 1
    assert said.splitlines()[-1].startswith("SyntaxError") and told.splitlines()[-1].startswith("SyntaxError")
    assert "Traceback" not in told


@pytest.mark.parametrize("where", ["sub/train.py", "../{up}/sub/train.py", "link.py", "train", "compiled.pyc"])
def test_paths_are_spelled_as_python_spells_them(where: str, folder: Path) -> None:
    source = "import sys\nprint(sys.argv[0], __file__, sys.path[0], type(__loader__))\n1 / 0\n"
    (folder / "sub").mkdir()
    (folder / "sub" / "train.py").write_text(source)
    (folder / "train").write_text(source)
    (folder / "link.py").symlink_to("sub/train.py")
    py_compile.compile(str(folder / "sub" / "train.py"), cfile=str(folder / "compiled.pyc"))
    plain, ours = both([where.format(up=folder.name)], folder)
    assert ours == plain


@pytest.mark.parametrize(
    "module", ["package.train", "package", "package.fails", "package.broken.train", "package.exits", "single"]
)
def test_a_module_is_run_as_python_runs_it(module: str, folder: Path) -> None:
    package = folder / "package"
    (package / "broken").mkdir(parents=True)
    (package / "__init__.py").write_text("print('package', __name__)\n")
    (package / "helper.py").write_text("value = 3\n")
    see = "import sys\nprint(list(globals()), __name__, __file__, __spec__.name, __package__, sys.argv, sys.path[0])\n"
    (package / "train.py").write_text("from . import helper\nprint(helper.value)\n" + see)
    (package / "__main__.py").write_text("from .helper import value\n" + see)
    (package / "fails.py").write_text("from .helper import value\nvalue / 0\n")
    (package / "exits.py").write_text("raise SystemExit('enough')\n")
    (package / "broken" / "__init__.py").write_text("1 / 0\n")
    (package / "broken" / "train.py").write_text("")
    (folder / "single.py").write_text(see)
    plain, ours = both(["-m", module, "--epochs", "3", "-h"], folder)
    assert ours == plain


def test_a_spawned_child_finds_a_main_that_is_a_module(folder: Path) -> None:
    source = """
        import multiprocessing
        class Thing: pass
        def work(thing, q): q.put((type(thing).__module__, __name__))
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            q = context.Queue()
            p = context.Process(target=work, args=(Thing(), q)); p.start(); print(q.get()); p.join(); print(p.exitcode)
    """
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "train.py").write_text(textwrap.dedent(source))
    plain, ours = both(["-m", "package.train"], folder)
    assert ours == plain
    assert plain[0] == 0


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(sys.argv, repr(sys.path[0]), list(globals()), __name__)",
        "def f():\n    1 / 0\nf()",
        "x = = 1",
        "import sys; sys.exit('bye')",
    ],
)
def test_code_is_run_as_python_runs_it(code: str, folder: Path) -> None:
    plain, ours = both(["-c", code, "-c", "--flag"], folder)
    assert ours == plain


def test_a_folder_with_a_main_is_run_as_python_runs_it(folder: Path) -> None:
    program = folder / "program"
    program.mkdir()
    (program / "__main__.py").write_text("import sys, near\nprint(sys.argv, sys.path[0], __file__, near.value)\n")
    (program / "near.py").write_text("value = 5\n")
    plain, ours = both(["program", "a"], folder)
    assert ours == plain


def test_nothing_that_could_change_a_run_is_imported_before_the_script(folder: Path) -> None:
    (folder / "click.py").unlink()
    (folder / "train.py").write_text(
        "import sys\nprint(*sorted({n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names))\n"
    )
    plain, ours = both(["train.py"], folder)
    extra = set(ours[1].split()) - set(plain[1].split())
    assert extra <= {"torchdoctor", "click"}


def test_an_environment_set_before_torch_reaches_torch(folder: Path) -> None:
    (folder / "torch.py").write_text("import os\nprint('torch sees', os.environ.get('OMP_NUM_THREADS'))\n")
    (folder / "train.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '7'\nimport torch\n")
    _, ours = both(["train.py"], folder)
    assert ours[1] == "torch sees 7\n"
