"""Our own modules in processes of their own.

`python -m` would put the current folder first on the path, and with it whatever lies there: a folder of runs from a
stranger may hold a torch.py, a user's own may hold a secrets.py.
"""

from __future__ import annotations

import sys

_CLEAN = "import sys; sys.path[:] = [p for p in sys.path if p not in ('', '.')]; name = sys.argv.pop(1)"
_RUN = "import runpy; runpy.run_module(name, run_name='__main__', alter_sys=True)"
_LEAVE = "import os; os.fork() and os._exit(0); os.setsid()"


def own_module(name: str, *words: str, detached: bool = False) -> list[str]:
    """The command that runs one of our modules. A detached one leaves its parent at once: what is started ends in some
    hundredths of a second, and what goes on is nobody's child."""
    code = "\n".join([_CLEAN, *([_LEAVE] if detached else []), _RUN])
    return [sys.executable, "-c", code, name, *words]
