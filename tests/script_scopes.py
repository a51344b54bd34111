"""Running a piece of code inside a script's own scope, as if somebody had pasted it there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DRIVER = """
import json, runpy, sys, textwrap, traceback
script, scope, code = sys.argv[1:4]
sys.argv = [script]
done = []

def paste(frame):
    done.append(True)
    names = {k: v for k, v in frame.f_locals.items() if k.isidentifier() and not k.startswith("__")}
    body = textwrap.indent(code, "        ")
    text = f"def pasted({', '.join(names)}):\\n    for once in (0,):\\n{body}\\n"
    space = dict(frame.f_globals)
    try:
        exec(compile(text, "<fix>", "exec"), space)
        space["pasted"](**names)
    except BaseException as error:
        print("FIX FAILED", type(error).__name__, error, file=sys.stderr)

def watch(frame, event, _value):
    if event == "return" and not done and frame.f_code.co_name == scope and frame.f_code.co_filename == script:
        sys.setprofile(None)
        paste(frame)

if scope != "<module>":
    sys.setprofile(watch)
space = {"__name__": "__main__", "__file__": script}
sys.modules["__main__"].__dict__.update(space)
exec(compile(open(script).read(), script, "exec"), sys.modules["__main__"].__dict__)
if scope == "<module>":
    paste(sys._getframe())
print("FIX RAN" if done else "FIX NOT REACHED", file=sys.stderr)
"""


def run_pasted(script: Path, scope: str, code: str, seconds: float = 120) -> str:
    """Run the script, then the code with the names of that scope; return what went wrong, or an empty text."""
    words = [sys.executable, "-c", DRIVER, str(script), scope, code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, cwd=script.parent, check=False)
    failed = [line for line in done.stderr.splitlines() if line.startswith(("FIX FAILED", "FIX NOT REACHED"))]
    return failed[0] if failed else "" if "FIX RAN" in done.stderr else done.stderr[-500:]
