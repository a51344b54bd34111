"""Our own modules in processes of their own.

`python -m` would put the current folder first on the path, and with it whatever lies there: a folder of runs from a
stranger may hold a torch.py, a user's own may hold a secrets.py.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

_CLEAN = """
import os, sys
first = [] if getattr(sys.flags, "safe_path", False) else [os.path.dirname(sys.executable)]
sys.path[:] = [*first, *(p for p in sys.path if p not in ("", "."))]; name = sys.argv.pop(1)
"""
"""The first entry is the one that a script's folder takes the place of."""
_RUN = """
from torchdoctor.search_path import set_aside_own_folders
set_aside_own_folders()
import runpy; runpy._run_module_as_main(name)
"""
"""As `python -m` does it."""
_TELL = "import os; child = os.fork(); child and (os.write(1, b'%d' % child), os._exit(0)); os.setsid()"
_SILENCE = "nowhere = os.open(os.devnull, os.O_RDWR); os.dup2(nowhere, 1); os.close(nowhere); del nowhere, child"
_LEAVE = {
    "session": "import os; os.fork() and os._exit(0); os.setsid()",
    "group": "import os; os.fork() and os._exit(0); os.setpgid(0, 0)",
    "telling": f"{_TELL}; {_SILENCE}",
}


def own_module(name: str, *words: str, leaving: Literal["session", "group", "telling"] | None = None) -> list[str]:
    """The command that runs one of our modules. One that leaves does so at once: what is started ends in some
    hundredths of a second, and what goes on is nobody's child. It leaves its session, and with that the terminal, or
    its group alone, so that keys such as Ctrl-C pass it by; "telling" leaves the session and prints the number that
    the process goes on under, before it gives up its standard output."""
    code = "\n".join([_CLEAN, *([_LEAVE[leaving]] if leaving else []), _RUN])
    return [sys.executable, "-c", code, name, *words]


def can_leave() -> bool:
    """Not process 1 of a container: what is nobody's child becomes its child, and a script that waits for its own would
    wait for that one, too."""
    return hasattr(os, "fork") and os.getpid() != 1


def birth_of(process: int) -> str | None:
    """Something that another process of the same number does not have; None where there is none, or a dead one."""
    try:
        state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]  # the 22nd field of proc(5): when it started
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except OSError:
        return None
    try:
        os.kill(process, 0)  # no /proc here: the number alone has to do
    except OSError:
        return None
    return "there"
