"""Where we stand in the user's way without being felt: torch's functions and methods, wrapped and put back.

A wrapper calls the original exactly once, with the arguments as they came, and gives back what it gave. What we
do before and after runs in guarded sites. While torch.compile traces, a wrapper is the original and nothing else.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Protocol

import torch

from torchdoctor.attach.guard import STATE, is_guarded

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled

Before = Callable[[tuple[Any, ...], dict[str, Any]], Any]
After = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
Failed = Callable[[Any, tuple[Any, ...], dict[str, Any], BaseException], Any]
"""The error goes on to the user, always; True passes it over, and comes from a forked child alone."""


class Gate:
    """Keeps a function that is called very often out of the way: while it is shut, nothing else is done."""

    __slots__ = ("open", "open_without_grad", "passed")

    def __init__(self, is_open: bool, open_without_grad: bool = False) -> None:
        self.open = is_open
        self.open_without_grad = open_without_grad
        """stands open where no graph is built, since that may be a validation"""
        self.passed = 0
        """calls so far, open or shut; without those that it let through because no graph was built"""


class Shortcut(Protocol):
    """What is done in place of the hooks while it is on: as little as can be."""

    on: bool

    def take(self, first: Any) -> bool | None:
        """Deal with a call by its first argument; False if the hooks are needed after all."""


class Doors:
    """Opens and shuts several switches together, as a gate does."""

    def __init__(self) -> None:
        self.switches: list[Switch] = []
        self._open = False

    @property
    def open(self) -> bool:
        return self._open

    @open.setter
    def open(self, value: bool) -> None:
        if value != self._open:
            self._open = value
            for switch in self.switches:
                (switch.on if value else switch.off)()


SKIPPED_BY_WARNINGS = f"{__file__} (importlib._bootstrap)"
"""A warning that torch addresses to its caller skips frames whose file has these two words in its name: so it names the
user's line instead of ours."""


class Patches:
    """The set of wrappers in place; `remove` puts every original back."""

    def __init__(self) -> None:
        self._placed: list[_Replaced | _Redirected | Switch] = []
        self._hooked: set[tuple[Any, ...]] = set()
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
        shortcut: Shortcut | None = None,
    ) -> None:
        """Put a wrapper in the place of `owner.name`. Names that this torch does not have are passed over."""
        inherited = getattr(owner, name, None)
        if inherited is None:
            return
        _check_guarded(name, before, after, failed, shortcut and shortcut.take)
        redirected = isinstance(owner, ModuleType) and can_be_redirected(inherited)
        if redirected and (inherited, before, after) in self._hooked:
            return  # known by two names
        self._hooked.add((inherited, before, after))
        original = copy_function(inherited) if redirected else inherited
        wrapper = self._make(original, before, after, failed)
        if gate is not None:
            wrapper = _gated(original, wrapper, gate)
        if shortcut is not None:
            wrapper = _short(original, wrapper, shortcut, failed)
        wrapper.__torchdoctor_original__ = original  # type: ignore[attr-defined]
        self._placed.append(_Redirected(inherited, wrapper) if redirected else _Replaced(owner, name, wrapper))

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
                    if failed(token, args, kwargs, error) is True:
                        return None
                    raise
            if after:
                after(token, args, kwargs, result)
            return result

        wrapper.__code__ = wrapper.__code__.replace(co_filename=SKIPPED_BY_WARNINGS)
        return wrapper

    def switch(
        self, owner: Any, name: str, *, before: Before | None = None, after: After, stays: bool = True
    ) -> Switch:
        """A wrapper that is put in place and taken out again as the run needs it; see Switch."""
        _check_guarded(name, before, after)
        original, gate = getattr(owner, name), Gate(False)
        wrapper = _gated(original, self._make(original, before, after, None), gate)
        wrapper.__torchdoctor_original__ = original  # type: ignore[attr-defined]
        switch = Switch(_Replaced(owner, name, wrapper), gate, stays)
        self._placed.append(switch)
        switch.off()
        return switch

    def remove(self) -> None:
        """Put the originals back, last first; what somebody else has wrapped since is left and goes inert."""
        self.active = False
        for placed in reversed(self._placed):
            placed.lift()
        self._placed.clear()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """The originals stand in their places (torch.jit.script reads source)."""
        lifted = [placed for placed in reversed(self._placed) if placed.lift()]
        try:
            yield
        finally:
            for placed in reversed(lifted):
                placed.place()

    def names(self) -> list[str]:
        return [placed.name for placed in self._placed]


def _check_guarded(name: str, *hooks: Callable[..., Any] | None) -> None:
    for hook in hooks:
        if hook is not None and not is_guarded(hook):
            raise AssertionError(f"the hook on {name} is not guarded")


def _gated(original: Callable[..., Any], watched: Callable[..., Any], gate: Gate) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if gate.open_without_grad and not _is_grad_enabled():
            return watched(*args, **kwargs)
        gate.passed += 1
        return watched(*args, **kwargs) if gate.open else original(*args, **kwargs)

    wrapper.__code__ = wrapper.__code__.replace(co_filename=SKIPPED_BY_WARNINGS)
    return wrapper


