"""What a session holds at a moment, listed for a capture: nothing is copied here, and nothing is computed.

What does not fit the limit is left out whole, optimizer state first, then parameters, the batch last; and it is said.
With a `Past` (past.py) it is the state from before an earlier step, and `steps` lists that step and those after it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import platform
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor import __version__
from torchdoctor.attach.contents import Encoder, LeftOutError, Part, type_name
from torchdoctor.attach.past import Past, PastStep, Randoms
from torchdoctor.attach.places import is_user_file
from torchdoctor.attach.ranks import is_together
from torchdoctor.attach.restoring import SCALER_FIELDS, named_buffers
from torchdoctor.scrubbing import scrub_argv
from torchdoctor.store.captured import ARRAY, LEFT_OUT, TENSOR
from torchdoctor.store.captures import CAPTURE_FORMAT, NOTICE, TARGETS_ONLY
from torchdoctor.store.environment import without_home

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

LOSSES_KEPT = 64
SOURCES_KEPT = 500
SOURCE_BYTES = 2_000_000
"""A source file larger than this is named without its digest."""


class Inventory:
    """The parts of a capture and the document that describes them."""

    def __init__(self, session: Session, scalers: list[Any], past: Past | None = None) -> None:
        self._session = session
        self._past = past
        self._encoder = Encoder()
        self.batch, self.random = Part("batch"), Part("random")
        self.parameters, self.buffers = Part("parameter"), Part("buffer")
        self.optimizer, self.scaler = Part("optimizer"), Part("scaler")
        self.document: dict[str, Any] = {
            "format": CAPTURE_FORMAT,
            "notice": NOTICE,
            "when": time.time(),
            "random": self._list_random(),
            **self._list_batches(),
            "steps": [self._list_step(step) for step in past.steps] if past else [],
            "parameters": self._list_tensors(self.parameters, session.registry.parameters()),
            "buffers": self._list_tensors(self.buffers, named_buffers(session.registry)),
            "models": [
                {"name": name, "type": type_name(model), "training": model.training}
                for name, model in session.registry.live_models()
            ],
            "optimizers": [self._list_optimizer(key, o) for key, o in session.registry.live_optimizers()],
            "lead": past.lead if past else 0,
            "scalers": [
                self._list_scaler(s, past.scalers[i] if past and i < len(past.scalers) else None)
                for i, s in enumerate(scalers)
            ],
            "losses": [plain(v) for v in session.training_loss.pending()[-LOSSES_KEPT:]],
            "versions": {"torch": torch.__version__, "python": platform.python_version(), "torchdoctor": __version__},
            "buffers_at": "the step's beginning"
            if past
            else "the capture: what the forward pass changed in them is changed",
            "threads": torch.get_num_threads(),
            "processes": torch.distributed.get_world_size() if is_together() else 0,
        }

    @property
    def _parts(self) -> list[Part]:
        return [self.random, self.scaler, self.batch, self.buffers, self.parameters, self.optimizer]

    @property
    def nbytes(self) -> int:
        return _size(self._parts)

    def tensors(self) -> Iterator[Tensor]:
        for part in self._parts:
            yield from part.tensors.values()

    def choose(self, limit: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The document, and the tensors that fit."""
        kept = self._parts
        left_out = dict(self._encoder.left_out)
        if self.batch.nbytes > limit:
            self._drop(kept, left_out, limit, self.batch)
            self.document["batches"] = []
        if _size(kept) > limit:
            self._drop(kept, left_out, limit, self.optimizer)
            for record in self.document["optimizers"]:
                record.update(state={}, groups=_without_tensors(record["groups"]), state_left_out=True)
        if _size(kept) > limit:
            self._drop(kept, left_out, limit, self.parameters, self.buffers)
            self.document["parameters"] = self.document["buffers"] = {}
        self.document["left_out"] = left_out
        self.document["holds"] = {part.prefix: part.nbytes for part in kept}
        return self.document, {name: tensor for part in kept for name, tensor in part.tensors.items()}

    @staticmethod
    def _drop(kept: list[Part], left_out: dict[str, str], limit: int, *parts: Part) -> None:
        for part in parts:
            kept.remove(part)
            left_out[part.prefix] = f"{part.nbytes:,} bytes do not fit the {limit:,} that a capture may take"

    def _list_batches(self) -> dict[str, Any]:
        """What the loader gave; without a loader, the tensors that were seen to go in, or what the loss compares
        with: on most steps no more is looked at."""
        session = self._session
        given, source = list(session.step_start.batches), "loader"
        if self._past is not None:
            by_loader = any(step.batches for step in self._past.steps)
            return {"batches": [], "batch_source": "loader" if by_loader else "seen"}
        if not given:
            given, source = [[*session.batch, *session.targets]], "seen" if session.batch else TARGETS_ONLY
        many = len(given) > 1
        nodes = [self._encoder.encode(b, self.batch, f"{i}" if many else "0") for i, b in enumerate(given)]
        return {"batches": nodes, "batch_source": source}

    def _list_step(self, step: PastStep) -> dict[str, Any]:
        encode, number = self._encoder.encode, step.number
        return {
            "step": number,
            "random": self._list_randoms(step.random, f"{number}") if step.random is not None else {},
            "batches": [encode(f.batch, self.batch, f"{number}/{i}") for i, f in enumerate(step.batches)],
            "batch_random": [self._list_randoms(f.random, f"{number}/{i}") for i, f in enumerate(step.batches)],
            "groups": {key: encode(g, self.optimizer, f"{key}/groups/{number}") for key, g in step.groups.items()},
        }

    def _list_randoms(self, states: Randoms, wish: str) -> dict[str, Any]:
        add = self.random.add
        found: dict[str, Any] = {"cuda": {str(i): add(s, f"{wish}/cuda/{i}") for i, s in states.cuda.items()}}
        return found if states.cpu is None else found | {"torch": add(states.cpu, f"{wish}/torch")}

    def _list_tensors(self, part: Part, named: Any) -> dict[str, str]:
        found = {}
        for name, tensor in named:
            try:
                found[name] = part.add(self._then(tensor), name)
            except LeftOutError as error:
                self._encoder.left_out[f"{part.prefix}/{name}"[:256]] = str(error)
        return found

    def _then(self, tensor: Tensor) -> Tensor:
        """The tensor, or of the past its copy."""
        if self._past is None:
            return tensor
        copy = self._past.snapshot.copy_of(tensor)
        if copy is None:
            raise LeftOutError("frozen: the script's own" if not tensor.requires_grad else "it was not there then")
        return copy

    def _list_optimizer(self, key: str, optimizer: Any) -> dict[str, Any]:
        encode, part = self._encoder.encode, self.optimizer
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        groups = [{n: v for n, v in g.items() if n != "params"} for g in optimizer.param_groups]
        held = optimizer.state if self._past is None else self._past.snapshot.state_of(optimizer)
        states = {str(i): dict(s) for i, p in enumerate(parameters) if (s := held.get(p))}
        if len(states) < len(held):
            others = len(held) - len(states)
            self._encoder.left_out[f"optimizer/{key}"] = f"{others} entries of its state belong to no parameter"
        return {
            "key": key,
            "type": type(optimizer).__name__,
            "parameters": [self._session.registry.name_of(p) for p in parameters],
            "groups": encode(groups, part, f"{key}/groups"),
            "state": {i: encode(s, part, f"{key}/{i}") for i, s in states.items()},
        }

    def _list_scaler(self, scaler: Any, past: dict[str, Any] | None) -> dict[str, Any]:
        values = past or {name: getattr(scaler, name) for name in SCALER_FIELDS if hasattr(scaler, name)}
        return {"type": type(scaler).__name__, "values": self._encoder.encode(values, self.scaler, "0")}

    def _list_random(self) -> dict[str, Any]:
        """torch's as the step began, the others as they are now, which `at` says; of the past all as it began."""
        past = self._past
        first = past.steps[0].random if past is not None else None
        began = self._session.step_start.random if past is None else first.cpu if first is not None else None
        now = torch.default_generator.get_state() if began is None else began
        found: dict[str, Any] = {"torch": self.random.add(now, "torch"), "at": {"torch": "the step's beginning"}}
        cuda: dict[int, Tensor] = first.cuda if first is not None else {}
        if past is None and torch.cuda.is_initialized():
            cuda = {i: generator.get_state() for i, generator in enumerate(torch.cuda.default_generators)}
        if cuda:
            found["cuda"] = {str(i): self.random.add(state, f"cuda/{i}") for i, state in cuda.items()}
        version, numbers, gauss = random.getstate() if past is None else past.python
        found["python"] = {
            "version": version,
            "words": self.random.add(torch.tensor(numbers), "python"),
            "gauss": gauss,
        }
        kind, keys, position, has_gauss, cached = np.random.get_state() if past is None else past.numpy
        if kind == "MT19937":
            stored = self.random.add(torch.from_numpy(np.asarray(keys).astype(np.int64)), "numpy")
            found["numpy"] = {
                "words": stored,
                "position": int(position),
                "has_gauss": int(has_gauss),
                "gauss": float(cached),
            }
        at = "the capture" if past is None else "the step's beginning"
        found["at"] |= dict.fromkeys(("cuda", "python", "numpy"), at)
        return found


def _size(parts: list[Part]) -> int:
    return sum(part.nbytes for part in parts)


def _without_tensors(node: dict[str, Any]) -> dict[str, Any]:
    if node["kind"] in (TENSOR, ARRAY):
        return {"kind": LEFT_OUT, "type": node["kind"], "why": "optimizer state is left out"}
    return {**node, "items": [_without_tensors(item) for item in node["items"]]} if "items" in node else node


def plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def describe_code() -> dict[str, Any]:
    """The script, its arguments without secrets, and a digest of every source file of the user's that was loaded."""
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    files = {f for m in list(sys.modules.values()) if isinstance(f := getattr(m, "__file__", None), str)}
    sources: dict[str, str | None] = {}
    for file in sorted(files):
        if len(sources) < SOURCES_KEPT and file.endswith(".py") and is_user_file(file) and Path(file).is_file():
            sources[without_home(Path(file).absolute())] = _digest(Path(file))
    return {
        "script": without_home(Path(script).absolute()) if script else None,
        "argv": scrub_argv(sys.argv),
        "sources": sources,
    }


def _digest(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        if path.stat().st_size <= SOURCE_BYTES:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    return None
