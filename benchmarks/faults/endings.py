"""However a process ends: the status is the script's own, and how it ended is recorded and told soon."""

import json
import sys
import time

from harness import DOCTOR, SCRIPTS, Line, call, campaign_test, fresh

VERDICT_SECONDS, TIMES_DIAGNOSE = 2.0, 2.0
"""A verdict may take so long after the death; on a busy machine as long as two commands that do the same."""
PATIENCE = 30.0

ENDS = {
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGHUP": "os.kill(os.getpid(), signal.SIGHUP)",
    "SIGQUIT": "os.kill(os.getpid(), signal.SIGQUIT)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGKILL to the group": "os.killpg(0, signal.SIGKILL)",
    "SIGTERM to the group": "os.killpg(0, signal.SIGTERM)",
    "SIGXCPU": "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    "SIGSEGV": "ctypes.string_at(0)",
    "abort": "os.abort()",
    "os._exit": "os._exit(7)",
    "os._exit in a thread": "threading.Thread(target=os._exit, args=(7,)).start(); time.sleep(60)",
    "os.exec": "os.execv('/bin/sleep', ['sleep', '3'])",
    "SIGTERM ignored": "signal.signal(15, signal.SIG_IGN); os.kill(os.getpid(), 15)",
    "SIGTERM handled": "signal.signal(15, lambda *_: sys.exit(5)); os.kill(os.getpid(), 15)",
    "SIGPIPE": "signal.signal(13, signal.SIG_DFL); r, w = os.pipe(); os.close(r); os.write(w, b'x')",
    "exec of a program that fails": "os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(9)'])",
    "an exception of its own kind": "raise type('Odd', (BaseException,), {'__str__': lambda _: 1 / 0})",
    "sys.exit with words": "sys.exit('out of patience')",
    "stdout is a broken pipe": "r, w = os.pipe(); os.close(r); os.dup2(w, 1); print('x' * 100, flush=True)",
    "no memory left": "resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)); bytearray(8 << 30)",
    "stack overflow in C": "c = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: c()); sys.setrecursionlimit(10**9); c()",
    "a daemon thread runs on": "threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()",
    "SIGTERM while atexit hangs": "import atexit; atexit.register(lambda: (threading.Timer(1, os.kill, (os.getpid(), 15)).start(), time.sleep(60)))",
    "every descriptor closed": "os.closerange(0, 1000); os.kill(os.getpid(), 15)",
}
RANKS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit": "os._exit(3)",
    "sys.exit": "sys.exit(3)",
    "an exception": "1 / 0",
    "SIGSEGV": "__import__('ctypes').string_at(0)",
    "a standstill": "time.sleep(100)",
}


@campaign_test("ending")
def ending():
    for name, code in ENDS.items():
        script = str(SCRIPTS / "ends.py")
        bare = call([sys.executable, script, code], fresh("ending-bare"), seconds=60)
        folder = fresh("ending")
        own = call([DOCTOR, "run", "--json", "verdict.json", script, code], folder, seconds=60)
        died = time.monotonic()
        verdict = _wait_for(folder / "verdict.json")
        seconds = time.monotonic() - died
        again = time.monotonic()
        call([DOCTOR, "diagnose", "--quiet"], folder, seconds=60)
        allowed = max(VERDICT_SECONDS, TIMES_DIAGNOSE * (time.monotonic() - again))
        problems = [
            f"rc {bare.rc} -> {own.rc}" if bare.rc != own.rc else "",
            "no verdict" if verdict is None else "",
            f"{verdict['run']['steps']} of 64 steps" if verdict and verdict["run"]["steps"] < 50 else "",
            f"told after {seconds:.1f} s" if seconds > allowed else "",
        ]
        yield _line(f"ending {name}", problems, f"rc {own.rc}, told after {max(0.0, seconds):.1f} s")


@campaign_test("ranks")
def ranks():
    for name, code in RANKS.items():
        folder = fresh("ranks")
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
        script = [str(SCRIPTS / "ranks.py"), code]
        own = call([DOCTOR, "run", "--json", "verdict.json", "--", *launcher, *script], folder, seconds=120)
        verdict = _wait_for(folder / "verdict.json")
        seen = {rank["rank"]: rank for rank in verdict["run"]["ranks"]} if verdict else {}
        lost = seen.get(2, {})
        told = own.said
        problems = [
            f"rc {own.rc}" if own.rc != 1 else "",
            "no verdict" if verdict is None else "",
            "the rank is not named" if "ank 2" not in told.partition("NO ")[0] else "",
            f"last step {lost.get('last_step')}" if not 45 <= (lost.get("last_step") or 0) <= 60 else "",
            "no line" if not lost.get("line") else "",
            "not listed as not examined" if "not compared with one another" not in " ".join(told.split()) else "",
        ]
        yield _line(f"rank ends by {name}", problems, f"{lost.get('status')} {lost.get('ending')}")


def _wait_for(file):
    until = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.02)
    return json.loads(file.read_text()) if file.exists() else None


def _line(name, problems, note):
    found = [problem for problem in problems if problem]
    return Line(name, 1, int(bool(found)), [*found, note])
