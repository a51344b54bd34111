"""Disks that are full, gone, forbidden or stuck: the training's output and exit status stay, and the verdict says what was lost."""

import errno
import os
import re
import subprocess
from collections.abc import Callable

from forked_runs import in_own_mounts, preload
from harness import DOCTOR, PYTHON, SCRIPTS, WORK, Ended, Line, call, campaign_test, command, fresh, inside, runs_in

SCRIPT = str(SCRIPTS / "halves.py")
LOST = re.compile(
    r"not written|incomplete|no space|read-only|denied|too many open|lost|not recorded|cannot write|nothing (was|is) recorded|without|no such file|missing|input/output|quota",
    re.I,
)
_bare: list[Ended] = []


def bare() -> Ended:
    if not _bare:
        _bare.append(call([PYTHON, SCRIPT], fresh("bare"), 60))
    return _bare[0]


def shim() -> str:
    made = WORK / "shim.so"
    if not made.exists():
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(made), str(SCRIPTS / "shim.c"), "-ldl"], check=True)
    return str(made)


def record(folder, options=(), **how) -> Ended:
    words = [DOCTOR, "run", "--every-step", "--out", str(folder / "runs"), *options, SCRIPT]
    return in_own_mounts(folder, words, True, 60, **how)


def judge(name: str, end: Ended, folder, must_say=True, same_as: Ended | None = None) -> Line:
    plain, failed, notes = same_as or bare(), 0, []
    text = end.err.decode(errors="replace")
    if end.rc != plain.rc or end.out != plain.out:
        failed += 1
        notes.append(
            f"TRAINING CHANGED: exit {end.rc} (bare {plain.rc}), stdout {len(end.out)} bytes (bare {len(plain.out)}): {text.strip()[-300:]!r}"
        )
    if "Traceback (most recent call last)" in text:
        failed += 1
        notes.append("traceback: " + text[text.index("Traceback") :][:500].replace("\n", " | "))
    said = [
        x.strip()
        for x in text.splitlines()
        if LOST.search(x) and not x.strip().startswith(("stale", "overfitting", "train-"))
    ]
    if must_say and not said:
        failed += 1
        notes.append(
            f"NOT SAID that anything was lost; the verdict: {[x.strip() for x in text.splitlines() if x.strip()][:3]}"
        )
    notes += [f"said: {x}" for x in said[:4]]
    for run in runs_in(folder / "runs")[:1]:
        again = inside(command("diagnose", str(run)), 30)
        words = [x.strip() for x in again.said.splitlines() if LOST.search(x)]
        notes.append(f"read again: rc {again.rc} {words[:2] or again.said.strip().splitlines()[:1]}")
        if again.traceback or again.hung:
            failed += 1
    return Line(name, 1, int(failed > 0), notes)


@campaign_test("disk")
def disk():
    only = os.environ.get("ONLY", "").split(",")
    preload()
    for name, how in CASES.items():
        if not any(o in name for o in only):
            continue
        folder = fresh("disk")
        folder.chmod(0o777)
        how = dict(how)
        must = how.pop("must_say", True)
        fill = {k: (v.replace("@", str(folder)) if isinstance(v, str) else v) for k, v in how.items()}
        yield judge(f"disk: {name}", record(folder, **fill), folder, must)


@campaign_test("shim")
def shimmed():
    yield from injected()


def tmpfs(options: str) -> str:
    return f"mkdir -p @/runs && mount -t tmpfs -o {options} none @/runs; chmod 777 @ @/runs"


def at(descriptor: int, path: str | None) -> Callable[[], None]:
    """Before the script: a descriptor closed, or open on something else."""

    def change() -> None:
        if path is None:
            os.close(descriptor)
        else:
            os.dup2(os.open(path, os.O_RDWR), descriptor)

    return change


def gone() -> None:
    os.mkdir("gone"), os.chdir("gone"), os.rmdir("../gone")


def shut() -> None:
    os.mkdir("/tmp/.shut-cwd"), os.chdir("/tmp/.shut-cwd"), os.chmod(".", 0), os.rmdir("/tmp/.shut-cwd")


