"""Formulas that hold in floating point beside those that break."""