def _short(
    original: Callable[..., Any], watched: Callable[..., Any], shortcut: Shortcut, failed: Failed | None
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not args or not shortcut.on or not shortcut.take(args[0]):
            return watched(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            if failed is not None and failed(None, args, kwargs, error) is True:
                return None
            raise

    wrapper.__code__ = wrapper.__code__.replace(co_filename=SKIPPED_BY_WARNINGS)
    return wrapper


class _Replaced:
    """An attribute of a class or module that holds our wrapper."""

    def __init__(self, owner: Any, name: str, wrapper: Any) -> None:
        self._owner, self._attribute, self._wrapper = owner, name, wrapper
        self._previous = vars(owner).get(name, _ABSENT)
        self.place()

    @property
    def name(self) -> str:
        return f"{getattr(self._owner, '__name__', self._owner)}.{self._attribute}"

    @property
    def is_free(self) -> bool:
        """Nobody else's wrapper is in the place."""
        return vars(self._owner).get(self._attribute, _ABSENT) is self._previous

    def place(self) -> None:
        setattr(self._owner, self._attribute, self._wrapper)

    def lift(self) -> bool:
        if vars(self._owner).get(self._attribute) is not self._wrapper:
            return False
        if self._previous is _ABSENT:
            delattr(self._owner, self._attribute)
        else:
            setattr(self._owner, self._attribute, self._previous)
        return True


SWITCHES = 64
"""A type whose attributes change again and again loses its caches, in newer Pythons for good: no more than so often."""


class Switch:
    """A wrapper of a method that is called very often, in place only where it is needed. One that has been switched too
    often stays in, behind a gate, or stays out."""

    def __init__(self, replaced: _Replaced, gate: Gate, stays: bool) -> None:
        self._replaced, self._gate, self._stays = replaced, gate, stays
        self._is_in = True
        self._times = 0

    @property
    def name(self) -> str:
        return self._replaced.name

    def on(self) -> None:
        self._gate.open = True
        worn = self._times >= SWITCHES and not self._stays
        if not self._is_in and not worn and self._replaced.is_free:
            self.place()
            self._times += 1

    def off(self) -> None:
        self._gate.open = False
        if self._times < SWITCHES or not self._stays:
            self.lift()

    def place(self) -> None:
        self._replaced.place()
        self._is_in = True

    def lift(self) -> bool:
        lifted = self._is_in and self._replaced.lift()
        self._is_in = self._is_in and not lifted
        return lifted


class _Redirected:
    """A function that stays the object it is, with code that calls our wrapper: whoever holds it, under whatever name,
    calls us, and pickle finds it where it says it is."""

    def __init__(self, function: FunctionType, wrapper: Callable[..., Any]) -> None:
        self._function, self._wrapper = function, wrapper
        self._global = f"__torchdoctor_{function.__name__}_{_free_number(function)}__"
        self._code = function.__code__
        self._redirection = _call_target.__code__.replace(
            co_names=(self._global,), co_name=function.__name__, co_filename=SKIPPED_BY_WARNINGS
        )
        self._signature = inspect.signature(function)
        self.place()

    @property
    def name(self) -> str:
        return f"{self._function.__module__}.{self._function.__name__}"

    def place(self) -> None:
        self._function.__globals__[self._global] = self._wrapper
        self._function.__signature__ = self._signature  # type: ignore[attr-defined]
        self._function.__torchdoctor_original__ = self._wrapper.__torchdoctor_original__  # type: ignore[attr-defined]
        self._function.__code__ = self._redirection

    def lift(self) -> bool:
        if self._function.__code__ is not self._redirection:
            return False
        self._function.__code__ = self._code
        for name in ("__signature__", "__torchdoctor_original__"):
            vars(self._function).pop(name, None)
        # a call that has begun in another thread still looks the name up
        self._function.__globals__[self._global] = self._wrapper.__torchdoctor_original__  # type: ignore[attr-defined]
        return True


def _free_number(function: FunctionType) -> int:
    """Names of redirections that were lifted are used again."""
    for number in itertools.count():
        standing = function.__globals__.get(f"__torchdoctor_{function.__name__}_{number}__")
        if standing is None or not hasattr(standing, "__torchdoctor_original__"):
            return number
    raise AssertionError


def can_be_redirected(function: Any) -> bool:
    return isinstance(function, FunctionType) and not function.__code__.co_freevars


def copy_function(function: FunctionType) -> FunctionType:
    """The same function as another object, which keeps its code."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return copy


def _call_target(*args: Any, **kwargs: Any) -> Any:
    return _target(*args, **kwargs)  # type: ignore[name-defined] # noqa: F821 - the name is put in by _Redirected


class _Absent:
    """The owner had no attribute of its own of that name (it was inherited)."""


_ABSENT = _Absent()