NOBODY = 65534
QUIET = {"must_say": False}
CASES = {
    "64 KB disk": {"prepare": tmpfs("size=64k")},
    "1 MB disk": {"prepare": tmpfs("size=1m")},
    "4 MB disk": dict(prepare=tmpfs("size=4m"), **QUIET),
    "full from the beginning": {
        "prepare": tmpfs("size=64k") + "; dd if=/dev/zero of=@/runs/fill bs=1k count=80 2>/dev/null"
    },
    "full at half, space again later": dict(  # nothing need be lost: the script rests until there is space again
        prepare=tmpfs("size=8m"),
        half="dd if=/dev/zero of=@/runs/fill bs=64k 2>/dev/null; sleep 1; rm @/runs/fill",
        **QUIET,
    ),
    "full at half and for good": {
        "prepare": tmpfs("size=8m"),
        "half": "dd if=/dev/zero of=@/runs/fill bs=4k 2>/dev/null",
    },
    "8 inodes": {"prepare": tmpfs("size=8m,nr_inodes=8")},
    "read-only from the beginning": {"prepare": tmpfs("ro")},
    "read-only at half": {
        "prepare": tmpfs("size=8m"),
        "half": "for i in 1 2 3 4 5 6 7 8 9; do mount -o remount,ro @/runs 2>/dev/null && break; mount --bind @/runs @/runs; mount -o remount,ro,bind @/runs && break; done",
    },
    "no right to write": {"prepare": "mkdir -p @/runs; chmod 777 @; chmod 755 @/runs", "uid": NOBODY},
    "right to write lost at half": {
        "prepare": "chmod 777 @; mkdir -p @/runs; chmod 777 @/runs",
        "uid": NOBODY,
        "half": "chown -R root @/runs; chmod 500 @/runs/*; chmod 755 @/runs",
    },
    "run folder deleted at half": {"half": "rm -rf @/runs/*"},
    "runs folder deleted at half": {"half": "rm -rf @/runs"},
    "run folder renamed at half": {"half": "for d in @/runs/*; do mv $d @/elsewhere; done"},
    "run folder replaced by a link at half": {
        "half": "mkdir @/target; for d in @/runs/*; do mv $d @/elsewhere; ln -s @/target $d; done"
    },
    "run folder replaced by a file at half": {"half": "for d in @/runs/*; do rm -rf $d; echo x > $d; done"},
    "run.json replaced by a folder at half": {"half": "for d in @/runs/*; do rm $d/run.json; mkdir $d/run.json; done"},
    "Arrow files truncated at half": {"half": "for f in @/runs/*/*.arrow; do : > $f; done"},
    "--out is a file": {"prepare": "echo x > @/runs"},
    "--out under /dev/null": {"options": ("--out", "/dev/null/x")},
    "--out dangling link": dict(prepare="ln -s /nowhere/at/all @/runs", **QUIET),
    "--name too long": {"options": ("--name", "n" * 300)},
    "TMPDIR full": dict(
        prepare="mkdir @/t && mount -t tmpfs -o size=16k none @/t && dd if=/dev/zero of=@/t/fill bs=1k count=40 2>/dev/null",
        env={"TMPDIR": "t"},
        **QUIET,
    ),
    "TMPDIR nowhere": dict(env={"TMPDIR": "/nowhere/at/all"}, **QUIET),
    # A bind of its own: to remount /dev/shm itself makes it read-only for every process of the machine.
    "/dev/shm read-only": dict(prepare="mount --bind /dev/shm /dev/shm && mount -o remount,ro,bind /dev/shm", **QUIET),
    "file size limit 50 KB": {"limits": {"FSIZE": 50_000}},
    "20 descriptors": dict(limits={"NOFILE": 20}, **QUIET),
    "12 descriptors": dict(limits={"NOFILE": 12}, **QUIET),
    "8 descriptors": dict(limits={"NOFILE": 8}, **QUIET),
    "no more threads (nobody, NPROC 1)": dict(prepare="chmod 777 @", uid=NOBODY, limits={"NPROC": 1}, **QUIET),
    "no HOME": dict(env={"HOME": None}, **QUIET),
    "HOME nowhere": dict(env={"HOME": "/nowhere/at/all"}, **QUIET),
    "no HOME, unknown user": dict(
        prepare="chmod 777 @", env={"HOME": None, "USER": None, "LOGNAME": None}, uid=44444, **QUIET
    ),
    "cwd deleted": dict(before=gone, **QUIET),
    "cwd deleted, default --out": {"before": gone, "options": ("--out", "torchdoctor-runs")},
    "LC_ALL=C": dict(env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, **QUIET),
    "stderr closed": dict(before=at(2, None), **QUIET),
    "stderr full (/dev/full)": dict(before=at(2, "/dev/full"), **QUIET),
    "stdin closed": dict(before=at(0, None), **QUIET),
}


FAULTS = [
    ("write", errno.EIO),
    ("open", errno.EACCES),
    ("rename", errno.EIO),
    ("fsync", errno.EIO),
    ("write", errno.EDQUOT),
    ("write", errno.ENOSPC),
    ("open", errno.EMFILE),
]


def injected():
    """One kind of call fails from the k-th on, or the k-th alone."""
    plain = bare()
    library = shim()
    for kind, number in FAULTS[: int(os.environ.get("KINDS", 9))]:
        tried, failed, notes, silent = 0, 0, [], 0
        for how in ("from", "only"):
            for k in map(int, os.environ.get("KS", "1 2 5 13").split()):
                folder = fresh("shim")
                env = {"LD_PRELOAD": library, "FAULT": f"{kind} {number} {k} {how} /runs/"}
                end = call([DOCTOR, "run", "--every-step", "--out", str(folder / "runs"), SCRIPT], folder, 60, env)
                tried += 1
                text = end.err.decode(errors="replace")
                if end.rc != plain.rc or end.out != plain.out or end.traceback:
                    failed += 1
                    notes.append(f"k {k} {how}: exit {end.rc}, stdout same {end.out == plain.out}, {text[-300:]!r}")
                if not LOST.search(text):
                    silent += 1
        notes.append(f"said nothing of it in {silent} of {tried}")
        yield Line(f"disk: {kind} fails with {errno.errorcode[number]}", tried, failed, notes)
    folder = fresh("shim")
    end = call(
        [DOCTOR, "run", "--out", str(folder / "runs"), SCRIPT],
        folder,
        90,
        {"LD_PRELOAD": library, "FAULT": "write 0 6 only /runs/", "STALL": "40"},
    )
    yield Line(
        "disk: one write stalls for 40 s",
        1,
        int(end.rc != plain.rc or end.out != plain.out),
        [
            f"{end.seconds:.1f} s (bare {plain.seconds:.1f})",
            *[x for x in end.err.decode().splitlines() if LOST.search(x) or "disk" in x][:3],
        ],
    )
