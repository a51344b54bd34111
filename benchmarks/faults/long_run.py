"""Many tiny steps: do memory, files, threads and descriptors grow?"""

import json
import os

from harness import DOCTOR, PYTHON, SCRIPTS, Line, call, campaign_test, fresh, runs_in


@campaign_test("long")
def long():
    steps = int(os.environ.get("STEPS", 200_000))
    folder = fresh("long")
    ends = {}
    for name, words in (("bare", [PYTHON]), ("recorded", [DOCTOR, "run", "--out", str(folder / "runs")])):
        log = folder / f"{name}.log"
        ends[name] = call([*words, str(SCRIPTS / "long.py"), str(log), str(steps), str(folder / "runs")], folder, 540)
    notes, failed = [], 0
    rows = {name: [json.loads(x) for x in (folder / f"{name}.log").read_text().splitlines()] for name in ends}
    for name, end in ends.items():
        first, last = rows[name][0], rows[name][-1]
        notes.append(f"{name}: rc {end.rc}, {end.seconds:.0f} s; at 10 % {first} at 100 % {last}")
    grown = rows["recorded"][-1]["rss"] - rows["recorded"][0]["rss"]
    own = grown - (rows["bare"][-1]["rss"] - rows["bare"][0]["rss"])
    failed = (
        int(own > 20 << 20)
        + int(rows["recorded"][-1]["threads"] > rows["recorded"][0]["threads"])
        + int(rows["recorded"][-1]["fds"] > rows["recorded"][0]["fds"] + 2)
    )
    failed += int(ends["bare"].out != ends["recorded"].out)
    notes.append(f"RSS grew by {own >> 10} KB more than bare; output same {ends['bare'].out == ends['recorded'].out}")
    notes.append(ends["recorded"].err.decode()[-900:].replace("\n", " | "))
    for words in (["diagnose"], ["report", "-o", "r.html"]):
        run = runs_in(folder / "runs")[0]
        end = call([DOCTOR, words[0], str(run), *words[1:]], folder, 120)
        notes.append(f"{words[0]}: {end.seconds:.1f} s, {end.peak >> 20} MB, rc {end.rc}")
    yield Line(f"long: {steps} steps", 4, failed, notes)
