"""What drawing a run in its own terminal costs the training: the same script bare, recorded, and with the live view.

    python benchmarks/live_view.py [--rounds 5] [--steps 1500] [--write]

Each arm runs the script in a terminal of 120 x 40, one after the other, in another order each round. The script says
how long its steps took once the first ones are over; the ratio is to the recorded arm (`run`) of the same round, since
the view is what is asked about, and the table has the medians. The view is a process of its own: what it used of a
core is read from /proc while it draws.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import random
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import results

SCRIPT = """
import sys, time
import torch
from torch import nn

steps = int(sys.argv[1])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), *(m for _ in range(4) for m in (nn.GELU(), nn.Linear(1024, 1024))))
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
x, y = torch.randn(4096, 256), torch.randn(4096, 1024)
for step in range(steps):
    if step == steps // 5:
        begun = time.perf_counter()
    rows = torch.randint(0, 4096, (64,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rows]), y[rows])
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print("step", step, loss.item())
print("seconds", time.perf_counter() - begun)
"""
RUN = [sys.executable, "-m", "torchdoctor", "run", "--quiet"]
ARMS = {
    "bare": [sys.executable],
    "run": RUN,
    "run --live --view-rows 0": [*RUN, "--live", "--view-rows", "0"],
    "run --live": [*RUN, "--live"],
}
COLUMNS, ROWS = 120, 40
OWN_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY); os.execvp(sys.argv[1], sys.argv[1:])"
TICKS = os.sysconf("SC_CLK_TCK")


def measure(arm: str, steps: int, folder: Path) -> tuple[float, float, int]:
    """Seconds of the steps, share of a core that the view used, and bytes that reached the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-c", OWN_TERMINAL, *ARMS[arm], "train.py", str(steps)]
    environment = {**os.environ, "TERM": "xterm-256color"}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = subprocess.Popen(command, cwd=folder, **streams, env=environment, start_new_session=True)
    device, text = os.ttyname(theirs), b""
    looks: list[tuple[float, float]] = []
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.5)[0]:
            text += os.read(ours, 1 << 16)
        used = _used_by_view(device)
        if used is not None:
            looks.append((time.monotonic(), used))
    os.close(ours)
    os.close(theirs)
    found = re.search(rb"seconds ([\d.]+)", text)
    if found is None:
        raise SystemExit(f"{arm}: the script did not come to its end:\n{text.decode(errors='replace')[-2000:]}")
    (first, before), (last, after) = (looks[0], looks[-1]) if looks else ((0.0, 0.0), (1.0, 0.0))
    return float(found[1]), (after - before) / max(last - first, 1.0), len(text)


def _used_by_view(device: str) -> float | None:
    """Processor seconds of the process that draws on this terminal."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"torchdoctor.view.companion" in (folder / "cmdline").read_bytes().split(b"\0") and any(
                str(file.readlink()) == device for file in (folder / "fd").iterdir()
            ):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / TICKS
        except OSError:
            continue
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/RESULTS.md")
    wishes = parser.parse_args()
    measured: dict[str, list[tuple[float, float, int]]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(SCRIPT)
        for number in range(wishes.rounds):
            for arm in random.Random(number).sample(list(ARMS), len(ARMS)):
                measured[arm].append(measure(arm, wishes.steps, Path(folder)))
                print(f"round {number + 1} of {wishes.rounds}: {arm} {measured[arm][-1]}", flush=True)
    table = _table(measured, wishes.steps)
    print(table)
    if wishes.write:
        marks = results.marks("live view")
        results.write("\n".join([marks[0], "## The live view in the terminal", "", table, "", marks[1]]), marks)


def _table(measured: dict[str, list[tuple[float, float, int]]], steps: int) -> str:
    recorded = [seconds for seconds, _, _ in measured["run"]]
    step = 1000 * statistics.median(recorded) / (steps - steps // 5)
    lines = [
        f"`python benchmarks/live_view.py --rounds {len(recorded)} --steps {steps}`, {os.cpu_count()} cores, "
        f"commit {results.commit()}. A step takes {step:.1f} ms recorded; medians, least and greatest in brackets.",
        "",
        "| arm | time against run | the view's share of a core | KB to the terminal |",
        "| --- | --- | --- | --- |",
    ]
    for arm, looks in measured.items():
        ratios = [100 * (seconds / base - 1) for (seconds, _, _), base in zip(looks, recorded, strict=True)]
        share = statistics.median(share for _, share, _ in looks)
        spread = f"{statistics.median(ratios):+.1f} % ({min(ratios):+.1f} to {max(ratios):+.1f})"
        size = statistics.median(size for _, _, size in looks) / 1000
        lines.append(f"| {arm} | {spread} | {f'{100 * share:.1f} %' if share else ''} | {size:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
