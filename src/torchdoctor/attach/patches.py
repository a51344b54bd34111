"""The functions and methods of torch whose calls are watched, and how they are put back.

A function written in Python keeps its object and gets other code (see instrumentation.py). A builtin is replaced by a
wrapper, which calls it exactly once, with the arguments as they came, and returns its result. What is done before and
after a call runs in guarded sites. While torch.compile traces, every function is the original and nothing else.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from torchdoctor.attach.guard import STATE, is_guarded
from torchdoctor.attach.instrumentation import Begin, Call, Instrumentation, instrument
from torchdoctor.attach.isolation import skip_compilation

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
    """The set of watched functions; `remove` puts every original back."""

    def __init__(self) -> None:
        self._placed: list[_Instrumented | _Replaced | Switch] = []
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
        """Watch the calls of `owner.name`. Names that this torch does not have are passed over."""
        original = getattr(owner, name, None)
        if original is None:
            return
        _check_guarded(name, before, after, failed, shortcut and shortcut.take)
        if (original, before, after) in self._hooked:
            return  # known by two names
        self._hooked.add((original, before, after))
        placed = self._watch(owner, name, self._begin(before, after, failed, gate, shortcut))
        placed.place()
        self._placed.append(placed)

    def _watch(self, owner: Any, name: str, begin: Begin) -> _Instrumented | _Replaced:
        original = getattr(owner, name)
        is_inherited = isinstance(owner, type) and name not in vars(owner)
        instrumentation = None if is_inherited else instrument(original)
        if instrumentation is not None:
            return _Instrumented(instrumentation, begin)
        return _Replaced(owner, name, _make_wrapper(original, begin))

    def _begin(
        self,
        before: Before | None,
        after: After | None,
        failed: Failed | None,
        gate: Gate | None = None,
        shortcut: Shortcut | None = None,
    ) -> Begin:
        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
            if gate is not None and not (gate.open_without_grad and not _is_grad_enabled()):
                gate.passed += 1
                if not gate.open:
                    return None
            if shortcut is not None and args and shortcut.on and shortcut.take(args[0]):
                return None if failed is None else _WatchedCall(None, args, kwargs, None, failed)
            if STATE.inside or not self.active or _is_compiling():
                return None
            token = None
            if before is not None:
                try:
                    token = before(args, kwargs)
                except RecursionError:  # the script's own depth leaves no room for a look
                    return None
                except BaseException as error:  # it may have done half of its work
                    if failed is not None:
                        failed(None, args, kwargs, error)
                    raise
            if after is None and failed is None:
                return None
            return _WatchedCall(token, args, kwargs, after, failed)

        skip_compilation(begin.__code__, with_callees=True)
        return begin

    def switch(
        self,
        owner: Any,
        name: str,
        *,
        before: Before | None = None,
        after: After,
        failed: Failed | None = None,
        stays: bool = True,
    ) -> Switch:
        """Watch the calls of `owner.name` while the switch is on; see Switch."""
        _check_guarded(name, before, after, failed)
        gate = Gate(False)
        switch = Switch(self._watch(owner, name, self._begin(before, after, failed, gate)), gate, stays)
        self._placed.append(switch)
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


class _WatchedCall:
    """One call of a watched function."""

    __slots__ = ("_after", "_args", "_failed", "_kwargs", "_token")

    def __init__(
        self, token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], after: After | None, failed: Failed | None
    ) -> None:
        self._token, self._args, self._kwargs, self._after, self._failed = token, args, kwargs, after, failed

    def ended(self, result: Any) -> None:
        if self._after is None:
            return
        try:  # contextlib.suppress would take frames of its own
            self._after(self._token, self._args, self._kwargs, result)
        except RecursionError:
            return

    def failed(self) -> bool:
        error = sys.exc_info()[1]
        if self._failed is None or error is None:
            return False
        try:
            return self._failed(self._token, self._args, self._kwargs, error) is True
        except RecursionError:
            return False


for _report in (_WatchedCall.ended, _WatchedCall.failed):
    skip_compilation(_report.__code__, with_callees=True)


def _make_wrapper(original: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return original(*args, **kwargs)
        call = begin(args, kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            if call is not None and call.failed():
                return None
            # `raise` alone adds no entry; before Python 3.11 it shows the traceback as it was, with this frame
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        if call is not None:
            call.ended(result)
        return result

    wrapper.__code__ = wrapper.__code__.replace(co_filename=SKIPPED_BY_WARNINGS)
    skip_compilation(wrapper.__code__)
    wrapper.__torchdoctor_original__ = original  # type: ignore[attr-defined]
    return wrapper


class _Instrumented:
    """A function that keeps its object and has our code."""

    wears_out = False

    def __init__(self, instrumentation: Instrumentation, begin: Begin) -> None:
        self._instrumentation, self._begin = instrumentation, begin

    @property
    def name(self) -> str:
        return self._instrumentation.label

    @property
    def is_free(self) -> bool:
        return True

    def place(self) -> None:
        self._instrumentation.add(self._begin)

    def lift(self) -> bool:
        return self._instrumentation.drop(self._begin)


class _Replaced:
    """An attribute of a class or module that holds our wrapper."""

    wears_out = True

    def __init__(self, owner: Any, name: str, wrapper: Any) -> None:
        self._owner, self._attribute, self._wrapper = owner, name, wrapper
        self._previous = vars(owner).get(name, _ABSENT)

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
    """A method that is called very often and watched only where that is needed. A wrapper that has been switched too
    often stays in, behind a gate, or stays out."""

    def __init__(self, replaced: _Instrumented | _Replaced, gate: Gate, stays: bool) -> None:
        self._replaced, self._gate, self._stays = replaced, gate, stays
        self.is_on = False
        self._is_in = False
        self._times = 0

    def rest(self) -> None:
        """Report no call until `wake`, but stay in place: the calls inside the present one are of no interest."""
        self._gate.open = False

    def wake(self) -> None:
        self._gate.open = self.is_on

    @property
    def name(self) -> str:
        return self._replaced.name

    def on(self) -> None:
        self.is_on = self._gate.open = True
        worn = self._times >= SWITCHES and not self._stays
        if not self._is_in and not worn and self._replaced.is_free:
            self.place()
            self._times += self._replaced.wears_out

    def off(self) -> None:
        self.is_on = self._gate.open = False
        if self._times < SWITCHES or not self._stays:
            self.lift()

    def place(self) -> None:
        self._replaced.place()
        self._is_in = True

    def lift(self) -> bool:
        lifted = self._is_in and self._replaced.lift()
        self._is_in = self._is_in and not lifted
        return lifted


class _Absent:
    """The owner had no attribute of its own of that name (it was inherited)."""


_ABSENT = _Absent()
