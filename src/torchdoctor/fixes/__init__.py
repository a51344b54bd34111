"""Repairs in the script's own words: a fix is printed as code only where that code runs in the script."""

from torchdoctor.fixes.fitting import fit_fix

__all__ = ["fit_fix"]
