"""Where we stand in the user's way without being felt: torch's functions and methods, wrapped and put back.

A wrapper calls the original exactly once, with the arguments as they came, and gives back what it gave. What we
do before and after runs in guarded sites. While torch.compile traces, a wrapper is the original and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torchdoctor.attach.guard import STATE, is_guarded

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled

Before = Callable[[tuple[Any, ...], dict[str, Any]], Any]
After = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
Failed = Callable[[Any, tuple[Any, ...], dict[str, Any], BaseException], None]


class Gate:
    """Keeps a function that is called very often out of the way: while it is shut, nothing else is done."""

    __slots__ = ("open", "open_without_grad", "passed")

    def __init__(self, is_open: bool, open_without_grad: bool = False) -> None:
        self.open = is_open
        self.open_without_grad = open_without_grad
        """stands open where no graph is built, since that may be a validation"""
        self.passed = 0
        """calls so far, open or shut; without those that it let through because no graph was built"""


SKIPPED = object()
"""What a `before` returns if its `after` has nothing to do."""


class Patches:
    """The set of wrappers in place; `remove` puts every original back."""

    def __init__(self) -> None:
        self._placed: list[tuple[Any, str, Any, Any]] = []
        self.active = True

    def wrap(
        self,
        owner: Any,
        name: str,
        *,
        before: Before | None = None,
        after: After | None = None,
        failed: Failed | None = None,
        gate: Gate | None = None,
    ) -> None:
        """Replace `owner.name` by a wrapper. Names that this torch does not have are passed over."""
        inherited = getattr(owner, name, None)
        if inherited is None:
            return
        for part in (before, after, failed):
            if part is not None and not is_guarded(part):
                raise AssertionError(f"the hook on {name} is not guarded")
        wrapper = self._make(inherited, before, after, failed)
        if gate is not None:
            wrapper = _gated(inherited, wrapper, gate)
            wrapper.__torchdoctor_original__ = inherited  # type: ignore[attr-defined]
        self._placed.append((owner, name, wrapper, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, wrapper)

    def _make(
        self, original: Callable[..., Any], before: Before | None, after: After | None, failed: Failed | None
    ) -> Callable[..., Any]:
        patches = self

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if _is_compiling() or STATE.inside or not patches.active:
                return original(*args, **kwargs)
            token = before(args, kwargs) if before else None
            if failed is None:
                result = original(*args, **kwargs)
            else:
                try:
                    result = original(*args, **kwargs)
                except BaseException as error:
                    failed(token, args, kwargs, error)
                    raise
            if after and token is not SKIPPED:
                after(token, args, kwargs, result)
            return result

        wrapper.__torchdoctor_original__ = original  # type: ignore[attr-defined]
        return wrapper

    def remove(self) -> None:
        """Put the originals back, last first; what somebody else has wrapped since is left and goes inert."""
        self.active = False
        for owner, name, wrapper, previous in reversed(self._placed):
            if vars(owner).get(name) is not wrapper:
                continue
            if previous is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)
        self._placed.clear()

    def suspended(self) -> _Suspension:
        """A context in which the originals stand in their places (torch.jit.script reads source)."""
        return _Suspension(self)

    def names(self) -> list[str]:
        return [f"{getattr(owner, '__name__', owner)}.{name}" for owner, name, _, _ in self._placed]


def _gated(original: Callable[..., Any], watched: Callable[..., Any], gate: Gate) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if gate.open_without_grad and not _is_grad_enabled():
            return watched(*args, **kwargs)
        gate.passed += 1
        return watched(*args, **kwargs) if gate.open else original(*args, **kwargs)

    return wrapper


class _Suspension:
    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._lifted: list[tuple[Any, str, Any, Any]] = []

    def __enter__(self) -> None:
        for owner, name, wrapper, previous in reversed(self._patches._placed):
            if vars(owner).get(name) is wrapper:
                self._lifted.append((owner, name, wrapper, previous))
                if previous is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, previous)

    def __exit__(self, *_: object) -> None:
        for owner, name, wrapper, _previous in reversed(self._lifted):
            setattr(owner, name, wrapper)
        self._lifted.clear()


class _Absent:
    """The owner had no attribute of its own of that name (it was inherited)."""


_ABSENT = _Absent()
