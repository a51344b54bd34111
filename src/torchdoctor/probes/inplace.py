"""Why backward says that a tensor was modified by an in-place operation: who had kept it, and who changed it, by line.

The graph of the failed backward still names the operation that needs the tensor as it was. Who changed it shows when a
forked child lets the user's loop run the step again, with every in-place operation written down.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place, caller, is_user_file
from torchdoctor.interruptions import let_through
from torchdoctor.probes import rewind
from torchdoctor.probes.clash import Changed, Clash, Kept, explain, is_clash, versions
from torchdoctor.probes.context import Context, Names
from torchdoctor.probes.forking import Errand, tell, unfit, unsafe
from torchdoctor.probes.graph import NODES_LIMIT, line_of
from torchdoctor.probes.module_spans import ModuleSpans
from torchdoctor.probes.second_run import SecondRun
from torchdoctor.probes.step_start import StepStart

SECONDS, PATIENCE = 60.0, 20.0
"""A child's life, and how long the end of a run waits for it: as in the hunt for a NaN."""
ATTEMPTS = 12
"""Backwards of the step that is run again; two networks trained in turn have several."""
WRITES_KEPT = 4096
"""In-place operations remembered for each place in memory."""
CODE_KEPT = 200
_OPTIMIZERS = os.path.dirname(torch.optim.__file__)  # noqa: PTH120 - frames hold strings


class InplaceProbe:
    """Told of every backward that failed; explains the first of its kind."""

    def __init__(self, context: Context, start: StepStart) -> None:
        self._context = context
        self._start = start
        self._errand = Errand()
        self._message: str | None = None
        self._clash: Clash | None = None

    @contained("in-place: backward failed")
    def failed(self, root: Tensor | None, error: BaseException) -> bool:
        """True in a forked child: there the error is passed over, and the user's loop runs the step again."""
        if self._message is not None or root is None or not is_clash(str(error)):
            return False
        self._message = str(error)
        kept = next(iter(_changed_since(root, str(error))), None)
        self._clash = Clash(kept[0] if kept else None)
        shared = any(p.is_shared() for _, p in self._context.names.parameters())
        reason = "the weights are shared with other processes" if shared else unfit() or unsafe(threads=True)
        if reason is None:
            try:
                pipe = self._errand.send(SECONDS)
            except OSError as failure:
                let_through(failure)
                reason = f"the process cannot be forked ({failure.strerror})"
            else:
                if pipe is not None:
                    self._begin(pipe)
                    return True
        self._clash.reason = reason
        return False

    def _begin(self, pipe: int) -> None:
        try:
            Again(pipe, self._start, self._context.names).begin()
        except BaseException as failure:
            tell(pipe, {"reason": f"the step could not be run again ({type(failure).__name__})"})

    @contained("in-place: explain")
    def explain(self, exception: dict[str, Any]) -> dict[str, Any]:
        """The exception that ended the run as run.json keeps it, with an explanation where it is ours to give."""
        if self._clash is None or not self._message or not self._message.startswith(str(exception.get("message"))):
            return exception
        report = self._errand.report(PATIENCE)
        self.close()
        if report is not None and report.get("kept"):
            self._clash = Clash.from_dict(report)
        elif report is not None or self._clash.reason is None:
            self._clash.reason = (report or {}).get("reason", "the step that was run again took too long")
        return {**exception, "explanation": explain(self._clash)}

    @contained("in-place: close")
    def close(self) -> None:
        """The run ends otherwise: nobody waits for a child."""
        self._errand.give_up()
        self._errand.bury()


@dataclass(frozen=True)
class Write:
    """One in-place operation."""

    before: int
    """the tensor's version when it began"""
    changed: Changed


