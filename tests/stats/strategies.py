"""Hypothesis strategies over the tensors of `oddities`."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import FLOATS, LAYOUTS, OTHERS, SHAPES, arrange, build


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = FLOATS + OTHERS) -> Tensor:
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.sampled_from(SHAPES))
    seed = draw(st.integers(0, 2**32 - 1))
    scale = 10.0 ** draw(st.sampled_from((0, 0, 0, -3, -9, -25, 3, 10, 25)))
    centre = draw(st.sampled_from((0.0, 0.0, 0.0, 1.0, -30.0, 1e4)))
    odd = draw(st.sampled_from((0.0, 0.0, 0.05, 0.3)))
    return arrange(build(shape, dtype, seed, scale, centre, odd), draw(st.sampled_from(LAYOUTS)))
