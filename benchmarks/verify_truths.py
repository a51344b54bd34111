"""Are the planted truths true? Every script under a dispatch mode of its own, which shows what really went wrong first.

    python benchmarks/verify_truths.py [--at 1,300] [--seed 0] [--only GLOB]

Shares nothing with torchdoctor. Prints, for every case, the first operation that made Inf or NaN of better inputs, in
which update, direction and line, and whether truths.py says the same. A -inf that is filled in on purpose is passed
over, as is, where the truth says so, what never reaches the loss.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).parent / "planted"))
from truths import TRUTHS, Truth

GIVING = frozenset(
    [
        *("masked_fill", "masked_fill_", "where", "full", "full_like", "fill_", "scalar_tensor", "lift_fresh"),
        *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "set_"),
    ]
)
"""They put what they are told, or what the memory held before, such as a worker's batch."""
EVENTS_KEPT = 12
TIMEOUT_SECONDS = 120.0


class Watcher(TorchDispatchMode):
    """Notes the operations whose result is worse than anything that went in: finite, then Inf, then NaN."""

    def __init__(self, script: str) -> None:
        super().__init__()
        self.script = script
        self.updates = 0
        self.events: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = _floats((args, kwargs))
        worst = max((_badness(t) for t in read), default=0)
        result = func(*args, **(kwargs or {}))
        if len(self.events) >= EVENTS_KEPT:
            return result
        for out in _floats(result):
            bad = _badness(out)
            if bad > worst or (bad and worst):
                self._note(func, out, bad, worst)
                break
        return result

    def _note(self, func: Any, out: Tensor, bad: int, worst: int) -> None:
        name = func.overloadpacket.__name__
        if name in GIVING:
            return
        if worst >= bad and any(e["update"] == self.updates + 1 and e["worst"] >= bad for e in self.events):
            return
        backward = torch._C._current_graph_task_id() != -1
        wrong = ~torch.isfinite(out.detach())
        rows = wrong.reshape(len(wrong), -1).any(1).nonzero().flatten().tolist() if wrong.dim() else []
        self.events.append(
            {
                "operator": name,
                "backward": backward,
                "line": self._line(backward),
                "update": self.updates + 1,
                "from": worst,
                "worst": bad,
                "rows": rows[:16],
            }
        )

    def _line(self, backward: bool) -> int:
        """Innermost line of the script; in the backward that of the forward operation, if no frame of it is nearer."""
        node = torch._C._current_autograd_node() if backward else None
        frame: Any = sys._getframe()
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self.script and (node is None or code.co_name == "backward"):
                return int(frame.f_lineno)
            frame = frame.f_back
        stack = node.metadata.get("traceback_", []) if node is not None else []
        mine = [e for e in stack if f'"{self.script}"' in e]
        return int(mine[-1].split("line ")[1].split(",")[0]) if mine else 0


def _floats(tree: Any) -> list[Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor) and t.is_floating_point() and t.numel()]


def _badness(tensor: Tensor) -> int:
    plain = tensor.detach()
    if bool(torch.isnan(plain).any()):
        return 2
    return int(bool(torch.isinf(plain).any()))


def watch(script: str) -> list[dict[str, Any]]:
    """Births, and as the last entry the first update whose loss, gradients or weights were not finite."""
    watcher = Watcher(script)
    spoilt: list[int] = []

    def count(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        held = [p for group in optimizer.param_groups for p in group["params"]]
        grads = [p.grad for p in held if p.grad is not None]
        watcher.updates += 1
        if any(_badness(t) for t in [*held, *grads]):
            spoilt.append(watcher.updates)

    def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        if _badness(loss):
            spoilt.append(watcher.updates + 1)
        plain(loss, *args, **kwargs)

    plain, Tensor.backward = Tensor.backward, backward  # type: ignore[method-assign]
    register_optimizer_step_post_hook(count)
    sys.argv = [script]
    torch.set_num_threads(1)
    kept_on = torch.autograd.set_detect_anomaly
    torch.autograd.set_detect_anomaly = lambda *_: kept_on(True, check_nan=False)  # Lightning switches it off
    with kept_on(True, check_nan=False), watcher:
        runpy.run_path(script, run_name="__main__")
    return [*watcher.events, {"spoilt": min(spoilt, default=0)}]


def judge(truth: Truth, events: list[dict[str, Any]], at: int) -> str:
    """Empty where the truth holds, else what is otherwise."""
    *events, end = events
    if not events or end["spoilt"] != at:
        return f"the first loss, gradient or weight that was not finite: update {end['spoilt']}"
    if not truth.operators:
        while_training = [e for e in events if e["update"] > 1 or at == 1]
        first = (while_training or events)[0]
        return "" if first["from"] and at <= first["update"] <= at + 1 else "the data were not what was bad first"
    born = [e for e in events if e["worst"] > e["from"]]
    if truth.hidden:
        born = [e for e in born if e["backward"]]
    if not born:
        return "no birth was seen"
    first = born[0]
    said = {
        "operator": first["operator"] in truth.operators,
        "direction": first["backward"] == truth.backward,
        "line": first["line"] == truth.line_number,
        "update": first["update"] == at,
        "samples": not truth.samples or first["rows"] == list(truth.samples),
    }
    return ", ".join(name for name, right in said.items() if not right)


def ask(truth: Truth, at: int, seed: int) -> tuple[str, list[dict[str, Any]]]:
    environment = {**os.environ, "AT": str(at), "SEED": str(seed), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--worker", str(truth.path)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    answer = [line for line in done.stdout.splitlines() if line.startswith("EVENTS ")]
    if not answer:
        return f"the script failed: {(done.stderr.strip().splitlines() or ['silently'])[-1]}", []
    events = json.loads(answer[-1].removeprefix("EVENTS "))
    return judge(truth, events, at), events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", type=lambda s: [int(n) for n in s.split(",")], default=[1, 300])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="GLOB", default="*")
    options = parser.parse_args()
    wrong = 0
    for truth in (t for t in TRUTHS if fnmatch(t.script, options.only)):
        for at in options.at:
            otherwise, events = ask(truth, at, options.seed)
            wrong += bool(otherwise)
            print(f"{truth.script} at {at}: {'WRONG: ' + otherwise if otherwise else 'holds'}", flush=True)
            for event in events[:4] if otherwise else []:
                print(f"    {event}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        try:
            print("EVENTS " + json.dumps(watch(sys.argv[2])))
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None
    else:
        main()
