"""The pages at scale, beside TensorBoard: opened, used and followed in a real browser, on the same numbers.

    python benchmarks/pages.py [--write] [--rounds N] [--quick]

A run of 100,000 steps x 300 tensors is made once (benchmarks/.cache), for torchdoctor by its own recorder and for
TensorBoard by its own writer. Visits to both are interleaved; every one is a browser without a cache. Medians.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages_browser import LISTED, OURS, REPORT, THEIRS, Visit, browser, use_ours, use_theirs, visit, zoom_tall
from pages_data import CACHE, VALIDATED, Training, make_events, make_run, record_part, start_run
from pages_servers import run_address, tensorboard, torchdoctor
from results import commit, marks, progress, write

MARKS = marks("pages")
LAYER = "blocks.7.attn.qkv"
ROUNDS, COLD = 5, 3
RUNS = 500
"""Lines of a long list."""
TALL = {"width": 1280, "height": 3000}
"""A screen on which all charts over steps are at once."""
LIVE = (12.0, 0.2)
"""Seconds that a training is followed, and of one of its steps."""

Measured = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the section into benchmarks/RESULTS.md")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    options = parser.parse_args()
    training = Training(100_000, 300)
    rounds, cold = (2, 1) if options.quick else (options.rounds, COLD)
    CACHE.mkdir(parents=True, exist_ok=True)
    found: dict[str, Measured] = {"ours": defaultdict(list), "theirs": defaultdict(list)}
    with progress() as bar, browser() as driver:
        task = bar.add_task("pages", total=rounds + cold + 5, now="the data")

        def tell(now: str) -> None:
            bar.update(task, advance=1, now=now)

        folder = CACHE / f"folder-{training.name}"
        folder.mkdir(exist_ok=True)
        run = make_run(training, folder)
        events = make_events(training, CACHE)
        wide = make_run(Training(5000, 3000), CACHE / "folder-wide")
        many = make_many(CACHE / f"many-{RUNS}")
        tell("servers that were just started")
        for _ in range(cold):
            open_cold(driver, run, events, found)
            tell("pages")
        measure_warm(driver, run, events, rounds, found, tell)
        measure_report(driver, run, rounds, found["ours"])
        tell("a training that goes on")
        follow(driver, training, run, found["ours"])
        tell("3000 tensors")
        measure_wide(driver, wide, found["ours"])
        tell(f"{RUNS} runs")
        measure_list(driver, many, found["ours"])
        tell("done")
    text = section(found["ours"], found["theirs"], training, folder_size(run), folder_size(events))
    if options.write:
        write(text, MARKS)
    print(text)


def open_cold(driver: Any, run: Path, events: Path, found: dict[str, Measured]) -> None:
    """Servers that were just started: ours has not opened the run before, TensorBoard has read the loss."""
    with torchdoctor(run.parent) as server:
        found["ours"]["server ready"].append(server.ready_s)
        with visit(driver, run_address(server, run.name), OURS, server.url) as seen:
            take_marks(seen, found["ours"], "cold ")
    with tensorboard(events) as server:
        found["theirs"]["server ready"].append(server.ready_s)
        found["theirs"]["server loaded"].append(server.loaded_s)


def measure_warm(driver: Any, run: Path, events: Path, rounds: int, found: dict[str, Measured], tell: Any) -> None:
    with torchdoctor(run.parent) as ours, tensorboard(events) as theirs:
        with visit(driver, run_address(ours, run.name), OURS, ours.url) as seen:
            take_marks(seen, defaultdict(list))
        time.sleep(3)  # TensorBoard reads the rest
        for _ in range(rounds):
            for name, server, address, watched, use, enter in (
                ("ours", ours, run_address(ours, run.name), OURS, use_ours, ours.url),
                ("theirs", theirs, theirs.url, THEIRS, use_theirs, ""),
            ):
                held, before = found[name], server.cpu()
                with visit(driver, address, watched, enter) as seen:
                    take_marks(seen, held)
                    seen.page.wait_for_timeout(1000)
                    held["bytes"].append(seen.bytes)
                    held["cpu"].append(server.cpu() - before)
                    for action, times in use(seen, LAYER).items():
                        for kind, value in times.items():
                            held[f"{action}: {kind}"].append(16.0 if value is None else value)
                held["memory"].append(server.megabytes())
            tell("pages")
        with visit(driver, run_address(ours, run.name), OURS, ours.url, TALL) as seen:
            for times in zoom_tall(seen):
                for kind in ("paint", "all"):
                    found["ours"][f"tall: {kind}"].append(times[kind] or 16.0)


def take_marks(seen: Visit, held: Measured, before: str = "") -> None:
    """What was watched for; a verdict is ours alone."""
    ours = "first useful paint" in seen.watched
    for name in ("first useful paint", "verdict", "loss chart interactive") if ours else ("loss chart interactive",):
        held[before + name].append(seen.mark(name))


def measure_report(driver: Any, run: Path, rounds: int, held: Measured) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.html"
        begun = time.monotonic()
        words = [sys.executable, "-m", "torchdoctor", "report", str(run), "-o", str(target)]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        held["report written"].append(time.monotonic() - begun)
        held["report size"].append(target.stat().st_size)
        for _ in range(rounds):
            with visit(driver, target.as_uri(), REPORT) as seen:
                held["report: first paint"].append(seen.mark("first useful paint"))
                held["report: chart"].append(seen.mark("first chart drawn"))


FOLLOWED = """() => { const said = []; const status = document.getElementById("status");
  const look = () => { const step = Number(status.textContent.replace(/\\D/g, ""));
    const place = document.querySelector("#first .chart");
    const drawn = Math.max(...(place._fullData ?? []).map((t) => t.x?.[t.x.length - 1] ?? 0));
    said.push([Date.now() / 1000, step, drawn]); requestAnimationFrame(look); };
  requestAnimationFrame(look); window.followed = said; }"""


def follow(driver: Any, training: Training, run: Path, held: Measured) -> None:
    """The same run goes on for a while: from the moment a step is handed to the recorder to the page that shows it."""
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        shutil.copytree(run, Path(folder) / "live")
        recorder = start_run(training, Path(folder) / "live", 1.0)
        told: list[tuple[float, int]] = []
        stop = threading.Event()
        thread = threading.Thread(target=train_on, args=(training, recorder, told, stop))
        thread.start()
        try:
            with (
                torchdoctor(Path(folder)) as server,
                visit(driver, run_address(server, "live"), OURS, server.url) as seen,
            ):
                seen.mark("loss chart interactive")
                seen.page.evaluate(FOLLOWED)
                before = server.cpu()
                seen.page.wait_for_timeout(1000 * LIVE[0])
                held["live cpu"].append((server.cpu() - before) / LIVE[0])
                shown = seen.page.evaluate("window.followed")
        finally:
            stop.set()
            thread.join()
            recorder.close()
    for when, step in told:
        for name, at, wanted in (("update: figures", 1, step + 1), ("update: chart", 2, step)):
            reached = next((s[0] for s in shown if s[at] >= wanted), None)
            if reached is not None and when > shown[0][0]:
                held[name].append(reached - when)


def train_on(training: Training, recorder: Any, told: list[tuple[float, int]], stop: threading.Event) -> None:
    part = next(training.parts())
    for i in range(len(part.steps)):
        if stop.is_set():
            return
        one = type(part)(*(getattr(part, name)[i : i + 1] for name in part.__dataclass_fields__))
        record_part(training, recorder, one)
        told.append((time.time(), training.steps + i))
        stop.wait(LIVE[1])


def measure_wide(driver: Any, run: Path, held: Measured) -> None:
    with torchdoctor(run.parent) as server:
        for number in range(3):
            with visit(driver, run_address(server, run.name), OURS, server.url) as seen:
                take_marks(seen, held, "wide cold " if not number else "wide ")
                seen.page.wait_for_timeout(1500)
                seen.page.mouse.move(640, 450)
                for _ in range(4):
                    held["wide frame"].append(seen.scroll(800))


def make_many(folder: Path) -> Path:
    """So many short runs: one, copied under other names."""
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    one = make_run(Training(2 * VALIDATED, 24), unfinished)
    for number in range(RUNS):
        shutil.copytree(one, unfinished / f"run-{number:04}")
    shutil.rmtree(one)
    unfinished.rename(folder)
    return folder


def measure_list(driver: Any, folder: Path, held: Measured) -> None:
    watched = LISTED.replace("ROWS", str(RUNS))
    examined = 'probe.when("examined", () => !document.querySelector("#rows .waiting"));'
    with torchdoctor(folder) as server:
        base = server.url.partition("?")[0]
        with visit(driver, base, watched + examined, server.url) as seen:
            held["list cold"].append(seen.mark("all rows"))
            held["list examined"].append(seen.mark("examined"))
        before = server.cpu()
        with visit(driver, base, watched, server.url) as seen:
            held["list"].append(seen.mark("all rows"))
            page = seen.page
            page.wait_for_timeout(500)
            page.click("#search")
            few = '() => document.querySelectorAll("#rows tr:not([hidden])").length < 20'
            found = seen.act(["input"], {"done": few}, lambda: page.keyboard.insert_text("run-000"))
            held["list search"].append(found["done"])
            page.wait_for_timeout(10_000)
            held["list cpu"].append((server.cpu() - before) / 11)


def folder_size(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


def section(ours: Measured, theirs: Measured, training: Training, size: float, events: float) -> str:
    begin, end = MARKS
    today, load = time.strftime("%Y-%m-%d"), os.getloadavg()[0]
    lines = [
        begin,
        "## Pages",
        "",
        f"`python benchmarks/pages.py`, {today}, commit {commit()}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load {load:.1f}, Debian's chromium without a GPU at 1280 x 900. Medians (worst) of "
        f"{len(ours['bytes'])} visits, each with an empty cache, ours and TensorBoard's in turn.",
        "",
        *ABOUT.format(steps=training.steps, tensors=training.tensors, size=size, events=events).splitlines(),
        "",
        "| what | torchdoctor | TensorBoard | promised |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows(ours, theirs)),
        end,
    ]
    return "\n".join(lines)


ABOUT = """\
The run has {steps:,} steps and {tensors} tensors: losses, rates and times, all statistics of every gradient and
weight, update ratios and activations at every step ({size:.0f} MB on disk). TensorBoard has the same loss and rate at
every step and the norm of every tensor's gradient at every tenth ({events:.0f} MB): a kindness, since it keeps 1000
points of a series. It was given the time to read its files before pages were opened. First useful paint is, for us,
the figures under the verdict and the loss curve; TensorBoard's is its loss curve (its axes: a worker draws the curve
itself). Next paint is the browser's own Event Timing from an input to the next frame; the others are from the input
to the frame that shows the result. Playwright's inspector makes V8 read Plotly's script twice: without it, loss charts
can be used some 0.3 s earlier."""


def rows(ours: Measured, theirs: Measured) -> Iterator[tuple[str, str, str, str]]:
    yield "server ready", seconds(ours, "server ready"), seconds(theirs, "server ready"), ""
    yield "server has read the loss", "when asked", seconds(theirs, "server loaded"), ""
    first = "first useful paint"
    yield (
        f"{first}, of a server just started",
        ms(ours, f"cold {first}"),
        "after it was loaded: as below",
        "< 1 s",
    )
    yield f"{first}, opened again", ms(ours, first), ms(theirs, "loss chart interactive"), "< 1 s"
    yield "verdict, of a server just started", ms(ours, "cold verdict"), "-", ""
    yield "verdict, opened again", ms(ours, "verdict"), "-", ""
    yield "loss chart can be used", ms(ours, "loss chart interactive"), ms(theirs, "loss chart interactive"), ""
    for action in ("hover", "drag zoom", "reset", "key zoom", "open a layer", "scroll to new charts"):
        done = f"{action}: done"
        yield f"{action}: shown", ms(ours, done), ms(theirs, done), "< 100 ms" if action in QUICK else ""
        if f"{action}: all" in ours:
            yield f"{action}: in all visible charts", ms(ours, f"{action}: all"), "-", ""
        if action == "scroll to new charts":
            yield f"{action}: longest frame", *(ms(each, f"{action}: frame") for each in (ours, theirs)), "< 100 ms"
        elif action != "hover":
            yield f"{action}: next paint", *(ms(each, f"{action}: paint") for each in (ours, theirs)), "< 100 ms"
    yield "key zoom with all charts on the screen: next paint", ms(ours, "tall: paint"), "-", "< 100 ms"
    yield "key zoom with all charts on the screen: in all of them", ms(ours, "tall: all"), "-", ""
    yield "bytes to the browser", *(f"{middle(each, 'bytes') / 1e6:.1f} MB" for each in (ours, theirs)), ""
    yield "server's processor time a visit", *(f"{middle(each, 'cpu'):.2f} s" for each in (ours, theirs)), ""
    yield "server's memory", *(f"{max(each['memory']):.0f} MB" for each in (ours, theirs)), ""
    yield "report: size", f"{middle(ours, 'report size') / 1e6:.1f} MB", "-", "< 8 MB"
    yield "report: written in", seconds(ours, "report written"), "-", ""
    yield "report: verdict painted", ms(ours, "report: first paint"), "-", "< 2 s"
    yield "report: first chart drawn", ms(ours, "report: chart"), "-", "< 2 s"
    reloads = "every 30 s, if switched on"
    yield "from a step to the page's figures", seconds(ours, "update: figures"), reloads, "< 2 s"
    yield "from a step to the loss chart", seconds(ours, "update: chart"), reloads, "< 2 s"
    yield "server's processor while a run of this size is followed", f"{middle(ours, 'live cpu'):.0%} of a core", "", ""
    yield "3000 tensors: first useful paint, cold", ms(ours, f"wide cold {first}"), "", ""
    yield "3000 tensors: first useful paint, again", ms(ours, f"wide {first}"), "", ""
    yield "3000 tensors: longest frame while scrolling", ms(ours, "wide frame"), "", ""
    yield f"list of {RUNS} runs: all lines, cold", ms(ours, "list cold"), "", ""
    yield f"list of {RUNS} runs: all examined, cold", ms(ours, "list examined"), "", ""
    yield f"list of {RUNS} runs: all lines, again", ms(ours, "list"), "", ""
    yield f"list of {RUNS} runs: search", ms(ours, "list search"), "", "< 100 ms"
    yield (
        f"list of {RUNS} runs: server's processor while it is open",
        f"{middle(ours, 'list cpu'):.1%} of a core",
        "",
        "",
    )


QUICK = ("hover", "drag zoom", "reset", "key zoom")
"""What is answered by the page alone; the others wait for the server."""


def middle(held: Measured, name: str) -> float:
    return statistics.median(held[name])


def ms(held: Measured, name: str) -> str:
    return f"{middle(held, name):.0f} ms ({max(held[name]):.0f})" if held.get(name) else "-"


def seconds(held: Measured, name: str) -> str:
    return f"{middle(held, name):.2f} s ({max(held[name]):.2f})" if held.get(name) else "-"


if __name__ == "__main__":
    main()
