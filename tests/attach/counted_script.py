"""A training under everything that a script can count operations with. Prints the counts."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import profiler
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

COUNTS: dict[str, Any] = {}


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        COUNTS["dispatch"] = COUNTS.get("dispatch", 0) + 1
        return func(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        COUNTS["function"] = COUNTS.get("function", 0) + 1
        return func(*args, **(kwargs or {}))


class Overrides(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        COUNTS["overrides"] = COUNTS.get("overrides", 0) + 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Wraps(Tensor):
    """Elements are held elsewhere, and every operation runs code of this class."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor, requires_grad: bool | None = None) -> Wraps:
        grad = held.requires_grad if requires_grad is None else requires_grad
        made = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, requires_grad=grad)
        made.held = held
        return made

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        COUNTS["wraps"] = COUNTS.get("wraps", 0) + 1
        args, kwargs = tree_map_only(Wraps, lambda t: t.held, (args, kwargs or {}))
        return tree_map_only(Tensor, Wraps, func(*args, **kwargs))


class Trained:
    def __init__(self, wrap: type[Tensor] | None = None) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        self.x, self.y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
        if wrap is Overrides:
            self.x = self.x.as_subclass(Overrides)
        elif wrap is not None:
            self.x = wrap(self.x)
            for layer in (self.model[0], self.model[2]):
                layer.weight = nn.Parameter(wrap(layer.weight.detach()))  # type: ignore[assignment]
                layer.bias = nn.Parameter(wrap(layer.bias.detach()))  # type: ignore[assignment]
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(self.x), self.y).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            F.cross_entropy(self.model(self.x), self.y)
        self.model.train()


def main() -> None:
    Trained().train(2)
    with FlopCounterMode(display=False) as flops:
        Trained().train(25)
    COUNTS["flops"] = flops.get_total_flops()
    with Dispatched():
        Trained().train(25)
    with Called():
        Trained().train(25)
    Trained(Overrides).train(10)
    Trained(Wraps).train(10)
    for name, profile in (("profiler", torch.profiler.profile), ("legacy profiler", profiler.profile)):
        settled = Trained()
        settled.train(40)
        with profile() as found:
            settled.train(10)
        COUNTS[name] = len(found.function_events if name != "profiler" else found.events())
    hooks = [0, 0]

    def pack(tensor: Tensor) -> Tensor:
        hooks[0] += 1
        return tensor

    def unpack(tensor: Tensor) -> Tensor:
        hooks[1] += 1
        return tensor

    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
    Trained().train(5)
    torch._C._autograd._pop_saved_tensors_default_hooks()
    COUNTS["hooks"] = hooks
    traced = Trained()
    traced.train(3)
    COUNTS["make_fx"] = len(make_fx(lambda x, y: F.cross_entropy(traced.model(x), y))(traced.x, traced.y).graph.nodes)
    COUNTS["exported"] = len(torch.export.export(traced.model, (traced.x,), strict=False).graph.nodes)
    COUNTS["symbolic"] = len(torch.fx.symbolic_trace(traced.model).graph.nodes)
    COUNTS["jit"] = len(list(torch.jit.trace(traced.model, traced.x).inlined_graph.nodes()))
    COUNTS["per sample"] = float(torch.func.vmap(lambda x: traced.model(x).sum())(traced.x).sum())


main()
print(json.dumps(COUNTS))
