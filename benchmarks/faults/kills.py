"""kill -9 at random times: is the run readable, and how much of it is lost?"""

import os
import random
import re
import time

from harness import (
    DOCTOR,
    SCRIPTS,
    Line,
    campaign_test,
    command,
    end_group,
    fresh,
    inside,
    runs_in,
    sample_run,
    start,
    warm,
)

SCRIPT = SCRIPTS / "logged.py"


def last_step(folder) -> int:
    """The last step that a reader finds."""
    found = inside(lambda: print("STEPS", __import__("torchdoctor.store.reader").store.reader.open_run(folder).steps))
    match = re.search(r"STEPS (\d+)", found.said)
    return int(match[1]) if match else -1


@campaign_test("kill")
def kill():
    yield from killed(
        "kill -9 while it trains",
        int(os.environ.get("KILLS", 45)),
        lambda r: r.uniform(0.05, 4.0),
        steps=100_000,
    )
    yield from killed("kill -9 as it closes", 25, lambda r: r.uniform(0.0, 0.6), steps=400, at_end=True)


def killed(name, times, when, steps, at_end=False):
    warm(sample_run())

    chance, tried, failed, notes, lost, none = random.Random(7), 0, 0, [], [], 0
    for k in range(times):
        folder = fresh("kill")
        log = folder / "log"
        process = start(
            [DOCTOR, "run", "--out", str(folder / "runs"), str(SCRIPT), str(log), str(steps)],
            folder,
            stdout=(folder / "out").open("wb"),
            stderr=(folder / "err").open("wb"),
        )
        wait = when(chance)
        if at_end:
            while not (log.exists() and b"end" in log.read_bytes()[-20:]) and process.poll() is None:
                time.sleep(0.005)
        elif k % 5:  # one in five dies as it starts, the others after their first step
            while not log.exists() and process.poll() is None:
                time.sleep(0.005)
        time.sleep(wait)
        end_group(process)
        text = log.read_text().split() if log.exists() else []
        trained = [line for line in text if "," in line]
        runs = runs_in(folder / "runs")
        tried += 1
        if not runs:
            none += 1
            if len(trained) > 200:
                failed += 1
                notes.append(f"{wait:.2f} s: no run folder after {len(trained)} steps")
            continue
        steps_read = last_step(runs[0])
        # steps that were done more than so long before the death and are not in the record
        done = [(int(s), float(t)) for s, t in (x.split(",") for x in trained)]
        seconds = done[-1][1] - next((t for s, t in reversed(done) if s <= steps_read), done[0][1]) if done else 0.0
        lost.append(seconds)
        for words in (("diagnose", str(runs[0])), ("report", str(runs[0]), "-o", str(folder / "r.html"))):
            end = inside(command(*words), 60)
            if end.hung or end.traceback or end.rc not in (0,):
                failed += 1
                notes.append(
                    f"{wait:.2f} s, {words[0]}: rc {end.rc} hung {end.hung}: {end.said.strip()[-250:]!r} steps {len(done)}"
                )
    lost.sort()
    if lost:
        notes.insert(
            0,
            f"seconds of steps lost: median {lost[len(lost) // 2]:.2f}, worst {lost[-1]:.2f}; no folder yet in {none}",
        )
    yield Line(name, tried, failed, notes)
