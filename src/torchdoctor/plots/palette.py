"""Colours that stay apart for colour-blind readers (Okabe and Ito, "Color Universal Design", 2008)."""

from __future__ import annotations

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
GREY = "#7F7F7F"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
BAND = "rgba(0, 158, 115, 0.13)"
"""Behind the curves, where healthy values lie."""
HEAT = "Cividis"
"""Even in lightness, and read the same by colour-blind eyes."""