class Writes(TorchDispatchMode):
    """Writes down every in-place operation outside the backward pass, by the place in memory that it wrote to."""

    def __init__(self, modules: ModuleSpans) -> None:
        super().__init__()
        self._modules = modules
        self._by_place: dict[int, list[Write]] = {}
        self._held: list[Any] = []
        """their memory is not given to anything else"""

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._current_graph_task_id() == -1:
            for tensor in _written(func, args, kwargs):
                self._note(func, tensor)
        return func(*args, **kwargs)

    def _note(self, func: Any, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        writes = self._by_place.setdefault(storage.data_ptr(), [])
        if len(writes) >= WRITES_KEPT or tensor.is_inference():
            return
        if not writes:
            self._held.append(storage)
        place, module = caller(), self._modules.current
        name = str(func.overloadpacket.__name__)
        writes.append(Write(tensor._version, Changed(name, _is_update(), *_at(place), module)))

    def after(self, tensor: Tensor, version: int | None) -> Changed | None:
        """What first changed it after it was kept at that version."""
        writes = self._by_place.get(tensor.untyped_storage().data_ptr(), [])
        late = [w for w in writes if version is None or w.before >= version]
        return (late[0] if version is not None else late[-1]).changed if late else None


class Again(SecondRun):
    """The step in whose backward the error came up, every in-place operation written down."""

    def __init__(self, pipe: int, start: StepStart, names: Names) -> None:
        super().__init__(pipe, start, names)
        self._parameters = {p.untyped_storage().data_ptr(): name for name, p in names.parameters()}
        self._writes = Writes(self._modules)
        self._attempts = 0
        self._began: int | None = None
        """number of the first operation of the loop's body, once it has begun anew"""

    def begin(self) -> None:
        """Everything is set; the caller passes the error over and returns into the user's loop."""
        self._confine()
        rewind.to_loop_start(self._restore)
        self._put_in_place(self._writes)

    def _restore(self) -> None:
        super()._restore()
        self._began = torch.autograd._get_sequence_nr()

    def _run_backward(self, *args: Any, **kwargs: Any) -> None:
        try:
            self._backward(*args, **kwargs)
        except RuntimeError as error:
            root = first_root(args, kwargs)
            if root is not None and is_clash(str(error)):
                self._report(root, str(error))
            raise
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            self._give_up("the step was run again and did not fail")

    def _report(self, root: Tensor, message: str) -> NoReturn:
        clash = Clash()
        for kept, raw, number in _changed_since(root, message):
            tensor = _behind(raw)
            module = self._modules.around(number)
            name = self._parameters.get(tensor.untyped_storage().data_ptr()) if tensor is not None else None
            changed = self._writes.after(tensor, versions(message)[1]) if tensor is not None else None
            found = Clash(replace(kept, module=module), changed, name)
            found.earlier = number < self._began if self._began is not None else None
            if clash.kept is None or (clash.changed is None and changed is not None):
                clash = found
        if clash.changed is None:
            clash.reason = "it was changed where it cannot be seen, or before the step began"
        tell(self._pipe, asdict(clash))


def first_root(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The first tensor that backward was called on."""
    tensors = args[0] if args else kwargs.get("tensors")
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors or ())
    return next((t for t in roots if isinstance(t, Tensor)), None)


def _changed_since(root: Tensor, message: str) -> Iterator[tuple[Kept, Any, int]]:
    """Operations in the graph whose kept tensor cannot be had for this very reason: the operation, torch's handle of
    what it kept, and its number in the forward pass."""
    queue = deque([root.grad_fn] if root.grad_fn is not None else [])
    seen = set(queue)
    while queue and len(seen) < NODES_LIMIT:
        node = queue.popleft()
        for role in _roles(node):
            try:
                getattr(node, role)
            except RuntimeError as error:
                if versions(str(error)) == versions(message) and is_clash(str(error)):
                    yield _kept(node, role), getattr(node, f"_raw_{role.lstrip('_')}", None), node._sequence_nr()
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                queue.append(child)


def _roles(node: Any) -> list[str]:
    return [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]


def _kept(node: Any, role: str) -> Kept:
    return Kept(node.name(), role.removeprefix("_saved_"), *_at(line_of(node)))


def _behind(raw: Any) -> Tensor | None:
    """The tensor itself. Only for a child: its graph is not used any more."""
    got: list[Tensor] = []

    def take(tensor: Tensor) -> Tensor:
        got.append(tensor)
        return tensor

    for handle in raw if isinstance(raw, tuple) else (raw,):
        try:
            handle.register_hooks(take, lambda tensor: tensor)
        except (RuntimeError, AttributeError):
            continue
    return got[0] if got else None


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """Tensors among the arguments that the operation writes to."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        yield from (t for t in tree_leaves(value) if isinstance(t, Tensor) and t.layout == torch.strided)


def _is_update() -> bool:
    """An optimizer of torch's makes what runs now. A closure that it called is the user's again."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_OPTIMIZERS):
            return True
        frame = frame.f_back
    return False


def _at(place: Place | None) -> tuple[str | None, int | None, str | None]:
    return (place.file, place.line, place.code[:CODE_KEPT]) if place is not None else (None, None, None)
