"""Reading device tensors without waiting for the device.

On a CPU the value is there, and the callback runs at once. On a device the tensor is copied to pinned memory
behind the work already queued, and the callback runs when a later poll finds the copy done. A queue that is full
drops the oldest request and counts it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.interruptions import let_through
from torchdoctor.stats import has_own_dispatch

log = logging.getLogger("torchdoctor")

QUEUE_LENGTH = 256

Callback = Callable[[NDArray[Any]], None]


class Deferred:
    """A queue of copies under way."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Any, Tensor, Callback]] = deque()
        self.dropped = 0

    def read(self, tensor: Tensor, callback: Callback) -> None:
        """Call `callback` with the tensor's values as numpy, now or at a later poll."""
        if has_own_dispatch(tensor):
            self.dropped += 1
            return
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            callback(_as_numpy(tensor))
            return
        if tensor.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            self.dropped += 1
            return
        if len(self._queue) >= QUEUE_LENGTH:
            self.poll()
        if len(self._queue) >= QUEUE_LENGTH:
            self._drop_oldest()
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        with torch.cuda.device(tensor.device):
            event = torch.cuda.Event()
            event.record()
        self._queue.append((event, host, callback))

    def _drop_oldest(self) -> None:
        """Give up one reading; what waits for all of them to arrive goes on without it."""
        _, host, callback = self._queue.popleft()
        if host is _NOTHING:
            self._call(callback, host)
        else:
            self.dropped += 1

    def _call(self, callback: Callback, host: Tensor) -> None:
        """One probe's callback that fails leaves the others' alone. Values are given in memory of their own: pinned
        memory that is freed in a forked process (a loader's worker) ends that process."""
        try:
            callback(_as_numpy(host).copy())
        except Exception as error:
            let_through(error)
            self.dropped += 1
            log.debug("torchdoctor: a reading could not be used", exc_info=True)

    def after(self, action: Callable[[], None]) -> None:
        """Run `action` once everything asked for so far has arrived."""
        if not self._queue:
            action()
            return
        self._queue.append((self._queue[-1][0], _NOTHING, lambda _: action()))

    def poll(self) -> None:
        """Run the callbacks whose copies are done, in order; never waits."""
        while self._queue and self._queue[0][0].query():
            _, host, callback = self._queue.popleft()
            self._call(callback, host)

    def drain(self) -> None:
        """Wait for all of them; at the end of a run only. A device that has failed gives none of them."""
        while self._queue:
            event, host, callback = self._queue.popleft()
            try:
                event.synchronize()
            except RuntimeError:
                self.dropped += len(self._queue) + 1
                self._queue.clear()
                return
            self._call(callback, host)


_NOTHING = torch.empty(0)


def _as_numpy(tensor: Tensor) -> NDArray[Any]:
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return np.asarray(tensor.numpy())
