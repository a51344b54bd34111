"""Tests share two cores: torch uses one thread in each of them."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
