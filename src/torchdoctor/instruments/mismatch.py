"""Errors of torch that come from what was handed over, said so that one knows what to change."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torchdoctor.errors import UsageError

TYPES = re.compile(r"same dtype|expected scalar type|expected target dtype|should be the same|must match .*dtype")
"""How torch says that inputs, weights and targets are of types that do not go together."""

Given = ParamSpec("Given")
Found = TypeVar("Found")


def explained(instrument: Callable[Given, Found]) -> Callable[Given, Found]:
    """A batch of another type than the weights, or than the loss takes, is an error of usage."""

    @functools.wraps(instrument)
    def told(*args: Given.args, **options: Given.kwargs) -> Found:
        try:
            return instrument(*args, **options)
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            if not TYPES.search(first):
                raise
            raise UsageError(
                f"a batch and the model or the loss are of different types: {first}. Cast one of them, such as "
                "inputs.float(), labels.long() or model.double(), or hand over autocast="
            ) from error

    return told
