"""Scripts of every style: is what they print and how they end the same with torchdoctor as without?

Each case is what stands in the script after PRELUDE; SAME holds those that end by a signal or never alone. A case may
say `# args: ...`, `# stdin: ...`, `# module`, `# signal: NAME`, `# wrap: torchrun ...`, `# seconds: N` in its first lines.
"""

import difflib
import os
import re
import shlex
import signal
import time

from forked_runs import forked, preload
from harness import BIN, DOCTOR, PYTHON, Ended, Line, call, campaign_test, end_group, fresh, start
from style_cases import CASES, PRELUDE

ADDRESS = re.compile(rb"0x[0-9a-f]{6,}|\b\d+\.\d+s\b|pid[= ]\d+")
SECONDS = 120


def options(source: str) -> dict[str, str]:
    return dict(re.findall(r"^# (args|stdin|module|signal|wrap|seconds|bare|name): ?(.*)$", source, re.M))


def commands(source: str, folder, under: bool) -> list[str]:
    given = options(source)
    script = given.get("name", "case.py")
    words = shlex.split(given.get("args", ""))
    doctor = [DOCTOR, "run", "--out", str(folder / "runs")]
    if "wrap" in given:
        wrapped = [str(BIN / given["wrap"].split()[0]), *given["wrap"].split()[1:], script, *words]
        return [*doctor, "--", *wrapped] if under else wrapped
    if "module" in given:
        return [*doctor, "-m", given["module"], *words] if under else [PYTHON, "-m", given["module"], *words]
    return [*doctor, script, *words] if under else [PYTHON, script, *words]


REAL = re.compile(
    r"spawn|forkserver|os.exec|faulthandler|ctypes|closerange|sys.modules|meta_path|os.close|daemonises|def r\(n\)|__file__, '|torchdoctor|pyarrow"
)
"""Of these a process of its own is made; the others begin in a copy of this one, which has torch loaded, and whose frames
count towards the recursion limit."""


def perform(source: str, folder, under: bool) -> Ended:
    given = options(source)
    seconds = float(given.get("seconds", SECONDS))
    words, stdin = commands(source, folder, under), given.get("stdin")
    if (
        not given.keys() & {"module", "wrap", "stdin", "signal", "name", "args"}
        and not REAL.search(source)
        and not os.environ.get("REAL")
    ):
        return forked(words, folder, under, seconds)
    if "signal" not in given:
        return call(words, folder, seconds, stdin=(stdin.replace("\\n", "\n").encode() if stdin else None))
    out, err = folder / "out", folder / "err"
    begun = time.monotonic()
    process = start(words, folder, stdout=out.open("wb"), stderr=err.open("wb"))
    while b"ready" not in out.read_bytes() and process.poll() is None and time.monotonic() - begun < seconds:
        time.sleep(0.02)
    time.sleep(0.3)
    if process.poll() is None:
        os.kill(process.pid, getattr(signal, given["signal"]))
    sent = time.monotonic()
    while process.poll() is None and time.monotonic() - sent < 20:
        time.sleep(0.02)
    rc = process.poll()
    if rc is None:
        end_group(process)
    return Ended(rc, out.read_bytes(), err.read_bytes(), time.monotonic() - sent, 0)


OURS = re.compile(
    r"forking|forked_runs|harness|received by PID|USDT:|Traceback|runpy|@peak|^ *~*\^+~*$|^ {4}(exec\(|return _run|runpy)|pid|[EWI]\d{4} |time *: |host *: "
)
"""What this campaign's own frames leave in a traceback, and times and processes in torchrun's words."""


def normal(text: bytes) -> list[str]:
    return [x for x in ADDRESS.sub(b"#", text).decode(errors="replace").splitlines() if not OURS.search(x)]


def differences(bare: Ended, under: Ended) -> list[str]:
    found = []
    if bare.rc != under.rc:
        found.append(f"exit {bare.rc} bare, {under.rc} under")
    if normal(bare.out) != normal(under.out):
        lines = list(difflib.unified_diff(normal(bare.out), normal(under.out), "bare", "under", n=0, lineterm=""))[2:]
        found.append("stdout differs: " + " | ".join(lines[:8])[:350])
    missing = [x for x in normal(bare.err) if x.strip() and x not in set(normal(under.err))]
    if missing:
        found.append("stderr lacks: " + " | ".join(missing[:4])[:300])
    verdict = under.err.decode(errors="replace")
    bare_traces, traces = bare.err.count(b"Traceback (most"), under.err.count(b"Traceback (most")
    if traces > bare_traces:
        found.append(f"tracebacks {bare_traces} bare, {traces} under: " + verdict[-400:])
    theirs = [x for x in verdict.splitlines() if "/torchdoctor/" in x and "File " in x]
    if theirs:
        found.append("torchdoctor frames in a traceback: " + theirs[-1].strip())
    return found


@campaign_test("style")
def style():
    wanted = os.environ.get("ONLY", "").split()
    preload()
    keep = os.environ.get("SHOW")
    names = list(CASES)
    first = names.index(os.environ["FROM"]) if "FROM" in os.environ else 0
    for name, source in list(CASES.items())[first:]:
        if wanted and not any(w in name for w in wanted):
            continue
        ends = []
        for under in (False, True):
            folder = fresh("style")
            given = options(source)
            script = folder / given.get("name", "case.py")
            script.parent.mkdir(parents=True, exist_ok=True)
            if "module" in given:
                (folder / "pkg").mkdir()
                (folder / "pkg" / "__init__.py").write_text("")
                (folder / "pkg" / "helper.py").write_text(PRELUDE)
                script = folder / "pkg" / "train.py"
                script.write_text(source)
            else:
                script.write_text(PRELUDE + source)
            ends.append(perform(source, folder, under))
        bare, under = ends
        found = differences(bare, under)
        said = under.err.decode(errors="replace")
        notable = [
            x.strip()
            for x in said.splitlines()
            if re.search(
                r"switched off|failed|could not|incomplete|not written|dropped|lost|gave up|nothing was seen|no training",
                x,
                re.I,
            )
        ]
        notes = [
            *found,
            f"rc {bare.rc}/{under.rc} s {bare.seconds:.1f}/{under.seconds:.1f} MB {bare.peak >> 20}/{under.peak >> 20}",
        ]
        verdict = next(
            (
                x.strip()
                for x in said.splitlines()
                if re.search(r"^  (NO |ERROR|WARNING|HEALTHY|CLEAN|NOTHING|INFO|\w+ AND|[A-Z ]{6,}$)", x)
            ),
            "",
        )
        notes.append(f"verdict: {verdict}")
        notes += [f"said: {x}" for x in notable[:3] if x not in bare.err.decode(errors="replace")]
        if keep:
            print(bare.said[-3000:], "\n=====\n", under.said[-6000:])
        yield Line(f"style {name}", 1, int(bool(found)), notes)
